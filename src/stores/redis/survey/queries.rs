//! Queries about keys, and the locks that the replies describe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use crate::ground::claim::Kind;
use crate::ground::error::Result;
use crate::store::{Holder, LockInfo, LockKind, Parts};
use crate::stores::redis::errors::{ReplyClass, class_of};
use crate::stores::redis::keys::{COUNTER, Key};
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::replies::{item_at, text_of};
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{CallError, Connection};

/// The maximum number of reported holders of a read-write lock. Other locks have one holder.
const MOST_HOLDS: usize = 64;

/// `QUEUE` is the queue of a fair lock. `END` is the key whose TTL is the lease of a reader's hold.
const QUEUE: Key = Key::Prefix("redisson_lock_queue");
const END: Key = Key::BehindVisitor(":rwlock_timeout:1");

type Names = Vec<Arc<str>>;

/// `Err` is the text of an error reply.
type QueryReply = Result<Value, String>;

pub(super) struct KeyQueries<'a> {
    pub(super) node: &'a Node,
    connection: &'a mut Connection,
    deadline: Instant,
    /// Whether the queried names are known to be names of locks. If false, only a UUID is accepted as a client id.
    are_locks: bool,
}

/// `others` has rejected keys, each with the reason: no lock, or an error of the server.
#[derive(Default)]
pub(super) struct FoundLocks {
    pub(super) found: Vec<LockInfo>,
    pub(super) others: Vec<(Arc<str>, String)>,
}

impl FoundLocks {
    pub(super) fn extend(&mut self, more: FoundLocks) {
        self.found.extend(more.found);
        self.others.extend(more.others);
    }

    /// If the server refused only this key, returns `None` and adds the key to `others`.
    pub(super) fn usable(
        &mut self,
        name: &Arc<str>,
        answer: QueryReply,
    ) -> Result<Option<Value>, CallError> {
        match answer {
            Ok(value) => Ok(Some(value)),
            // A missing right to a command, such as `hkeys`, concerns all keys, not only this key.
            Err(text)
                if matches!(class_of(&text), ReplyClass::Permission)
                    && !(text.contains("access") && text.contains("key")) =>
            {
                Err(CallError::Server(text))
            }
            Err(text) => {
                self.others.push((Arc::clone(name), text));
                Ok(None)
            }
        }
    }

    pub(super) fn next(
        &mut self,
        name: &Arc<str>,
        answers: &mut impl Iterator<Item = QueryReply>,
    ) -> Result<Option<Value>, CallError> {
        let answer = answers.next();
        answer.map_or(Ok(None), |answer| self.usable(name, answer))
    }
}

struct Hash {
    name: Arc<str>,
    /// The held side of a read-write lock. `None` for other locks.
    side: Option<LockKind>,
    holders: Vec<Holder>,
}

impl<'a> KeyQueries<'a> {
    pub(super) fn new(
        node: &'a Node,
        connection: &'a mut Connection,
        are_locks: bool,
        deadline: Instant,
    ) -> KeyQueries<'a> {
        KeyQueries {
            node,
            connection,
            deadline,
            are_locks,
        }
    }

    pub(super) fn ask(&mut self, queries: &[Cmd]) -> Result<Vec<QueryReply>, CallError> {
        let deadline = self.deadline;
        let mut answers = Vec::with_capacity(queries.len());
        let kept = |reply| match reply {
            Ok(value) => Ok(Ok(value)),
            Err(CallError::Server(text)) => Ok(Err(text)),
            Err(fault) => Err(fault),
        };
        if self.connection.is_asking {
            // ASKING applies only to the next command, so the queries are sent one by one.
            for query in queries {
                let packed = query.get_packed_command();
                answers.push(kept(self.connection.call(&packed, deadline))?);
            }
            return Ok(answers);
        }
        let mut packed = Vec::new();
        for query in queries {
            query.write_packed_command(&mut packed);
        }
        if !packed.is_empty() {
            self.connection.ask(&packed, deadline)?;
        }
        for _ in queries {
            answers.push(kept(self.connection.receive(deadline))?);
        }
        Ok(answers)
    }

    /// Returns the keys whose reply was no error, with the replies.
    pub(super) fn query_each(
        &mut self,
        command: &Cmd,
        names: Names,
        field: Option<&str>,
        looked: &mut FoundLocks,
    ) -> Result<Vec<(Arc<str>, Value)>, CallError> {
        let query = |name: &Arc<str>| about(command, name).arg(field).clone();
        let queries: Vec<Cmd> = names.iter().map(query).collect();
        let mut replies = Vec::with_capacity(names.len());
        for (name, reply) in names.into_iter().zip(self.ask(&queries)?) {
            if let Some(value) = looked.usable(&name, reply)? {
                replies.push((name, value));
            }
        }
        Ok(replies)
    }

    pub(super) fn sorted(
        &mut self,
        names: Names,
        looked: &mut FoundLocks,
    ) -> Result<[Names; 2], CallError> {
        let (mut hashes, mut strings) = (Vec::new(), Vec::new());
        for (name, kind) in self.query_each(&redis::cmd("TYPE"), names, None, looked)? {
            match &*text_of(&kind) {
                "hash" => hashes.push(name),
                "string" => strings.push(name),
                _ => {}
            }
        }
        Ok([hashes, strings])
    }

    /// A hash may have large values. So the values are read only after a check that the hash can be a lock.
    pub(super) fn hashes(&mut self, names: Names) -> Result<FoundLocks, CallError> {
        let mut looked = FoundLocks::default();
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for (name, size) in self.query_each(&redis::cmd("HLEN"), names, None, &mut looked)? {
            match number_of(&size) {
                0 => {}
                // A read-write lock has one field more, for the mode.
                size if size <= MOST_HOLDS as i64 + 1 => small.push(name),
                _ => large.push(name),
            }
        }
        let (mut candidates, are_locks) = (Vec::new(), self.are_locks);
        let is_hold = |field: &Value| is_of_a_lock(&text_of(field), are_locks);
        for (name, fields) in self.query_each(&redis::cmd("HKEYS"), small, None, &mut looked)? {
            match fields {
                Value::Array(fields) if fields.is_empty() => {}
                Value::Array(fields) if fields.iter().all(is_hold) => candidates.push(name),
                _ => looked.others.push((name, super::NO_LOCK.to_owned())),
            }
        }
        let mode = Some("mode");
        for (name, mode) in self.query_each(&redis::cmd("HGET"), large, mode, &mut looked)? {
            match &*text_of(&mode) {
                "read" | "write" => candidates.push(name),
                _ => looked.others.push((name, super::NO_LOCK.to_owned())),
            }
        }
        let mut hashes = Vec::new();
        let all = redis::cmd("HGETALL");
        for (name, pairs) in self.query_each(&all, candidates, None, &mut looked)? {
            match read(&name, &pairs, are_locks) {
                Some(hash) => hashes.push(hash),
                None if item_at(&pairs, 0).is_none() => {}
                None => looked.others.push((name, super::NO_LOCK.to_owned())),
            }
        }
        self.complete(hashes, &mut looked)?;
        Ok(looked)
    }

    fn complete(&mut self, hashes: Vec<Hash>, looked: &mut FoundLocks) -> Result<(), CallError> {
        let (is_sharded, mut listeners) = (self.node.pool.is_sharded, redis::cmd("PUBSUB"));
        listeners.arg(if is_sharded { "SHARDNUMSUB" } else { "NUMSUB" });
        let mut queries = Vec::new();
        for hash in &hashes {
            let name = &hash.name;
            let kind = hash.side.map_or(Kind::Reentrant, |_| Kind::Read);
            queries.push(about(&redis::cmd("PTTL"), name));
            queries.push(about(&listeners, &Layout::of(kind).channel.of(name)));
            if hash.side.is_some() {
                queries.extend(hash.holders.iter().map(|holder| {
                    let end = END.pieces(name, &holder.visitor).concat();
                    about(&redis::cmd("PTTL"), &end)
                }));
            } else {
                queries.push(about(&redis::cmd("GET"), &COUNTER.of(name)));
                queries.push(about(&redis::cmd("EXISTS"), &QUEUE.of(name)));
            }
        }
        let mut answers = self.ask(&queries)?.into_iter();
        for hash in hashes {
            let life = looked.next(&hash.name, &mut answers)?;
            let life = life.as_ref().map_or(-2, number_of);
            let mut next = || answers.next().and_then(Result::ok);
            // The reply is the channel and the number of its subscribers.
            let listening = next().as_ref().and_then(|it| item_at(it, 1).map(number_of));
            let mut info = LockInfo {
                holders: hash.holders,
                expires: u64::try_from(life).ok().map(Duration::from_millis),
                listening: listening.and_then(|number| u32::try_from(number).ok()),
                ..LockInfo::free(&hash.name, LockKind::Reentrant, self.node.name())
            };
            if let Some(side) = hash.side {
                info.kind = side;
                // A reader's hold of this library has an `END` key. If the key is missing, the hold has expired.
                info.holders.retain(|holder| {
                    let is_gone = next().as_ref().map(number_of) == Some(-2);
                    let is_writer = holder.visitor.ends_with(":write");
                    !is_gone || is_writer || holder.hold.is_none()
                });
            } else {
                info.fence = next().as_ref().and_then(|it| text_of(it).parse().ok());
                let is_fair = next().as_ref().map(number_of) == Some(1);
                info.kind = match (is_fair, info.fence) {
                    (true, _) => LockKind::Fair,
                    (_, Some(_)) => LockKind::Fenced,
                    _ => LockKind::Reentrant,
                };
                if is_fair {
                    // Each waiter of a fair lock has its own channel, so the number of listeners is unknown.
                    info.listening = None;
                }
            }
            // -2 means that the lock expired between two queries.
            if life != -2 {
                looked.found.push(info);
            }
        }
        Ok(())
    }
}

pub(super) fn about(query: &Cmd, key: &str) -> Cmd {
    let mut query = query.clone();
    query.arg(key);
    query
}

pub(super) fn number_of(value: &Value) -> i64 {
    text_of(value).parse().unwrap_or(-2)
}

fn is_of_a_lock(field: &str, is_lock: bool) -> bool {
    let has_number = |(_, rest): (&str, &str)| rest.starts_with(|sign: char| sign.is_ascii_digit());
    let is_hold = |field: &str| is_lock && field.split_once(':').is_some_and(has_number);
    field == "mode" || Parts::of(field).is_some() || is_hold(field)
}

/// Returns `None` if the hash is not a lock.
fn read(name: &Arc<str>, pairs: &Value, is_lock: bool) -> Option<Hash> {
    let Value::Array(pairs) = pairs else {
        return None;
    };
    let (mut side, mut holders) = (None, Vec::new());
    for [field, value] in pairs.as_chunks().0 {
        let (field, value) = (text_of(field), text_of(value));
        match (&*field, &*value) {
            ("mode", "read") => side = Some(LockKind::Read),
            ("mode", "write") => side = Some(LockKind::Write),
            ("mode", _) => return None,
            _ if !is_of_a_lock(&field, is_lock) => return None,
            _ => holders.push(Holder::of_field(&field, value.parse().ok()?)),
        }
    }
    let is_lock = side.is_some() || holders.len() == 1;
    holders.truncate(MOST_HOLDS);
    is_lock.then(|| Hash {
        name: Arc::clone(name),
        side,
        holders,
    })
}

#[cfg(test)]
mod tests;
