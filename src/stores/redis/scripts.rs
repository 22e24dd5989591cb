//! The Lua scripts, with their keys and arguments.

use std::sync::OnceLock;

use crate::stores::redis::keys::Key;
use crate::stores::redis::kinds::Instead;
use crate::stores::redis::packed::Packed;

mod pieces;

pub(super) struct Script {
    pub(super) text: String,
    /// `EVALSHA` and the hash, encoded for a request.
    pub(super) evalsha: Vec<u8>,
    pub(super) keys: &'static [Key],
    /// The first arguments. The parts of `Limit` and the number of the request follow.
    pub(super) args: &'static [Arg],
    /// Whether the script gets an expiry and returns the server time. After the expiry, it refuses the request.
    pub(super) expires: bool,
    /// The commands that replace the script on a server without scripts.
    pub(super) instead: Option<Instead>,
    sharded: OnceLock<Box<Script>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arg {
    Visitor,
    Successor,
    Lease,
    Known,
    Wanted,
    /// `Known` and `Wanted`, left out if a hold begins with a count of 1, because each argument slows the script down.
    Counts,
    Channel,
    /// [`Layout::rights`](super::kinds::Layout::rights).
    Rights,
    /// The lock's name, not declared as a key: a server refuses a script if the user lacks the right to a declared key.
    Lock,
    Floor,
    /// The key of the last fencing token, not declared as a key for the same reason as `Lock`.
    Counter,
    Step,
    Amount,
    /// The prefix of the channels of a condition's waiters.
    Places,
    /// The TTL, in ms, of a counter that the request creates.
    Life,
    Fence,
    /// What the script checks before the user's commands: `fence` for `write_fenced`, else the layout's `rights`.
    Check,
    Work,
    Inside,
    /// The requested position in the queue on the server.
    Wish,
    /// The difference between the times at which two consecutive waiters count as dead, in ms.
    Patience,
    /// Whether all subscribers of a channel are connected to this server.
    HearsAll,
}

impl Script {
    pub(super) fn new(text: &str, keys: &'static [Key], args: &'static [Arg]) -> Script {
        let text = pieces::spliced(text);
        let script = redis::Script::new(&text);
        let mut evalsha = Vec::new();
        let mut packed = Packed(&mut evalsha);
        packed.text(&["EVALSHA"]);
        packed.text(&[script.get_hash()]);
        Script {
            evalsha,
            text,
            keys,
            args,
            expires: false,
            instead: None,
            sharded: OnceLock::new(),
        }
    }

    pub(super) fn expiring(self) -> Script {
        Script {
            expires: true,
            ..self
        }
    }

    pub(super) fn or(self, instead: Instead) -> Script {
        Script {
            instead: Some(instead),
            ..self
        }
    }

    #[cfg(any(test, feature = "in-memory"))]
    pub(super) fn hash(&self) -> String {
        redis::Script::new(&self.text).get_hash().to_owned()
    }

    /// A number that no other existing script of this process has.
    pub(super) fn id(&self) -> usize {
        self.text.as_ptr().addr()
    }

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
