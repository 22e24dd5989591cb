//! Functions in Rust that scripts use, and the errors of scripts.

use std::sync::Mutex;
use std::sync::PoisonError;

use mlua::{Error, Lua, MultiValue, Table, Value, Variadic};

use super::{NAME, bits, sha1, structs};
use crate::commands::Refused;
use crate::reply::Reply;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The functions that the prelude uses.
pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.set("bit", bits::library(lua)?)?;
    table.set("struct", structs::library(lua)?)?;
    table.set(
        "seen",
        lua.create_function(|lua, value: Value| seen(lua, value))?,
    )?;
    table.set(
        "handler",
        lua.create_function(|lua, value: Value| described(lua, &value))?,
    )?;
    let sha1hex = |lua: &Lua, args: MultiValue| {
        let text = match (args.len(), args.front()) {
            (1, Some(value)) => lua.coerce_string(value.clone())?,
            _ => {
                return Err(Error::external(Refused::new(
                    "ERR wrong number of arguments",
                )));
            }
        };
        Ok(sha1(
            &text
                .map(|text| text.as_bytes().to_vec())
                .unwrap_or_default(),
        ))
    };
    table.set("sha1hex", lua.create_function(sha1hex)?)?;
    let log = |_: &Lua, args: Variadic<Value>| match args.len() {
        0 | 1 => Err(Error::external(Refused::new(
            "ERR redis.log() requires two arguments or more.",
        ))),
        _ => Ok(()),
    };
    table.set("log", lua.create_function(log)?)?;
    let setresp = |_: &Lua, args: Variadic<f64>| match args.first().filter(|_| args.len() == 1) {
        None => Err(Error::external(Refused::new(
            "ERR redis.setresp() requires one argument.",
        ))),
        Some(2.0) => Ok(()),
        Some(3.0) => Err(Error::external(Refused::new(
            "ERR RESP version 3 is not supported by this server",
        ))),
        _ => Err(Error::external(Refused::new(
            "ERR RESP version must be 2 or 3.",
        ))),
    };
    table.set("setresp", lua.create_function(setresp)?)?;
    randomness(lua, &table)?;
    Ok(table)
}

/// Generates the numbers of `lrand48`, so every engine returns the same numbers.
fn randomness(lua: &Lua, table: &Table) -> mlua::Result<()> {
    let seeded = |seed: u64| (seed << 16) | 0x330e;
    let state = std::sync::Arc::new(Mutex::new(seeded(0)));
    let drawn = {
        let state = std::sync::Arc::clone(&state);
        move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            *state = state.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & 0xffff_ffff_ffff;
            (*state >> 17) as f64 % 2_147_483_647.0 / 2_147_483_647.0
        }
    };
    let random = move |lua: &Lua, bounds: Variadic<f64>| {
        let (least, most) = match bounds[..] {
            [] => return Ok(drawn()),
            [most] => (1.0, most),
            [least, most] => (least, most),
            _ => return Err(raised(lua, "wrong number of arguments")),
        };
        if least > most {
            let place = bounds.len();
            let text = format!("bad argument #{place} to 'random' (interval is empty)");
            return Err(raised(lua, &text));
        }
        Ok((drawn() * (most - least + 1.0)).floor() + least)
    };
    table.set("random", lua.create_function(random)?)?;
    let randomseed = move |_: &Lua, seed: f64| {
        let seed = seed as i64 as u32;
        *state.lock().unwrap_or_else(PoisonError::into_inner) = seeded(u64::from(seed));
        Ok(())
    };
    table.set("randomseed", lua.create_function(randomseed)?)?;
    Ok(())
}

/// An error with the line at which the script called the running function.
pub(super) fn raised(lua: &Lua, text: &str) -> Error {
    let place = lua.inspect_stack(1, |caller| {
        let name = caller.source().short_src.map(|name| name.into_owned());
        name.zip(caller.current_line())
    });
    match place.flatten() {
        Some((name, line)) => Error::runtime(format!("{name}:{line}: {text}")),
        None => Error::runtime(text),
    }
}

fn root(error: &Error) -> &Error {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => root(cause),
        error => error,
    }
}

pub(super) fn text_of(error: &Error) -> String {
    match root(error) {
        Error::RuntimeError(text)
        | Error::MemoryError(text)
        | Error::SyntaxError { message: text, .. } => text.clone(),
        error => match error.downcast_ref::<Refused>() {
            Some(Refused(text)) => text.clone(),
            None => error.to_string(),
        },
    }
}

/// Converts an error for the script's own handlers: to a text, or to a table with a text.
fn seen(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &value else {
        return Ok(value);
    };
    let text = text_of(error);
    if root(error).downcast_ref::<Refused>().is_some() {
        let table = lua.create_table()?;
        table.raw_set("err", text)?;
        return Ok(Value::Table(table));
    }
    lua.create_string(text).map(Value::String)
}

/// Returns the line at which a script failed, followed by the error.
fn described(lua: &Lua, value: &Value) -> mlua::Result<mlua::LuaString> {
    let mut line = 0;
    for level in 1..200 {
        let found = lua.inspect_stack(level, |frame| {
            let is_script = frame.source().source.is_some_and(|name| name == NAME);
            frame.current_line().filter(|_| is_script)
        });
        match found {
            None => break,
            Some(Some(found)) => {
                line = found;
                break;
            }
            Some(None) => {}
        }
    }
    let mut text = format!("{line} ").into_bytes();
    match value {
        Value::Table(table) => match table.raw_get::<Value>("err")? {
            Value::String(error) => text.extend(&*error.as_bytes()),
            _ => text.extend(b"ERR unknown error"),
        },
        Value::Error(error) => {
            if root(error).downcast_ref::<Refused>().is_none() {
                text.extend(b"ERR ");
            }
            text.extend(text_of(error).bytes());
        }
        Value::Nil => text.extend(b"ERR nil"),
        Value::Boolean(is_so) => text.extend(format!("ERR {is_so}").bytes()),
        value => {
            let told = lua.coerce_string(value.clone())?;
            text.extend(b"ERR ");
            match told {
                Some(told) => text.extend(&*told.as_bytes()),
                None => text.extend(value.type_name().bytes()),
            }
        }
    }
    lua.create_string(text)
}

/// The error reply of a failed script. `value` is what `described` returned.
pub(super) fn failure(value: &Value, hash: &str) -> Reply {
    let text = match value {
        Value::String(text) => String::from_utf8_lossy(&text.as_bytes()).into_owned(),
        Value::Error(error) => format!("0 ERR {}", text_of(error)),
        _ => "0 ERR error in error handling".to_owned(),
    };
    let (line, text) = text.split_once(' ').unwrap_or(("0", &text));
    let text = text.replace(['\r', '\n'], " ");
    Reply::Error(match line {
        "0" => text,
        line => format!("{text} script: {hash}, on {NAME}:{line}."),
    })
}
