//! The Lua scripts and how they are called.

use std::borrow::Cow;
use std::sync::OnceLock;

use redis::Cmd;

use crate::ground::claim::Kind;
use crate::stores::redis::layout::KINDS;

/// One script, with its hash.
pub(super) struct Script {
    pub(super) text: Cow<'static, str>,
    hash: String,
    sharded: OnceLock<Box<Script>>,
}

impl Script {
    fn new(text: impl Into<Cow<'static, str>>) -> Script {
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

/// All scripts of this store.
pub(super) struct Scripts {
    reentrant: Operations,
    token: Operations,
    pub(super) release_level: Script,
    pub(super) renew: Script,
    pub(super) rights: Script,
}

/// The operations that each kind of lock has scripts of its own for. They are called and answer alike.
pub(super) struct Operations {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) transfer: Script,
    pub(super) resolve: Script,
    pub(super) force_release: Script,
    pub(super) inspect: Script,
}

impl Operations {
    fn all(&self) -> [&Script; 6] {
        let Operations {
            acquire,
            release,
            transfer,
            resolve,
            force_release,
            inspect,
        } = self;
        [acquire, release, transfer, resolve, force_release, inspect]
    }
}

impl Scripts {
    pub(super) fn new() -> Scripts {
        Scripts {
            reentrant: Operations {
                acquire: Script::new(include_str!("scripts/acquire.lua")),
                release: Script::new(include_str!("scripts/release.lua")),
                transfer: Script::new(include_str!("scripts/transfer.lua")),
                resolve: Script::new(include_str!("scripts/withdraw.lua")),
                force_release: Script::new(include_str!("scripts/force_release.lua")),
                inspect: Script::new(include_str!("scripts/inspect.lua")),
            },
            token: Operations {
                acquire: Script::new(include_str!("scripts/token/acquire.lua")),
                release: Script::new(include_str!("scripts/token/release.lua")),
                transfer: Script::new(include_str!("scripts/token/transfer.lua")),
                resolve: Script::new(include_str!("scripts/token/withdraw.lua")),
                force_release: Script::new(include_str!("scripts/token/force_release.lua")),
                inspect: Script::new(include_str!("scripts/token/inspect.lua")),
            },
            release_level: Script::new(include_str!("scripts/release_level.lua")),
            renew: Script::new(include_str!("scripts/renew.lua")),
            rights: Script::new(include_str!("scripts/rights.lua")),
        }
    }

    /// The kind of lock whose script an error message names.
    pub(super) fn kind_in(&self, text: &str) -> Kind {
        let is_named = |kind: &Kind| {
            let mut scripts = self.of(*kind).all().into_iter();
            scripts.any(|script| text.contains(&script.hash))
        };
        KINDS.into_iter().find(is_named).unwrap_or_default()
    }

    pub(super) fn of(&self, kind: Kind) -> &Operations {
        match kind {
            Kind::Reentrant => &self.reentrant,
            Kind::Token => &self.token,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn the_sharded_scripts_say_so_everywhere() {
        let scripts = Scripts::new();
        let Operations {
            release,
            transfer,
            resolve,
            force_release,
            ..
        } = scripts.of(Kind::Reentrant);
        for script in [release, resolve, force_release, &scripts.rights] {
            let text = &script.sharded().text;
            assert!(text.contains("'SPUBLISH'") && !text.contains("'PUBLISH'"));
        }
        assert!(transfer.sharded().text.contains("'SHARDNUMSUB'"));
        assert_ne!(transfer.sharded().hash, transfer.hash);
    }

    #[test]
    fn all_scripts_tell_a_lock_from_another_hash_in_the_same_way() {
        let scripts = Scripts::new();
        let Operations {
            acquire,
            release,
            transfer,
            force_release,
            inspect,
            ..
        } = scripts.of(Kind::Reentrant);
        let rule = |script: &Script| {
            let (_, rest) = script.text.split_once("\n-- Who has the lock:").unwrap();
            rest.split_once("\nend\n").unwrap().0.to_owned()
        };
        let (release_level, renew) = (&scripts.release_level, &scripts.renew);
        for script in [
            release,
            transfer,
            force_release,
            inspect,
            release_level,
            renew,
        ] {
            assert_eq!(rule(script), rule(acquire));
            assert_eq!(script.text.matches("HKEYS").count(), 1);
        }
    }
}
