//! Lua 5.1 scripts with the API of Redis.

mod bits;
mod convert;
mod natives;
mod structs;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, VmState};

use crate::commands::{Answer, Execution, Refused};
use crate::reply::Reply;

/// The name of the script in Lua's error messages.
const NAME: &str = "@user_script";

/// A script is checked each time that it has run this many instructions.
const TICK: u32 = 100_000;

/// A script fails after this many checks, so after 100 million instructions.
const MOST_TICKS: u64 = 1000;

/// The error of a script that ran for too long.
pub const TOO_LONG: &str = "Script ran for too long";

/// The cache of compiled scripts is cleared when it has this many scripts.
const MOST_COMPILED: usize = 4096;

/// The text of a script and its SHA1.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    text: Arc<[u8]>,
    hash: Arc<str>,
}

impl Script {
    /// Creates a script from its text.
    pub fn new(text: impl AsRef<[u8]>) -> Script {
        let text = text.as_ref();
        Script {
            text: text.into(),
            hash: sha1(text).into(),
        }
    }

    /// Returns the SHA1 of the text in lower case hexadecimal digits.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.hash).finish()
    }
}

/// An interpreter, which compiles each script once and runs one script at a time. Clones share the compiled scripts.
///
/// After a run, an engine keeps only compiled code and the state of `math.random`. So several servers may share it.
#[derive(Clone)]
pub struct Engine(Arc<Mutex<Result<Inner, String>>>);

struct Inner {
    lua: Lua,
    run: Function,
    compiled: HashMap<Arc<str>, Function>,
    /// The replacements, by the hash of the replaced script.
    replaced: HashMap<Arc<str>, Function>,
    /// How often the running script was checked.
    ticks: Arc<AtomicU64>,
}

impl Engine {
    /// Creates an engine without compiled scripts.
    pub fn new() -> Engine {
        let inner = Inner::new();
        Engine(Arc::new(Mutex::new(
            inner.map_err(|error| error.to_string()),
        )))
    }

    /// Runs a script with these keys and arguments. If the script fails, the effects of its earlier commands remain.
    pub fn run(
        &self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        on: &mut Execution<'_>,
    ) -> Reply {
        let reply = self.with(|inner| {
            let function = inner.compiled(script)?;
            Ok(inner.run(&function, script, keys, args, on))
        });
        reply.unwrap_or_else(|refusal| refusal)
    }

    /// Compiles a script before its first run.
    ///
    /// # Errors
    ///
    /// The error reply for a text that is not valid Lua.
    pub fn compile(&self, script: &Script) -> Result<(), Reply> {
        self.with(|inner| inner.compiled(script).map(drop))
    }

    /// Replaces the script with this hash by another text. So a test can plant a bug in a script.
    ///
    /// # Errors
    ///
    /// The error reply for a text that is not valid Lua.
    pub fn replace(&self, hash: &str, text: &str) -> Result<(), Reply> {
        self.with(|inner| {
            let function = inner.function(text.as_bytes())?;
            inner.replaced.insert(hash.into(), function);
            Ok(())
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> Answer<T>) -> Result<T, Reply> {
        let done = match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(inner) => work(inner),
            Err(text) => Err(Refused(format!(
                "ERR the script engine did not start: {text}"
            ))),
        };
        done.map_err(Reply::from)
    }
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Inner {
    fn new() -> mlua::Result<Inner> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let (run, globals) = prelude.call((natives::table(&lua)?,))?;
        lua.set_globals(globals)?;
        let inner = Inner {
            lua,
            run,
            compiled: HashMap::new(),
            replaced: HashMap::new(),
            ticks: Arc::default(),
        };
        inner.limit()?;
        Ok(inner)
    }

    fn limit(&self) -> mlua::Result<()> {
        let ticks = Arc::clone(&self.ticks);
        let triggers = HookTriggers::new().every_nth_instruction(TICK);
        self.lua.set_global_hook(triggers, move |lua, _| {
            if ticks.fetch_add(1, Ordering::Relaxed) < MOST_TICKS {
                return Ok(VmState::Continue);
            }
            // From now on every instruction fails, so that a script cannot continue with `pcall`.
            let triggers = HookTriggers::new().every_nth_instruction(1);
            lua.set_global_hook(triggers, |_, _| Err(mlua::Error::runtime(TOO_LONG)))?;
            Err(mlua::Error::runtime(TOO_LONG))
        })
    }

    fn compiled(&mut self, script: &Script) -> Answer<Function> {
        let known = self.replaced.get(&script.hash);
        if let Some(function) = known.or_else(|| self.compiled.get(&script.hash)) {
            return Ok(function.clone());
        }
        let function = self.function(&script.text)?;
        if self.compiled.len() >= MOST_COMPILED {
            self.compiled.clear();
        }
        self.compiled.insert(script.hash.clone(), function.clone());
        Ok(function)
    }

    fn function(&self, text: &[u8]) -> Answer<Function> {
        let chunk = self.lua.load(text).set_name(NAME).set_mode(ChunkMode::Text);
        chunk.into_function().map_err(|error| {
            let text = natives::text_of(&error);
            let text = format!("ERR Error compiling script (new function): {text}");
            Refused(text.replace(['\r', '\n'], " "))
        })
    }

    fn run(
        &self,
        function: &Function,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        on: &mut Execution<'_>,
    ) -> Reply {
        self.ticks.store(0, Ordering::Relaxed);
        on.declare(keys);
        let on = RefCell::new(on);
        let ended = self.lua.scope(|scope| {
            let lua = &self.lua;
            let call = scope.create_function(|lua, args: MultiValue| {
                let answer = convert::called(&on, args);
                let reply = answer.map_err(mlua::Error::external)?;
                convert::to_lua(lua, &reply)
            })?;
            let protected_call = scope.create_function(|lua, args: MultiValue| {
                let answer = convert::called(&on, args);
                convert::to_lua(lua, &answer.unwrap_or_else(Reply::from))
            })?;
            let strings = |texts: &[&[u8]]| {
                let texts = texts.iter().map(|text| lua.create_string(text));
                lua.create_sequence_from(texts.collect::<mlua::Result<Vec<_>>>()?)
            };
            let (keys, args) = (strings(keys)?, strings(args)?);
            let (is_done, value) = self
                .run
                .call((function, keys, args, call, protected_call))?;
            Ok(match is_done {
                true => convert::from_lua(&value),
                false => natives::failure(&value, &script.hash),
            })
        });
        if self.ticks.load(Ordering::Relaxed) > MOST_TICKS
            && let Err(error) = self.limit()
        {
            return Reply::Error(format!("ERR {}", natives::text_of(&error)));
        }
        ended.unwrap_or_else(|error| {
            let text = natives::text_of(&error).replace(['\r', '\n'], " ");
            Reply::Error(format!("ERR Error running script {}, {text}", script.hash))
        })
    }
}

pub(crate) fn sha1(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
