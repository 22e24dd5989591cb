//! Drawn sequences of requests: calls of the library's scripts and plain commands.
//!
//! A row is a template of a request. Its words are parted by blanks. A word may list alternatives, parted by `|`, and may have
//! these marks in it:
//!
//! | mark | becomes |
//! |---|---|
//! | `$`, `#` | the name of the lock; the same in braces, as it stands in other keys |
//! | `CH` | the channel of the lock |
//! | `%v`, `%w` | a visitor of the kind, and another draw of one |
//! | `%R`, `%W` | a visitor that reads, and one that writes |
//! | `%I` | the visitor that writes in the thread of `%R` |
//! | `%T` | a waiter on a condition |
//! | `%t` | a lease in ms |
//! | `%k`, `%n`, `%o` | a hold count, the next one, and the one after that |
//! | `%d` | a digit |
//! | `%e` | the server time after which the request is refused: `@` and ms from now, until it is sent |
//! | `%r` | `@id`, the replication id of the server, or another id |
//! | `''` | an empty word |
#![allow(dead_code, reason = "no binary uses all of it")]

use fastrand::Rng;
use redlatch_server_checks::{Reply, Script, scripts};

/// A kind of lock, or a group of commands.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) visitors: Vec<&'static str>,
    /// The weight, the script (none for a plain command), the keys and the arguments.
    rows: Vec<(u32, &'static str, &'static str, &'static str)>,
}

/// Parses kinds. A line `let KEYS …` names some keys, `[kind] …` begins a kind and lists its visitors.
pub(crate) fn kinds(text: &'static str) -> Vec<Kind> {
    let (mut kinds, mut named) = (Vec::new(), Vec::new());
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some((name, keys)) = line.strip_prefix("let ").and_then(|it| it.split_once(' ')) {
            named.push((name, keys));
        } else if let Some((name, visitors)) =
            line.strip_prefix('[').and_then(|it| it.split_once(']'))
        {
            let (visitors, rows) = (visitors.split_whitespace().collect(), Vec::new());
            kinds.push(Kind {
                name,
                visitors,
                rows,
            });
        } else if let (Some(kind), [weight, script, keys, args]) = (
            kinds.last_mut(),
            &*line.splitn(4, ';').map(str::trim).collect::<Vec<_>>(),
        ) {
            let keys = named
                .iter()
                .find(|(name, _)| name == keys)
                .map_or(*keys, |(_, keys)| keys);
            kind.rows
                .push((weight.parse().unwrap_or(1), script, keys, args));
        } else {
            panic!("no row: {line}");
        }
    }
    kinds
}

/// The kinds of locks.
pub(crate) fn locks() -> Vec<Kind> {
    kinds(include_str!("rows.txt"))
}

/// A request as it was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The name of the script; empty for a plain command, whose words are all in `args`.
    pub(crate) script: &'static str,
    pub(crate) keys: Vec<String>,
    /// The arguments without the request number, which comes last.
    pub(crate) args: Vec<String>,
}

/// A refusal of the server while a request runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    None,
    /// It is at `maxmemory`.
    Full,
    /// It has too few replicas to accept writes.
    Alone,
    /// The user may not run this command.
    Denied(&'static str),
}

/// One step of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Call(Call, Refusal),
    /// The request this many calls before is sent again, with its number and expiry.
    Again(usize),
    /// The clock advances by this many ms.
    Pass(i64),
    /// A client subscribes to a channel, or ends its subscription.
    Listen(String, bool),
    /// The server forgets its scripts.
    Forget,
    /// The slots of all keys begin or stop to migrate.
    Leaving(bool),
}

/// The names of locks; one has its hash tag in it.
pub(crate) const NAMES: [&str; 2] = ["orders", "{shop}:orders"];

const LEASES: [&str; 4] = ["1000", "3000", "30000", "60000"];
const TICKETS: [&str; 3] = ["c:1:20", "c:2:21", "c:3:22"];
/// Arguments that are invalid in most places.
const ODD: [&str; 6] = ["", "0", "-1", "abc", "1.5", "9223372036854775808"];

pub(crate) fn one<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())].clone()
}

pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{}", braced(name))
}

/// The client and the thread of a visitor.
fn thread(visitor: &str) -> Option<(&str, &str)> {
    let (client, rest) = visitor.split_once(':')?;
    Some((client, rest.split_once(':')?.0))
}

/// The name as part of other keys.
pub(crate) fn braced(name: &str) -> String {
    match name.contains('{') {
        true => name.to_owned(),
        false => format!("{{{name}}}"),
    }
}

impl Kind {
    /// Draws a call for a lock of this name.
    pub(crate) fn call(&self, rng: &mut Rng, name: &str) -> Call {
        let total: u32 = self.rows.iter().map(|row| row.0).sum();
        let mut drawn = rng.u32(..total);
        let row = self.rows.iter().find(|row| {
            let is_it = drawn < row.0;
            drawn = drawn.wrapping_sub(row.0);
            is_it
        });
        let (_, script, keys, args) = row.copied().unwrap_or(self.rows[0]);
        let side = |rng: &mut Rng, writes: bool| {
            let visitors = self.visitors.iter();
            let side: Vec<&str> = visitors
                .copied()
                .filter(|it| it.ends_with(":write") == writes)
                .collect();
            if side.is_empty() {
                "nobody".to_owned()
            } else {
                one(rng, &side).to_owned()
            }
        };
        let count = [0, 0, 1, 1, 2][rng.usize(..5)];
        let (reader, writer) = (side(rng, false), side(rng, true));
        let inside = self.visitors.iter();
        let inside = inside
            .copied()
            .find(|it| it.ends_with(":write") && thread(it) == thread(&reader));
        let mut pair = self.visitors.clone();
        rng.shuffle(&mut pair);
        let marks = [
            ("CH", channel(name)),
            ("#", braced(name)),
            ("$", name.to_owned()),
            ("%v", pair[0].to_owned()),
            ("%w", pair[1].to_owned()),
            ("%I", inside.unwrap_or_default().to_owned()),
            ("%R", reader),
            ("%W", writer),
            ("%T", one(rng, &TICKETS).to_owned()),
            ("%t", one(rng, &LEASES).to_owned()),
            ("%k", count.to_string()),
            ("%n", (count + 1).to_string()),
            ("%o", (count + 2).to_string()),
            ("%d", rng.u8(1..7).to_string()),
            (
                "%e",
                one(
                    rng,
                    &["@5000", "@5000", "@5000", "@5000", "@5000", "@-10000"],
                )
                .to_owned(),
            ),
            (
                "%r",
                one(
                    rng,
                    &["@id", "@id", "ffffffffffffffffffffffffffffffffffffffff"],
                )
                .to_owned(),
            ),
        ];
        let mut filled = |template: &str| -> Vec<String> {
            let words = template.split(' ').filter(|it| !it.is_empty());
            let word = |word: &str| {
                let alternatives: Vec<&str> = word.split('|').collect();
                let mut word = one(rng, &alternatives).replace("''", "");
                for (mark, text) in &marks {
                    word = word.replace(mark, text);
                }
                word
            };
            words.map(word).collect()
        };
        let (keys, args) = (filled(keys), filled(args));
        Call { script, keys, args }
    }

    /// Draws a call with an occasional invalid argument.
    pub(crate) fn odd_call(&self, rng: &mut Rng, name: &str) -> Call {
        let mut call = self.call(rng, name);
        // Redis adds floats with 64 bits of precision.
        let is_float = call.args.first().is_some_and(|it| it.ends_with("FLOAT"));
        if !call.args.is_empty() && !is_float && rng.u8(..30) == 0 {
            let at = rng.usize(..call.args.len());
            call.args[at] = one(rng, &ODD).to_owned();
        }
        call
    }
}

impl Call {
    /// The words of the request, whose script is called by its text or its hash.
    pub(crate) fn words(&self, now: i64, id: &str, number: i64, by_text: bool) -> Vec<Vec<u8>> {
        let filled = |word: &String| match word.strip_prefix('@') {
            Some("id") => id.as_bytes().to_vec(),
            Some(later) => match later.parse::<i64>() {
                Ok(later) => (now / 1000 + later).to_string().into_bytes(),
                Err(_) => word.clone().into_bytes(),
            },
            None => word.clone().into_bytes(),
        };
        let args = self.args.iter().map(filled);
        if self.script.is_empty() {
            return args.collect();
        }
        let script = scripts::named(self.script).map(|script| script.text);
        let script = script.unwrap_or_else(|| panic!("there is no script {}", self.script));
        let head = match by_text {
            true => ["EVAL".to_owned(), script.to_owned()],
            false => ["EVALSHA".to_owned(), Script::new(script).hash().to_owned()],
        };
        let head = head.into_iter().chain([self.keys.len().to_string()]);
        let head = head
            .chain(self.keys.iter().cloned())
            .map(String::into_bytes);
        let number = number.to_string().into_bytes();
        head.chain(args).chain([number]).collect()
    }
}

/// The steps, one per line.
pub(crate) fn listed(steps: &[Step]) -> String {
    let line = |step: &Step| match step {
        Step::Call(Call { script, keys, args }, trouble) => {
            format!("  {script} {keys:?} {args:?} ({trouble:?})\n")
        }
        step => format!("  {step:?}\n"),
    };
    steps.iter().map(line).collect()
}

/// Decodes a reply, from `*at` on.
pub(crate) fn decoded(bytes: &[u8], at: &mut usize) -> Reply {
    let end = bytes[*at..]
        .windows(2)
        .position(|it| it == b"\r\n")
        .map_or(bytes.len(), |it| *at + it);
    let line = String::from_utf8_lossy(&bytes[*at + 1..end]).into_owned();
    let sign = bytes[*at];
    *at = end + 2;
    match (sign, line.parse::<i64>()) {
        (b':', Ok(number)) => Reply::Int(number),
        (b'$' | b'*', Ok(..0)) => Reply::Nil,
        (b'$', Ok(length)) => {
            let text = &bytes[*at..*at + length as usize];
            *at += length as usize + 2;
            Reply::text(text)
        }
        (b'*', Ok(count)) => Reply::Array((0..count).map(|_| decoded(bytes, at)).collect()),
        (b'-', _) => Reply::Error(line),
        _ => Reply::Status(line.into()),
    }
}
