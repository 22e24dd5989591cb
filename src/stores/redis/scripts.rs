//! The Lua scripts: their texts, and what they take.

use std::sync::OnceLock;

use crate::stores::redis::keys::Key;
use crate::stores::redis::kinds::Instead;

mod pieces;

/// One script, with its hash.
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
    pub(super) keys: &'static [Key],
    /// Its arguments but the expiry and the number of the request, which come behind them.
    pub(super) args: &'static [Arg],
    /// Whether the server time after which it is refused is an argument, and its answer tells the time.
    pub(super) expires: bool,
    /// What commands do in its place where a server runs no scripts.
    pub(super) instead: Option<Instead>,
    sharded: OnceLock<Box<Script>>,
}

/// The meaning of an argument of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arg {
    Visitor,
    /// The visitor that a hold is handed off to.
    Successor,
    /// In ms.
    Lease,
    /// The count that stands there, as far as known.
    Known,
    /// The count that is to stand there.
    Wanted,
    /// The channel of unlock messages.
    Channel,
    /// The word of [`Layout::rights`](super::kinds::Layout::rights).
    Rights,
    /// The name of the lock, where it is to be no key.
    Lock,
    /// The smallest fencing token that may be drawn.
    Floor,
    /// The key of the last fencing token, where it is to be no key of the script.
    Counter,
    /// The operation on a counter.
    Step,
    /// The number that it is about.
    Amount,
    /// The beginning of the channels of those who wait on a condition.
    Places,
    /// How long a counter lasts that is set, in ms.
    Life,
    /// The fence of a write.
    Fence,
    /// The word for what guarded work is checked by: a hold, by that of its layout, or a fence.
    Check,
    /// Guarded work, of as many arguments as it has.
    Work,
    /// The writer inside whose hold a thread reads.
    Inside,
    /// The word for the place that a waiter is to have.
    Wish,
    /// For how long a waiter counts as alive behind the one before it, in ms.
    Patience,
    /// Whether the server knows all who listen to a channel.
    HearsAll,
}

impl Script {
    pub(super) fn new(text: &str, keys: &'static [Key], args: &'static [Arg]) -> Script {
        let text = pieces::spliced(text);
        Script {
            hash: redis::Script::new(&text).get_hash().to_owned(),
            text,
            keys,
            args,
            expires: false,
            instead: None,
            sharded: OnceLock::new(),
        }
    }

    /// The same as a script that takes an expiry.
    pub(super) fn expiring(self) -> Script {
        Script {
            expires: true,
            ..self
        }
    }

    /// The same as a script that commands can stand for.
    pub(super) fn or(self, instead: Instead) -> Script {
        Script {
            instead: Some(instead),
            ..self
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
            let text = text.replace("'NUMSUB'", "'SHARDNUMSUB'");
            Box::new(Script {
                expires: self.expires,
                instead: self.instead,
                ..Script::new(&text, self.keys, self.args)
            })
        })
    }
}
