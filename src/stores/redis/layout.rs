//! The row of each kind of lock: all that this store has to know of it.

use std::sync::{Arc, LazyLock};

use crate::ground::claim::Kind;
use crate::stores::redis::keys;
use crate::stores::redis::scripts::Script;

/// The properties of locks of one kind in Redis, and the scripts that they have of their own. These are called and answer
/// alike.
pub(super) struct Layout {
    /// Names the channel of the unlock messages of a lock.
    pub(super) channel: fn(&str) -> Arc<str>,
    /// Whether a release publishes a message. Programs that share a layout without messages leave waiters to poll.
    pub(super) publishes: bool,
    /// Whether a first acquisition that was cut off is sent again: its field cannot be that of another hold of this
    /// client. A copy that got no answer may come after the release then, and has to be cleared up after.
    pub(super) repeats_acquisition: bool,
    /// The word by which the script of rights tries the commands of this kind.
    pub(super) rights: &'static str,
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) transfer: Script,
    pub(super) resolve: Script,
    pub(super) force_release: Script,
    pub(super) inspect: Script,
}

/// All kinds, in the order in which a script is looked for by its hash.
pub(super) const KINDS: [Kind; 2] = [Kind::Reentrant, Kind::Token];

static REENTRANT: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: keys::channel,
    publishes: true,
    repeats_acquisition: false,
    rights: "",
    acquire: Script::new(include_str!("scripts/acquire.lua")),
    release: Script::new(include_str!("scripts/release.lua")),
    transfer: Script::new(include_str!("scripts/transfer.lua")),
    resolve: Script::new(include_str!("scripts/withdraw.lua")),
    force_release: Script::new(include_str!("scripts/force_release.lua")),
    inspect: Script::new(include_str!("scripts/inspect.lua")),
});

static TOKEN: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: keys::channel,
    publishes: false,
    repeats_acquisition: true,
    rights: "token",
    acquire: Script::new(include_str!("scripts/token/acquire.lua")),
    release: Script::new(include_str!("scripts/token/release.lua")),
    transfer: Script::new(include_str!("scripts/token/transfer.lua")),
    resolve: Script::new(include_str!("scripts/token/withdraw.lua")),
    force_release: Script::new(include_str!("scripts/token/force_release.lua")),
    inspect: Script::new(include_str!("scripts/token/inspect.lua")),
});

impl Layout {
    pub(super) fn of(kind: Kind) -> &'static Layout {
        match kind {
            Kind::Reentrant => &REENTRANT,
            Kind::Token => &TOKEN,
        }
    }

    /// The layout whose script an error message names.
    pub(super) fn named_in(text: &str) -> &'static Layout {
        let is_named = |layout: &&Layout| {
            let mut scripts = layout.scripts().into_iter();
            scripts.any(|script| text.contains(&script.hash))
        };
        let mut layouts = KINDS.into_iter().map(Layout::of);
        layouts
            .find(is_named)
            .unwrap_or_else(|| Layout::of(Kind::default()))
    }

    fn scripts(&self) -> [&Script; 6] {
        let Layout {
            acquire,
            release,
            transfer,
            resolve,
            force_release,
            inspect,
            ..
        } = self;
        [acquire, release, transfer, resolve, force_release, inspect]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::stores::redis::scripts::SCRIPTS;

    #[test]
    fn the_sharded_scripts_say_so_everywhere() {
        let Layout {
            release,
            transfer,
            resolve,
            force_release,
            ..
        } = Layout::of(Kind::Reentrant);
        for script in [release, resolve, force_release, &SCRIPTS.rights] {
            let text = &script.sharded().text;
            assert!(text.contains("'SPUBLISH'") && !text.contains("'PUBLISH'"));
        }
        assert!(transfer.sharded().text.contains("'SHARDNUMSUB'"));
        assert_ne!(transfer.sharded().hash, transfer.hash);
    }

    #[test]
    fn all_scripts_tell_a_lock_from_another_hash_in_the_same_way() {
        let Layout {
            acquire,
            release,
            transfer,
            force_release,
            inspect,
            ..
        } = Layout::of(Kind::Reentrant);
        let rule = |script: &Script| {
            let (_, rest) = script.text.split_once("\n-- Who has the lock:").unwrap();
            rest.split_once("\nend\n").unwrap().0.to_owned()
        };
        let (release_level, renew) = (&SCRIPTS.release_level, &SCRIPTS.renew);
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
