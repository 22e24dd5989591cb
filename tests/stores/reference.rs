//! The specified scripts behind the operations of a store.

use redlatch_spec::scripts::{self, Args};
use redlatch_spec::{Keyspace, Redis, Reply, Surroundings, Value, time_in};

use super::Op;
use super::answers::{ANOTHER_KIND, Answer};
use crate::ground::claim::{Claim, Kind, LockId, Queueing, VisitorId};
use crate::store::CountStep;

/// A server whose time passes only when it is told to.
pub(super) struct Reference {
    keys: Keyspace,
    /// In ms.
    now: i64,
    /// No two requests come at the same µs.
    requests: i64,
}

impl Default for Reference {
    fn default() -> Reference {
        Reference {
            keys: Keyspace::default(),
            now: 1_795_305_600_000,
            requests: 0,
        }
    }
}

impl Reference {
    pub(super) fn ask(&mut self, op: &Op) -> Answer {
        match op {
            Op::Acquire(claim) if claim.kind.rules().is_counter() => {
                let lease = claim.lease.as_millis().to_string();
                let args = [claim.visitor.as_str(), &lease, "", FAR];
                let reply = self.call(claim.kind, "acquire", &claim.name, &args);
                match parts(&reply) {
                    Some([Reply::Int(0), _, Reply::Int(left), _]) => Answer::Refused {
                        holder: Some(String::new()),
                        left: u64::try_from(*left).unwrap_or_default(),
                        memo: None,
                        pause: None,
                    },
                    Some([Reply::Int(5), _, Reply::Int(life)]) => Answer::For(life.unsigned_abs()),
                    _ => done(&reply),
                }
            }
            Op::Acquire(claim) => {
                let wanted = claim.count + 1;
                self.count(claim, "acquire", claim.count, wanted)
            }
            Op::Release(claim, 0) => {
                let reply = self.call(
                    claim.kind,
                    "release",
                    &claim.name,
                    &[claim.visitor.as_str(), ""],
                );
                match parts(&reply) {
                    Some([Reply::Int(0), holder]) => gone(holder),
                    _ => done(&reply),
                }
            }
            Op::Release(claim, keep) => self.count(claim, "release_level", claim.count, *keep),
            Op::HandOff(from, to) => {
                let lease = to.lease.as_millis().to_string();
                let mut args = vec![from.visitor.as_str(), to.visitor.as_str(), &lease, "", FAR];
                add_floor(from.kind, &mut args);
                let reply = self.call(from.kind, "transfer", &from.name, &args);
                match parts(&reply) {
                    Some([Reply::Int(2), _, holder]) => gone(holder),
                    _ => done(&reply),
                }
            }
            Op::Renew(claims) => Answer::Several(claims.iter().map(|it| self.renew(it)).collect()),
            Op::Resolve(claim) => {
                let mut args = vec![claim.visitor.as_str(), ""];
                if claim.kind == Kind::Fair {
                    args.push(PATIENCE);
                }
                let reply = self.call(claim.kind, "withdraw", &claim.name, &args);
                told(&reply, |_| Answer::Freed(true))
            }
            Op::ForceRelease(lock) => {
                let mut args = vec!["", FAR];
                if let Some(mode) = mode_of(lock.kind) {
                    args.insert(1, mode);
                }
                let reply = self.call(lock.kind, "force_release", &lock.name, &args);
                told(&reply, |parts| {
                    Answer::Freed(parts.first() == Some(&Reply::Int(1)))
                })
            }
            Op::Inspect(lock, visitor) => {
                let visitor = visitor.as_ref().map_or("", VisitorId::as_str);
                let mut args = vec![visitor];
                args.extend(mode_of(lock.kind));
                let reply = self.call(lock.kind, "inspect", &lock.name, &args);
                told(&reply, |parts| match parts {
                    [Reply::Int(exists), Reply::Bulk(count), Reply::Int(left)] => Answer::Holding {
                        is_locked: *exists == 1,
                        count: text(count).parse().unwrap_or_default(),
                        left: u64::try_from(*left).unwrap_or_default(),
                    },
                    other => Answer::Fault(format!("{other:?}")),
                })
            }
            Op::Count(counter, request, step, permit) => {
                self.count_step(counter, request, *step, permit.as_ref())
            }
            Op::Pass(_) => Answer::Done,
        }
    }

    /// Lets so many ms pass, or more, so that nothing ends near the present. Returns how many.
    pub(super) fn pass(&mut self, span: u64, margin: u64) -> u64 {
        let mut span = i64::try_from(span).unwrap();
        let margin = i64::try_from(margin).unwrap();
        let is_near = |end: i64, span: i64| (end - self.now - span).abs() < margin;
        let ends: Vec<i64> = self.keys.ends().chain(self.noted()).collect();
        while ends.iter().any(|end| is_near(*end, span)) {
            span += 2 * margin;
        }
        self.now += span;
        span.unsigned_abs()
    }

    /// Whether the time key of a hold of the visitor is there, be it that of one that was taken away.
    pub(super) fn has_time(&self, claim: &Claim) -> bool {
        let key = time_key_of(&claim.name, &claim.visitor).into_bytes();
        self.keys.get(&(0, key), self.now).is_some()
    }

    /// Whether the visitor is noted as one that waits to write.
    pub(super) fn is_noted(&self, claim: &Claim) -> bool {
        let notes = format!("redlatch_rw:{{{}}}", claim.name).into_bytes();
        let visitor = claim.visitor.as_str().as_bytes();
        match self.keys.get(&(0, notes), self.now).map(|it| &it.value) {
            Some(Value::Hash(fields)) => fields.iter().any(|(field, _)| field == visitor),
            _ => false,
        }
    }

    /// The times in the notes on those who wait.
    fn noted(&self) -> impl Iterator<Item = i64> {
        let hashes = self
            .keys
            .iter()
            .filter_map(|(_, entry)| match &entry.value {
                Value::Hash(fields) => Some(fields),
                _ => None,
            });
        let times = hashes.flatten().filter_map(|(_, text)| time_in(text));
        times.map(|(_, time)| time.abs())
    }

    /// Whether the visitor has the lock.
    pub(super) fn has(&self, claim: &Claim) -> bool {
        let key = match claim.kind {
            Kind::Permits => owners_of(&claim.name),
            Kind::PermitIds => ids_of(&claim.name),
            _ => claim.name.to_string(),
        };
        let key = (0, key.into_bytes());
        // The bytes of an id that is drawn are letters, all the same.
        let visitor = match claim.kind {
            Kind::PermitIds => return self.has_any(&key, &claim.visitor),
            _ => claim.visitor.as_str().as_bytes(),
        };
        match self.keys.get(&key, self.now).map(|entry| &entry.value) {
            Some(Value::Hash(fields)) => fields.iter().any(|(field, _)| field == visitor),
            Some(Value::String(token)) => token == visitor,
            Some(Value::Sorted(owners)) => owners.iter().any(|(owner, _)| owner == visitor),
            _ => false,
        }
    }

    /// Whether one of these ids is taken.
    fn has_any(&self, key: &(u32, Vec<u8>), ids: &VisitorId) -> bool {
        let taken = self.keys.get(key, self.now).map(|entry| &entry.value);
        let Some(Value::Sorted(taken)) = taken else {
            return false;
        };
        let letter = |id: &VisitorId| u8::from_str_radix(&id.as_str()[..2], 16).unwrap();
        ids.owners()
            .any(|id| taken.iter().any(|(it, _)| it[0] == letter(&id)))
    }

    fn count_step(
        &mut self,
        counter: &LockId,
        request: &VisitorId,
        step: CountStep,
        permit: Option<&VisitorId>,
    ) -> Answer {
        let word = match step {
            CountStep::Get => "get",
            CountStep::SetIfMissing(..) => "set",
            CountStep::CountDown => "down",
            CountStep::Delete => "delete",
            CountStep::Add(_) => "add",
            CountStep::AddIfThere(_) => "add_if_there",
            CountStep::Drain => "drain",
            CountStep::Forget => "forget",
            CountStep::Replace(_) => "replace",
            CountStep::Taken => "taken",
            CountStep::GiveBack => "give_back",
            CountStep::Lease => "lease",
            CountStep::SetLease(_) => "set_lease",
        };
        let (amount, once) = (step.amount().to_string(), format!("once:{request}"));
        let life = step.life().as_millis().to_string();
        let reply = match counter.kind {
            Kind::Latch => {
                let args = [word, &amount, "", "1000", FAR];
                self.run("latch/count", &[&counter.name, &once], &args)
            }
            Kind::PermitIds => {
                let permit = permit.map_or("", VisitorId::as_str);
                let args = [word, &amount, "", "1000", &life, permit, FAR];
                let keys = [&counter.name, &*once, &ids_of(&counter.name)];
                self.run("permit_ids/count", &keys, &args)
            }
            _ => {
                let args = [word, &amount, "", "1000", &life, "", FAR];
                let keys = [&counter.name, &*once, &owners_of(&counter.name)];
                self.run("permits/count", &keys, &args)
            }
        };
        told(&reply, |parts| match parts {
            [Reply::Int(1), _, Reply::Int(answer)] => Answer::Count(Some(*answer)),
            [Reply::Int(4), _] => Answer::Count(None),
            other => Answer::Fault(format!("{other:?}")),
        })
    }

    fn count(&mut self, claim: &Claim, script: &str, known: u32, wanted: u32) -> Answer {
        let lease = claim.lease.as_millis().to_string();
        let (known, wanted) = (known.to_string(), wanted.to_string());
        let mut args = vec![claim.visitor.as_str(), &lease, &known, &wanted, FAR];
        if script == "acquire" {
            add_floor(claim.kind, &mut args);
        }
        let inside = claim.inside.as_ref().map_or("", VisitorId::as_str);
        let asked = Asked::by(&claim.queueing);
        let asked = match (claim.kind, script) {
            (Kind::Read, "acquire") => vec![inside, &asked.memo, &asked.need],
            (Kind::Fair, "acquire") => vec!["", asked.wish, PATIENCE, "1"],
            (Kind::Write, "acquire") => vec![asked.waits],
            _ => Vec::new(),
        };
        args.splice(args.len() - 1..args.len() - 1, asked);
        let reply = self.call(claim.kind, script, &claim.name, &args);
        match parts(&reply) {
            Some(
                [
                    Reply::Int(0),
                    _,
                    Reply::Int(left),
                    Reply::Bulk(holder),
                    rest @ ..,
                ],
            ) => Answer::Refused {
                holder: Some(text(holder)),
                left: u64::try_from(*left).unwrap_or_default(),
                memo: match rest.first() {
                    Some(Reply::Bulk(memo)) if !memo.is_empty() => Some(text(memo)),
                    _ => None,
                },
                pause: match rest.get(1) {
                    Some(Reply::Int(pause)) => Some(pause.unsigned_abs()),
                    _ => None,
                },
            },
            Some([Reply::Int(2), _, holder]) => gone(holder),
            // Another count stands there: the store asks again with that one.
            Some([Reply::Int(4), _, Reply::Bulk(count)]) => {
                let known = text(count).parse().unwrap();
                self.count(claim, script, known, wanted.parse().unwrap())
            }
            _ => done(&reply),
        }
    }

    fn renew(&mut self, claim: &Claim) -> Answer {
        let lease = claim.lease.as_millis().to_string();
        let args = [claim.visitor.as_str(), &lease, FAR];
        let reply = self.call(claim.kind, "renew", &claim.name, &args);
        match parts(&reply) {
            Some([_, Reply::Int(1), _, Reply::Int(life @ 1..)]) => Answer::For(life.unsigned_abs()),
            Some([_, Reply::Int(1), _, holder]) => gone(holder),
            _ => done(&reply),
        }
    }

    fn call(&mut self, kind: Kind, script: &str, lock: &str, args: &[&str]) -> Reply {
        if kind == Kind::Permits {
            let script = format!("permits/{script}");
            return self.run(&script, &[lock, &owners_of(lock)], args);
        }
        if mode_of(kind).is_some() {
            let script = match (kind, script) {
                (Kind::Read, "acquire") => "rw/read".to_owned(),
                (_, "acquire") => "rw/write".to_owned(),
                (_, script) => format!("rw/{script}"),
            };
            // The visitor comes first where there is one.
            let visitor = args.first().copied().unwrap_or_default();
            let own = time_key(lock, visitor);
            let notes = format!("redlatch_rw:{{{lock}}}");
            if script == "rw/force_release" {
                return self.run(&script, &[lock, &notes], args);
            }
            return self.run(&script, &[lock, &own, &notes], args);
        }
        if kind == Kind::PermitIds {
            let script = format!("permit_ids/{script}");
            return self.run(&script, &[lock, &ids_of(lock)], args);
        }
        let script = match (kind, script) {
            (Kind::Token, "release_level") | (Kind::Reentrant, _) => script.to_owned(),
            (Kind::Token, script) => format!("token/{script}"),
            (Kind::Fenced, "acquire" | "transfer") => format!("fenced/{script}"),
            (Kind::Fair, "acquire" | "release" | "withdraw" | "force_release") => {
                let keys = [
                    "redisson_lock_queue",
                    "redisson_lock_timeout",
                    "redlatch_fair",
                ];
                let [queue, times, absent] = keys.map(|key| format!("{key}:{{{lock}}}"));
                return self.run(
                    &format!("fair/{script}"),
                    &[lock, &queue, &times, &absent],
                    args,
                );
            }
            (Kind::Fenced | Kind::Fair, _) => script.to_owned(),
            (Kind::Latch | Kind::Permits | Kind::PermitIds | Kind::Read | Kind::Write, _) => {
                panic!("it has no such script")
            }
        };
        let counter = format!("redisson_lock_token:{{{lock}}}");
        let mut keys = vec![lock];
        if script.starts_with("fenced/") {
            keys.push(&counter);
        }
        self.run(&script, &keys, args)
    }

    fn run(&mut self, script: &str, keys: &[&str], args: &[&str]) -> Reply {
        let mut given: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        given.push(b"1");
        let (nobody, nothing) = Default::default();
        self.requests += 1;
        let around = Surroundings {
            database: 0,
            now: self.now * 1000 + self.requests,
            replication: "",
            subscriptions: &nobody,
            refuses_writes: None,
            is_full: false,
            denied: &nothing,
            is_leaving: false,
        };
        let mut redis = Redis::new(&mut self.keys, around);
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let spec = scripts::named(script).unwrap().spec;
        let reply = spec(&mut redis, Args(&keys), Args(&given));
        reply.unwrap_or_else(Reply::from)
    }
}

/// What a script is told of how a visitor stands among others that wait.
struct Asked {
    memo: String,
    need: String,
    wish: &'static str,
    waits: &'static str,
}

impl Asked {
    fn by(queueing: &Queueing) -> Asked {
        let of = |memo: &str, need: u128, wish, waits| Asked {
            memo: memo.to_owned(),
            need: need.to_string(),
            wish,
            waits,
        };
        match queueing {
            Queueing::Barges => of("*", 0, "never", "-2"),
            Queueing::Tries => of("", 0, "never", "-1"),
            Queueing::Waits {
                need,
                memo,
                takes_place,
                had_place,
            } => of(
                memo.as_deref().unwrap_or_default(),
                need.as_millis(),
                if *had_place { "rejoin" } else { "join" },
                if *takes_place { "3000" } else { "0" },
            ),
        }
    }
}

/// Puts the smallest token that may be drawn before the server time, where a kind has tokens.
fn add_floor(kind: Kind, args: &mut Vec<&str>) {
    if kind.rules().is_fenced {
        args.insert(args.len() - 1, "0");
    }
}

/// The mode that a side of a read-write lock stands for.
fn mode_of(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Read => Some("read"),
        Kind::Write => Some("write"),
        _ => None,
    }
}

/// The time key of a hold of a read-write lock.
pub(super) fn time_key_of(name: &str, visitor: &VisitorId) -> String {
    time_key(name, visitor.as_str())
}

fn time_key(name: &str, visitor: &str) -> String {
    format!("{{{name}}}:{visitor}:rwlock_timeout:1")
}

/// The key of the owners of a semaphore.
pub(super) fn owners_of(name: &str) -> String {
    format!("redlatch_sc:{{{name}}}")
}

/// The key of the ids of permits.
pub(super) fn ids_of(name: &str) -> String {
    format!("{{{name}}}:timeout")
}

/// For how long a waiter counts as alive behind the one before it, in ms.
const PATIENCE: &str = "86400000";

/// A server time that does not come.
const FAR: &str = "9999999999999";

/// The parts of an answer that has several.
fn parts(reply: &Reply) -> Option<&[Reply]> {
    match reply {
        Reply::Array(numbered) => match numbered.as_slice() {
            [Reply::Int(_), Reply::Array(parts)] => Some(parts),
            _ => None,
        },
        _ => None,
    }
}

fn done(reply: &Reply) -> Answer {
    match reply {
        Reply::Error(_) => told(reply, |_| Answer::Done),
        _ => Answer::Done,
    }
}

fn told(reply: &Reply, read: impl FnOnce(&[Reply]) -> Answer) -> Answer {
    match reply {
        Reply::Error(text) if text.contains("WRONGTYPE") => Answer::WrongType,
        Reply::Error(text) => Answer::Fault(text.clone()),
        reply => read(parts(reply).unwrap_or_default()),
    }
}

fn gone(holder: &Reply) -> Answer {
    match holder {
        Reply::Bulk(holder) if holder.is_empty() => Answer::Gone(None),
        Reply::Bulk(holder) if holder.starts_with(b"a key of another") => {
            Answer::Gone(Some(ANOTHER_KIND.to_owned()))
        }
        Reply::Bulk(holder) => Answer::Gone(Some(text(holder))),
        _ => Answer::Gone(None),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
