//! The work of a guarded write. In one atomic step, the server checks a hold or a fencing token, and executes the work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::error::{Error, Result};

/// The largest number of arguments of a guarded write. The library's script unpacks them onto Lua's stack, which is limited.
const MOST_WORDS: usize = 4_000;

/// The commands of a guarded write ([`Guard::write`](crate::Guard::write)), in order of execution.
///
/// Common commands have methods of their own. [`Batch::command`] begins any other command. The server must know which
/// arguments are keys. So pass a key with [`Batch::key`], or as `key` to a method such as [`Batch::set`]. The client's
/// [`key_prefix`](crate::Builder::key_prefix) is not added to keys. Pass numbers as text.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlatch::Batch;
///
/// fn sell(batch: &mut Batch) {
///     batch.incr_by("stock", -1);
///     batch.hset("orders", "42", "one piece");
///     batch.set("last-order", "42").arg("NX");
///     batch.expire("last-order", Duration::from_secs(3600));
///     batch.command("ZADD").key("sales").arg(20.5.to_string()).arg("42");
/// }
/// ```
#[derive(Clone, Default)]
pub struct Batch {
    commands: Vec<Vec<Vec<u8>>>,
    keys: Vec<String>,
}

impl Batch {
    /// Begins a command. [`Batch::key`] and [`Batch::arg`] then add keys and arguments to the command.
    ///
    /// A command that the server forbids in scripts, such as `MULTI` or `SUBSCRIBE`, fails when the batch is executed.
    pub fn command(&mut self, name: &str) -> &mut Batch {
        self.commands.push(Vec::new());
        self.arg(name)
    }

    /// Adds a key to the last command.
    pub fn key(&mut self, key: &str) -> &mut Batch {
        self.keys.push(key.to_owned());
        self.arg(key)
    }

    /// Adds an argument to the last command. The argument is not a key.
    pub fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Batch {
        let word = argument.as_ref().to_vec();
        match self.commands.last_mut() {
            Some(words) => words.push(word),
            None => self.commands.push(vec![word]),
        }
        self
    }

    /// `GET`: returns the value of a key.
    pub fn get(&mut self, key: &str) -> &mut Batch {
        self.command("GET").key(key)
    }

    /// `SET`: sets the value of a key, and removes its TTL.
    pub fn set(&mut self, key: &str, value: impl AsRef<[u8]>) -> &mut Batch {
        self.command("SET").key(key).arg(value)
    }

    /// `DEL`: deletes a key. The reply is the number of deleted keys, 0 or 1.
    pub fn del(&mut self, key: &str) -> &mut Batch {
        self.command("DEL").key(key)
    }

    /// `INCRBY`: adds `by` to the number of a key, or to 0 if the key does not exist. The reply is the sum.
    pub fn incr_by(&mut self, key: &str, by: i64) -> &mut Batch {
        self.command("INCRBY").key(key).arg(by.to_string())
    }

    /// `HGET`: returns the value of a field of a hash.
    pub fn hget(&mut self, key: &str, field: impl AsRef<[u8]>) -> &mut Batch {
        self.command("HGET").key(key).arg(field)
    }

    /// `HSET`: sets the value of a field of a hash. The reply is 1 if the field is new, else 0.
    pub fn hset(
        &mut self,
        key: &str,
        field: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Batch {
        self.command("HSET").key(key).arg(field).arg(value)
    }

    /// `PEXPIRE`: sets the TTL of a key, in whole milliseconds. The reply is 1, or 0 if the key does not exist.
    pub fn expire(&mut self, key: &str, life: Duration) -> &mut Batch {
        let millis = life.as_millis().to_string();
        self.command("PEXPIRE").key(key).arg(millis)
    }

    fn words(&self) -> usize {
        self.commands.iter().map(Vec::len).sum()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |words: &Vec<Vec<u8>>| -> Vec<_> {
            let texts = words.iter().map(|it| String::from_utf8_lossy(it));
            texts.map(|it| it.into_owned()).collect()
        };
        f.debug_list()
            .entries(self.commands.iter().map(text))
            .finish()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    Commands(&'a Batch),
    Script {
        text: &'a str,
        keys: &'a [&'a str],
        args: &'a [&'a [u8]],
    },
}

impl<'a> Work<'a> {
    pub(crate) fn check(self, lock: &Arc<str>) -> Result<()> {
        let words = match self {
            Work::Commands(batch) => batch.words(),
            Work::Script { keys, args, .. } => keys.len() + args.len(),
        };
        if words <= MOST_WORDS {
            return Ok(());
        }
        let reason = format!(
            "a guarded write takes at most {MOST_WORDS} arguments in all, not {words}; split it"
        );
        Err(Error::unsupported(lock, reason))
    }

    pub(crate) fn keys(self) -> impl Iterator<Item = &'a str> + Clone {
        let (of_batch, of_script) = match self {
            Work::Commands(batch) => (&batch.keys[..], &[][..]),
            Work::Script { keys, .. } => (&[][..], keys),
        };
        let of_batch = of_batch.iter().map(String::as_str);
        of_batch.chain(of_script.iter().copied())
    }

    /// The number of script arguments that [`Work::each`] passes to `add`.
    pub(crate) fn count(self) -> usize {
        match self {
            Work::Commands(batch) => batch.commands.len() + batch.words(),
            Work::Script { args, .. } => args.len(),
        }
    }

    /// Calls `add` with each script argument: for a command, the number of its words, its name and its arguments.
    pub(crate) fn each(self, mut add: impl FnMut(&[u8])) {
        match self {
            Work::Commands(batch) => {
                for words in &batch.commands {
                    add(words.len().to_string().as_bytes());
                    words.iter().for_each(|word| add(word));
                }
            }
            Work::Script { args, .. } => args.iter().for_each(|arg| add(arg)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(work: Work<'_>) -> Vec<String> {
        let mut packed = Vec::new();
        work.each(|word| packed.push(String::from_utf8_lossy(word).into_owned()));
        assert_eq!(packed.len(), work.count());
        packed
    }

    #[test]
    fn a_batch_packs_commands_with_their_number_of_words() {
        let mut batch = Batch::default();
        batch.set("a", "1").arg("EX").arg("60").get("");
        batch.command("ZADD").key("z").arg([0xff]).key("y");
        let work = Work::Commands(&batch);
        let words = [
            "5", "SET", "a", "1", "EX", "60", "2", "GET", "", "4", "ZADD", "z", "\u{fffd}", "y",
        ];
        assert_eq!(packed(work), words);
        assert_eq!(work.keys().collect::<Vec<_>>(), ["a", "", "z", "y"]);
        assert!(format!("{batch:?}").starts_with(r#"[["SET", "a", "1""#));

        let empty = Batch::default();
        assert_eq!(Work::Commands(&empty).count(), 0);
        let mut headless = Batch::default();
        headless.arg("PING");
        assert_eq!(packed(Work::Commands(&headless)), ["1", "PING"]);

        let (keys, args) = (["k"], [&b"a"[..], b"b"]);
        let script = Work::Script {
            text: "",
            keys: &keys,
            args: &args,
        };
        assert_eq!(packed(script), ["a", "b"]);
        assert_eq!(script.keys().collect::<Vec<_>>(), ["k"]);
    }

    #[test]
    fn a_batch_of_too_many_words_is_refused() {
        let mut batch = Batch::default();
        batch.command("DEL");
        for _ in 1..MOST_WORDS {
            batch.key("a");
        }
        let name = "orders".into();
        assert!(Work::Commands(&batch).check(&name).is_ok());
        batch.key("a");
        let error = Work::Commands(&batch).check(&name);
        assert!(matches!(error, Err(Error::Unsupported { reason, .. }) if reason.contains("4001")));
    }
}
