//! The Lua scripts and how they are called.

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

use redis::Cmd;

/// One script, with its hash.
pub(super) struct Script {
    pub(super) text: Cow<'static, str>,
    pub(super) hash: String,
    sharded: OnceLock<Box<Script>>,
}

impl Script {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Script {
        let text = text.into();
        Script {
            hash: redis::Script::new(&text).get_hash().to_owned(),
            text,
            sharded: OnceLock::new(),
        }
    }

    /// A number that no other script of this process has.
    pub(super) fn id(&self) -> usize {
        self.text.as_ptr().addr()
    }

    /// The same script for a node where unlock messages are sharded.
    pub(super) fn sharded(&self) -> &Script {
        self.sharded.get_or_init(|| {
            let text = self.text.replace("'PUBLISH'", "'SPUBLISH'");
            Box::new(Script::new(text.replace("'NUMSUB'", "'SHARDNUMSUB'")))
        })
    }

    /// The start of the call, by its hash or by its text, to which the keys and arguments are to be added.
    pub(super) fn command(&self, by_text: bool, keys: usize, args: usize) -> Cmd {
        let mut command = Cmd::with_capacity(3 + keys + args, 64 * (2 + keys + args));
        if by_text {
            command.arg("EVAL").arg(&*self.text);
        } else {
            command.arg("EVALSHA").arg(&self.hash);
        }
        command.arg(keys);
        command
    }

    /// The packed call. The last argument of every script is a number that its answer repeats.
    pub(super) fn pack(
        &self,
        by_text: bool,
        keys: &[&str],
        args: &[&[u8]],
        number: i64,
    ) -> Vec<u8> {
        let mut command = self.command(by_text, keys.len(), args.len() + 1);
        for key in keys {
            command.arg(key);
        }
        for arg in args {
            command.arg(arg);
        }
        command.arg(number);
        command.get_packed_command()
    }
}

/// The scripts that all kinds of locks share; those of one kind are in its layout.
pub(super) struct Scripts {
    pub(super) release_level: Script,
    pub(super) renew: Script,
    pub(super) rights: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    release_level: Script::new(include_str!("scripts/release_level.lua")),
    renew: Script::new(include_str!("scripts/renew.lua")),
    rights: Script::new(include_str!("scripts/rights.lua")),
});
