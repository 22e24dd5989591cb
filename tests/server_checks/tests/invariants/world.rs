//! One server, and the knowledge about one lock on it.

use std::collections::BTreeSet;

use redlatch_server::{Config, Server};
use redlatch_server_checks::{Engine, Keyspace, Reply, slot};

use super::calls::{Call, Refusal, Step};
use super::ledger::{Holds, entry, fields, taken_key};
use super::queue::{Queue, follow_condition};
use super::{decoded, locks, permits};

/// 2026-11-22, in microseconds since 1970.
pub(crate) const NOW: i64 = 1_795_305_600_000_000;

/// The reply to a script, without the number of the request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A number that reports success.
    Done,
    Parts(Vec<Reply>),
    Error,
}

impl Answer {
    fn read(reply: Reply, number: i64) -> Result<Answer, String> {
        match reply {
            Reply::Int(packed) if packed >> 22 == number => Ok(Answer::Done),
            Reply::Array(parts) if parts.first() == Some(&Reply::Int(number)) => {
                Ok(Answer::Parts(match &parts[1..] {
                    [Reply::Array(parts)] => parts.clone(),
                    others => others.to_vec(),
                }))
            }
            Reply::Error(_) => Ok(Answer::Error),
            reply => Err(format!("a reply to another request: {reply:?}")),
        }
    }

    pub(crate) fn parts(&self) -> Option<&[Reply]> {
        match self {
            Answer::Parts(parts) => Some(parts),
            _ => None,
        }
    }

    pub(crate) fn int(&self, at: usize) -> Option<i64> {
        match self.parts()?.get(at)? {
            Reply::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The code of the outcome.
    pub(crate) fn code(&self) -> Option<i64> {
        self.int(0)
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Answer::Error)
    }
}

/// One request and its effects.
pub(crate) struct Seen<'s> {
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) call: &'s Call,
    pub(crate) answer: &'s Answer,
    pub(crate) before: &'s Keyspace,
    pub(crate) after: &'s Keyspace,
    /// The server's time, ms.
    pub(crate) now: i64,
    /// Whether it came after its expiry.
    pub(crate) is_late: bool,
    /// Whether the server refused nothing.
    pub(crate) is_calm: bool,
    server: &'s Server,
    published: &'s [Vec<u8>],
}

impl Seen<'_> {
    /// Whether a message was published to the channel.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        self.published.iter().any(|it| *it == channel.as_bytes())
    }

    pub(crate) fn listeners(&self, channel: &str) -> usize {
        self.server.listeners(channel)
    }
}

#[derive(Clone)]
struct Sent {
    call: Call,
    words: [Vec<Vec<u8>>; 2],
    number: i64,
    expiry: Option<i64>,
    /// When it was last sent, if nothing has happened since.
    at: Option<i64>,
}

pub(crate) struct World {
    kind: &'static str,
    name: &'static str,
    server: Server,
    now: i64,
    sent: Vec<Sent>,
    holds: Holds,
    last_token: i64,
    count: Option<i64>,
    queue: Queue,
    was_set_back: bool,
    was_troubled: bool,
    is_leaving: bool,
    /// How many requests ran.
    pub(crate) calls: u64,
}

impl World {
    pub(crate) fn new(kind: &'static str, name: &'static str, engine: &Engine) -> World {
        let config = Config {
            collects: true,
            ..Config::default()
        };
        let mut server = Server::with_engine(config, NOW, engine.clone());
        server.connect(1);
        server.connect(2);
        World {
            kind,
            name,
            server,
            now: NOW,
            sent: Vec::new(),
            holds: Holds::new(),
            last_token: 0,
            count: None,
            queue: Queue::default(),
            was_set_back: false,
            was_troubled: false,
            is_leaving: false,
            calls: 0,
        }
    }

    /// Takes a step, and checks all invariants.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Call(call, trouble) => {
                let number = self.sent.len() as i64 + 1;
                let id = self.replication_id();
                let words = [false, true].map(|by_text| call.words(self.now, &id, number, by_text));
                let later = call
                    .args
                    .iter()
                    .find_map(|it| it.strip_prefix('@')?.parse::<i64>().ok());
                self.sent.push(Sent {
                    call: call.clone(),
                    words,
                    number,
                    expiry: later.map(|later| self.now / 1000 + later),
                    at: None,
                });
                self.call(self.sent.len() - 1, trouble)?;
            }
            Step::Again(back) => {
                if let Some(at) = self.sent.len().checked_sub(*back) {
                    self.call(at, &Refusal::None)?;
                }
            }
            Step::Pass(ms) => {
                self.now += ms * 1000;
                if *ms < 0 {
                    self.queue.set_back(self.now / 1000);
                    self.was_set_back = true;
                }
            }
            Step::Listen(channel, on) => {
                self.queue.disturb();
                self.sent.iter_mut().for_each(|it| it.at = None);
                let word = if *on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
                self.server.command(self.now, 2, &[word, channel]);
            }
            Step::Forget => self.server.forget_scripts(),
            Step::Leaving(is_leaving) => {
                let slots: BTreeSet<u16> = [slot(self.name.as_bytes())].into();
                self.server
                    .set_leaving(if *is_leaving { slots } else { BTreeSet::new() });
                self.is_leaving = *is_leaving;
                self.queue.disturb();
            }
        }
        Ok(())
    }

    fn replication_id(&mut self) -> String {
        let info = self.ask(&[b"INFO".to_vec(), b"replication".to_vec()]);
        let text = format!("{info:?}");
        let id = text
            .split_once("master_replid:")
            .map_or("", |(_, rest)| rest);
        id.chars().take(40).collect()
    }

    fn ask(&mut self, words: &[Vec<u8>]) -> Reply {
        let sent = self.server.command(self.now, 1, words);
        let own = sent.iter().find(|it| it.connection == 1);
        own.map_or(Reply::Nil, |it| decoded(&it.bytes, &mut 0))
    }

    fn call(&mut self, at: usize, trouble: &Refusal) -> Result<(), String> {
        let Sent {
            call,
            words,
            number,
            expiry,
            at: before_at,
        } = self.sent[at].clone();
        let now = self.now / 1000;
        self.server.keys().remove_expired(now);
        self.holds.retain(|_, hold| hold.latest >= now);
        // An ended hold stays ended when the clock is set back.
        for hold in self.holds.values_mut().filter(|it| !it.is_valid(now)) {
            hold.end = i64::MIN;
        }
        let before = self.server.all_keys().clone();
        if self.is_used_up(&call, &before) {
            return Ok(());
        }
        self.server.set_full(*trouble == Refusal::Full);
        self.server.refuse_writes(
            (*trouble == Refusal::Alone).then_some("NOREPLICAS Not enough good replicas to write."),
        );
        match trouble {
            Refusal::Denied(command) => self.server.deny(&[command]),
            _ => self.server.deny(&[]),
        }
        let mut reply = self.ask(&words[0]);
        if format!("{reply:?}").starts_with("-NOSCRIPT") {
            reply = self.ask(&words[1]);
        }
        self.calls += 1;
        self.server.keys().remove_expired(now);
        let after = self.server.all_keys().clone();
        let answer = Answer::read(reply, number)?;
        let published = self
            .server
            .take_effects()
            .published
            .into_iter()
            .map(|it| it.channel);
        let published: Vec<_> = published.collect();
        let gives_up =
            call.script == "condition/look" && matches!(&*call.args[1], "leave" | "drop" | "pass");
        let is_late = expiry.is_some_and(|expiry| now > expiry) && !gives_up;
        let is_calm = *trouble == Refusal::None && !self.is_leaving;
        self.was_troubled |= !is_calm;
        if !is_calm {
            self.queue.disturb();
        }
        if is_late && before != after {
            return Err("a request that came after its expiry changed something".to_owned());
        }
        let is_copy = before_at == Some(self.now) && is_calm;
        if is_copy
            && !self.repeats(&call, &before)
            && without_notes(&before) != without_notes(&after)
        {
            return Err("a copy of a request changed something".to_owned());
        }
        if *trouble == Refusal::Alone && before != after {
            return Err("a server that takes no writes was changed".to_owned());
        }
        let seen = Seen {
            kind: self.kind,
            name: self.name,
            call: &call,
            answer: &answer,
            before: &before,
            after: &after,
            now,
            is_late,
            is_calm,
            server: &self.server,
            published: &published,
        };
        locks::follow(&seen, &mut self.holds, &mut self.last_token)?;
        match self.kind {
            "permits" | "permit ids" => permits::follow(&seen, &mut self.count, &mut self.holds)?,
            "latch" => permits::follow_latch(&seen, &mut self.count)?,
            "fair" => self.queue.follow(&seen)?,
            "condition" => follow_condition(&seen, !self.was_set_back)?,
            _ => {}
        }
        locks::are_whole(self.kind, self.name, &self.holds, &after, now)?;
        self.ends(&after)?;
        for sent in &mut self.sent {
            sent.at = None;
        }
        self.sent[at].at = Some(self.now).filter(|_| is_calm);
        Ok(())
    }

    /// Whether a repeated request has a second effect, as documented.
    fn repeats(&self, call: &Call, keys: &Keyspace) -> bool {
        match call.script {
            "fenced/transfer" | "condition/signal" | "guarded" => true,
            "condition/look" => call.args[1] == "pass",
            // The first copy returns to the front, where the second one finds a free lock.
            "fair/acquire" => call.args[5] == "rejoin" && entry(keys, self.name).is_none(),
            // Of two requests in one ms the second one may get the free lock when it returns.
            "read_write/acquire" => entry(keys, self.name).is_none(),
            _ => false,
        }
    }

    /// Whether a request begins a hold of a read-write lock for a visitor with leftovers. No client sends that: each
    /// hold has a new visitor.
    fn is_used_up(&self, call: &Call, keys: &Keyspace) -> bool {
        call.script == "read_write/acquire" && call.args[2] == "0" && {
            let visitor = &call.args[0];
            let is_left = fields(keys, self.name).contains_key(visitor)
                || entry(keys, &call.keys[1]).is_some();
            let hold = self.holds.get(visitor);
            is_left && !hold.is_some_and(|hold| hold.is_valid(self.now / 1000))
        }
    }

    /// Every key of the library has a TTL, except for the documented ones.
    fn ends(&self, keys: &Keyspace) -> Result<(), String> {
        let counts = matches!(self.kind, "permits" | "permit ids" | "latch");
        let taken = taken_key(self.kind, self.name);
        let of_counter = entry(keys, self.name).and_then(|it| it.expires);
        for ((_, key), entry) in keys.iter() {
            let key = String::from_utf8_lossy(key);
            let may_stay = key.starts_with("redisson_lock_token:")
                || key == "data"
                || counts && key == self.name;
            let is_taken = counts && key == taken;
            let may_last = may_stay || is_taken && (of_counter.is_none() || self.was_troubled);
            if entry.expires.is_none() && !may_last {
                return Err(format!("{key} has no time to live"));
            }
            if is_taken
                && !self.was_troubled
                && of_counter.is_some_and(|end| entry.expires > Some(end))
            {
                return Err(format!("{key} outlasts its semaphore"));
            }
        }
        Ok(())
    }
}

/// All keys except the notes of read-write locks, which count refusals.
fn without_notes(
    keys: &Keyspace,
) -> Vec<(&redlatch_server_checks::Key, &redlatch_server_checks::Entry)> {
    keys.iter()
        .filter(|((_, key), _)| !key.starts_with(b"redlatch_rw:"))
        .collect()
}
