//! Locks on Redis, in Redisson's format: on one server, or behind the topologies of `topology`.

mod eval;
mod calls;
mod keys;
mod node;
mod preflight;
mod renewals;
mod scripts;
mod server;
mod subscriber;
mod topology;
mod transport;
mod wait_replicas;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::Value;

use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Reason, Result};
use crate::ground::loss::{LossCause, printable};
use crate::ground::notify::{Notifier, Parker};
use crate::ground::sync::Mutex;
use crate::store::{
    Announcement, Delivery, Facts, Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal,
    Released, Renewal, Store, Subscription,
};
use crate::stores::permits::Permits;
use crate::stores::quorum::quarantine::{Identity, NodeHandle};

use calls::{ForceRelease, Inspect, Operation, Release, Resolve};
pub(crate) use keys::flaw;
use scripts::{Script, Scripts};
use server::Node;
use topology::Topology;
use topology::cluster::Cluster;
use topology::replicas::Replicas;
use topology::sentinel::Sentinels;
use transport::connection::{Address, CallError, Connection, EXHAUSTED, STRANGER, brief};
use transport::connector::Connector;
pub(crate) use transport::tls::TlsConfig;
use wait_replicas::ReplicaAck;
pub(crate) use wait_replicas::Replication;

/// How many holds one call of the renewal script renews, so that it keeps the server for less than a millisecond.
const RENEWED_AT_ONCE: usize = 100;

/// How many calls that withdraw something are written before the first reply is read.
const RESOLVED_AT_ONCE: usize = 100;

/// How often a request is sent anew because its clock or its count turned out to be wrong.
const CORRECTIONS: u32 = 3;

/// How often a request is sent anew because its connection was cut. A server that goes away cuts all of them, and not in
/// one instant.
const REPEATS: u32 = 2;

const RUNAWAY_CLOCK: &str =
    "TRYAGAIN the server's clock runs away from ours, or others write to this key";

/// The settings of a client that concern its store.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) pool_size: u32,
    pub(crate) tls_config: TlsConfig,
    /// The lease of locks under the watchdog.
    pub(crate) lease: Duration,
    /// As whom to talk to a master that sentinels name, and in which database.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: i64,
    /// Whether unlock messages in a cluster are sharded; `None` to find it out.
    pub(crate) sharded: Option<bool>,
    pub(crate) replication: Option<Replication>,
}

/// A user, empty for the default one, and its password.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The store of one client.
pub(crate) struct Redis {
    topology: Topology,
    scripts: Scripts,
    facts: Facts,
    replication: Option<Replication>,
    /// Copies of granted requests for tokens that may still come, with the holder. Before the hold ends they are harmless.
    late_copies: Mutex<Vec<(VisitorId, InDoubt)>>,
}

impl Redis {
    /// One server.
    pub(crate) fn open(url: &str, settings: &Settings) -> Result<Redis> {
        let address = Address::parse(url, settings.connect_timeout, &settings.tls_config)?;
        let database = address.database();
        Ok(Redis::on(Arc::new(address), database, settings))
    }

    /// A master and its replicas at fixed addresses.
    pub(crate) fn replicas(urls: &[String], settings: &Settings) -> Result<Redis> {
        let addresses = addresses(urls, "the addresses of a master and its replicas", settings)?;
        let database = addresses.first().map(Address::database);
        if addresses.iter().any(|it| Some(it.database()) != database) {
            let reason = "they name several databases; locks are in one";
            return Err(Error::config(
                "the addresses of a master and its replicas",
                reason,
            ));
        }
        let connector = Replicas::new(addresses);
        Ok(Redis::on(
            Arc::new(connector),
            database.unwrap_or_default(),
            settings,
        ))
    }

    /// The master that sentinels call `name`.
    pub(crate) fn sentinel(name: &str, urls: &[String], settings: &Settings) -> Result<Redis> {
        let invalid = |setting, reason: &str| Err(Error::config(setting, reason));
        if name.is_empty() {
            return invalid("the name of the master", "it is empty");
        }
        let setting = "the addresses of the sentinels";
        let sentinels = addresses(urls, setting, settings)?;
        if sentinels.iter().any(|it| it.database() != 0) {
            return invalid(setting, "a sentinel has no databases; use database()");
        }
        let Some(first) = sentinels.first().cloned() else {
            return invalid(setting, "there is none");
        };
        let credentials = first.of_data(settings.credentials.as_ref(), settings.database);
        let connector = Sentinels::new(name, sentinels, credentials, settings);
        Ok(Redis::on(Arc::new(connector), settings.database, settings))
    }

    fn on(connector: Arc<dyn Connector>, database: i64, settings: &Settings) -> Redis {
        let notifier = Arc::new(Notifier::default());
        let permits = Permits::new(settings.pool_size);
        let node = Node::new(&connector, permits, settings.command_timeout, &notifier);
        Redis::of(Topology::One(Arc::new(node)), database, &notifier, settings)
    }

    fn of(
        topology: Topology,
        database: i64,
        notifier: &Arc<Notifier>,
        settings: &Settings,
    ) -> Redis {
        let facts = Facts::of(database.to_string(), notifier);
        let announcements = Arc::clone(&facts.announcements);
        let announce = move || announcements.announce(Announcement::TakenOver);
        topology.on_takeover(Box::new(announce));
        Redis {
            topology,
            scripts: Scripts::new(),
            facts,
            replication: settings.replication,
            late_copies: Mutex::default(),
        }
    }

    /// The cluster that the servers at `urls` belong to.
    pub(crate) fn cluster(urls: &[String], settings: &Settings) -> Result<Redis> {
        let invalid = |reason: &str| Err(Error::config("the addresses of the cluster", reason));
        let seeds = addresses(urls, "the addresses of the cluster", settings)?;
        if seeds.iter().any(|it| it.database() != 0) {
            return invalid("a cluster has no databases but 0");
        }
        let Some(template) = seeds.first().cloned() else {
            return invalid("there is none");
        };
        let notifier = Arc::new(Notifier::default());
        let cluster = Cluster::new(template, seeds, settings, &notifier);
        let topology = Topology::Cluster(cluster);
        Ok(Redis::of(topology, 0, &notifier, settings))
    }

    /// Calls a script whose outcome does not change if it is called twice.
    fn call(
        &self,
        script: &Script,
        key: &str,
        args: &[&[u8]],
        deadline: Instant,
    ) -> Result<Value, CallError> {
        self.topology.with(key, deadline, |node, connection| {
            node.pool.eval(connection, script, &[key], args, deadline)
        })
    }

    /// Calls a script whose last argument is the server time after which it is refused; where a quorum asks, the
    /// replication id of the server that may vote comes behind that.
    fn call_timed(
        &self,
        script: &Script,
        key: &str,
        args: &[&[u8]],
        deadline: Instant,
        copies: &mut SentCopies<'_>,
    ) -> Result<Value, CallError> {
        self.topology.with(key, deadline, |node, connection| {
            // On the connection that the request takes, for another one may lead to another server.
            let voting = match copies.handle {
                Some(handle) => Some(node::vote_on(connection, handle, deadline)?),
                None => None,
            };
            let sent = BootInstant::now();
            copies.unanswered = copies.first_sent;
            copies.first_sent = Some(copies.unanswered.unwrap_or(sent));
            let expiry = connection.expiry(deadline, sent);
            copies.not_after = copies.not_after.max(expiry);
            let text = expiry.to_string();
            let args = match history_of(voting.as_deref()) {
                Some(history) => [args, &[text.as_bytes(), history]].concat(),
                None => [args, &[text.as_bytes()]].concat(),
            };
            let keys = [key];
            let reply = match copies.replication {
                None => node.pool.eval(connection, script, &keys, &args, deadline),
                Some(wanted) => node
                    .pool
                    .eval_replicated(connection, script, &keys, &args, wanted, deadline)
                    .map(|(reply, replica_ack)| {
                        copies.replica_ack = replica_ack;
                        reply
                    }),
            };
            if !matches!(reply, Ok(_) | Err(CallError::NoReply { .. })) {
                copies.last_did_not_run();
            }
            let reply = reply?;
            connection.note_time_in(&reply, expiry, sent);
            if is_another_history(&reply) {
                connection.forget_identity();
            }
            Ok(reply)
        })
    }

    /// Asks `script` to set the count of a hold from `known` to `wanted`, where `handle` has a vote, if it is given.
    fn set_count(
        &self,
        claim: &Claim,
        script: &Script,
        [known, wanted]: [u32; 2],
        handle: Option<&NodeHandle>,
        deadline: Instant,
    ) -> Result<CountReply, CallError> {
        let mut copies = SentCopies {
            handle,
            ..SentCopies::replicated(self.replication)
        };
        let step = self.set_count_by(claim, script, known, wanted, deadline, &mut copies);
        step.map(|step| self.replicated(step, &copies))
    }

    /// What is done and not replicated is not done.
    fn replicated(&self, step: CountReply, copies: &SentCopies<'_>) -> CountReply {
        match step {
            CountReply::Done { .. }
                if self.replication.is_some() && copies.replica_ack != ReplicaAck::Enough =>
            {
                CountReply::Unreplicated {
                    replica_ack: copies.replica_ack.clone(),
                    not_after: copies.not_after,
                }
            }
            step => step,
        }
    }

    fn set_count_by(
        &self,
        claim: &Claim,
        script: &Script,
        known: u32,
        wanted: u32,
        deadline: Instant,
        copies: &mut SentCopies<'_>,
    ) -> Result<CountReply, CallError> {
        let lease = claim.lease.as_millis().to_string();
        // A hash that stands there already may be of a copy or of anybody else of this client, a token cannot.
        let may_repeat = known > 0 || claim.kind == Kind::Token;
        let mut repeats = 0;
        let wanted = wanted.to_string();
        let mut known = known.to_string();
        let mut corrections = 0;
        loop {
            let args = [claim.visitor.as_str(), &lease, &known, &wanted].map(str::as_bytes);
            let reply = match self.call_timed(script, &claim.name, &args, deadline, copies) {
                // The request may have run, but to set the same count twice is to set it once. If it runs later than that,
                // the hold reckons with it.
                Err(CallError::NoReply {
                    timed_out: false, ..
                }) if may_repeat && repeats < REPEATS => {
                    repeats += 1;
                    continue;
                }
                Err(CallError::NoReply { reason, .. }) => {
                    let not_after = copies.not_after;
                    return Ok(CountReply::Unknown { reason, not_after });
                }
                // A copy that did not run says nothing of the one before.
                Err(fault) if copies.first_sent.is_some() => {
                    let (reason, not_after) = (reason_of(fault), copies.not_after);
                    return Ok(CountReply::Unknown { reason, not_after });
                }
                reply => reply?,
            };
            let refused = match parse_count_reply(&reply, copies.first_sent) {
                Ok(Heard::CountReply(CountReply::Refused { ttl, holder, .. })) => {
                    copies.last_did_not_run();
                    let not_after = copies.is_in_doubt().then_some(copies.not_after);
                    return Ok(CountReply::Refused {
                        ttl,
                        holder,
                        not_after,
                    });
                }
                Ok(Heard::CountReply(step)) => {
                    if claim.kind == Kind::Token && copies.unanswered.is_some() {
                        let late = claim.in_doubt(copies.not_after);
                        self.late_copies.lock().push((claim.visitor.clone(), late));
                    }
                    // It finds its own count until that has changed and come back, and sets its own lease then.
                    return Ok(match (step, copies.unanswered) {
                        (CountReply::Done { sent, .. }, Some(_)) => CountReply::Done {
                            sent,
                            late: Some(copies.not_after),
                        },
                        (step, _) => step,
                    });
                }
                // Our idea of the server's clock was off, or of which server it is; the reply has put it right.
                Ok(Heard::TooLate | Heard::AnotherHistory) => RUNAWAY_CLOCK.to_owned(),
                // An earlier request that got no answer has changed the count.
                Ok(Heard::Counts(count)) => {
                    known = count;
                    RUNAWAY_CLOCK.to_owned()
                }
                Err(fault) => {
                    corrections = CORRECTIONS;
                    reason_of(fault).into_words()
                }
            };
            copies.last_did_not_run();
            corrections += 1;
            if corrections > CORRECTIONS || Instant::now() >= deadline {
                if copies.is_in_doubt() {
                    let (reason, not_after) = (refused.into(), copies.not_after);
                    return Ok(CountReply::Unknown { reason, not_after });
                }
                return Err(CallError::Server(refused));
            }
        }
    }

    fn attempt_of(
        &self,
        claim: &Claim,
        step: Result<CountReply, CallError>,
    ) -> Result<Outcome<Granted, Refusal>> {
        match step {
            Ok(CountReply::Done { sent, late }) => Ok(Outcome::Done(Granted {
                sent,
                fence: None,
                leftover: late.map(|not_after| claim.in_doubt(not_after)),
                others_wait: false,
            })),
            Ok(CountReply::Unreplicated {
                replica_ack,
                not_after,
            }) => Ok(Outcome::unknown(
                claim.in_doubt(not_after),
                self.unreplicated(&claim.name, replica_ack),
            )),
            Ok(CountReply::Refused {
                ttl,
                holder,
                not_after,
            }) => Ok(Outcome::Refused(Refusal {
                retry_after: u64::try_from(ttl).ok().map(Duration::from_millis),
                holder: Some(holder.into()),
                leftover: not_after.map(|not_after| claim.in_doubt(not_after)),
                ..Refusal::default()
            })),
            Ok(CountReply::Gone(cause)) => Ok(Outcome::Gone(cause)),
            Ok(CountReply::Corrupt) => Err(self.corrupt(claim)),
            Ok(CountReply::Unknown { reason, not_after }) => Ok(Outcome::unknown(
                claim.in_doubt(not_after),
                self.unknown(&claim.name, Some(&claim.visitor), "acquire", reason),
            )),
            Err(fault) => Err(self.error(&claim.name, fault)),
        }
    }

    fn acquire_from(
        &self,
        claim: &Claim,
        script: &Script,
        known: u32,
        wanted: u32,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        let step = self.set_count(claim, script, [known, wanted], None, deadline);
        self.acquired(claim, [known, wanted], step, deadline)
    }

    /// Understands what came of an acquisition, and puts it back if too few replicas have it.
    fn acquired(
        &self,
        claim: &Claim,
        [known, wanted]: [u32; 2],
        step: Result<CountReply, CallError>,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        if let Ok(CountReply::Unreplicated { replica_ack, .. }) = &step
            && self.put_back(claim, known, wanted, deadline)
            && known == 0
        {
            return Err(self.unreplicated(&claim.name, replica_ack.clone()));
        }
        // A re-entry that was put back may have left a longer lease.
        self.attempt_of(claim, step)
    }

    /// Puts a hold back to the count `known` that it had before it was `wanted`. Returns whether that was done.
    fn put_back(&self, claim: &Claim, known: u32, wanted: u32, deadline: Instant) -> bool {
        if known == 0 {
            return Release::new(claim).once(self, deadline).is_ok();
        }
        let script = &self.scripts.release_level;
        let mut copies = SentCopies::default();
        let step = self.set_count_by(claim, script, wanted, known, deadline, &mut copies);
        matches!(step, Ok(CountReply::Done { .. }))
    }

    /// Why a failover may undo what the master has done.
    fn half_done(&self, replica_ack: &ReplicaAck) -> Reason {
        let flaw = self.replication.and_then(|wanted| replica_ack.flaw(wanted));
        format!("the master has done it, but {}", flaw.unwrap_or_default()).into()
    }

    /// Says that too few replicas have it.
    fn unreplicated(&self, lock: &Arc<str>, replica_ack: ReplicaAck) -> Error {
        let (lock, node) = (Arc::clone(lock), self.topology.name(lock));
        let wanted = self.replication.map_or(0, |wanted| wanted.replicas);
        let replica_ack = match replica_ack {
            ReplicaAck::Refused(reason) => {
                return match class_of(&reason) {
                    _ if reason.to_ascii_lowercase().contains("unknown command") => {
                        let reason =
                            format!("wait_replicas needs WAIT, and {node} has none: {reason}");
                        Error::Unsupported { lock, reason }
                    }
                    Class::Permission => Error::Permission {
                        lock,
                        node,
                        reason,
                        missing: vec!["+wait".to_owned()],
                    },
                    _ => Error::Unavailable { lock, node, reason },
                };
            }
            ReplicaAck::TooFew(count) => count,
            ReplicaAck::Enough | ReplicaAck::NoAnswer => 0,
        };
        Error::NotReplicated {
            lock,
            node,
            acknowledged: replica_ack,
            wanted,
        }
    }

    fn level_of(
        &self,
        claim: &Claim,
        step: Result<CountReply, CallError>,
    ) -> Result<Outcome<Released>> {
        match step {
            Ok(CountReply::Done { late, .. }) => Ok(Outcome::Done(Released {
                others_wait: false,
                leftover: late.map(|not_after| claim.in_doubt(not_after)),
            })),
            Ok(CountReply::Unreplicated {
                replica_ack,
                not_after,
            }) => Ok(Outcome::Unknown {
                in_doubt: claim.in_doubt(not_after),
                // The level is given back, so this must not read as if nothing was done.
                error: self.unknown(
                    &claim.name,
                    Some(&claim.visitor),
                    "release",
                    self.half_done(&replica_ack),
                ),
                successor: None,
            }),
            Ok(CountReply::Gone(cause)) => Ok(Outcome::Gone(cause)),
            Ok(CountReply::Refused { .. } | CountReply::Corrupt) => Err(self.corrupt(claim)),
            Ok(CountReply::Unknown { reason, not_after }) => Ok(Outcome::unknown(
                claim.in_doubt(not_after),
                self.unknown(&claim.name, Some(&claim.visitor), "release", reason),
            )),
            Err(fault) => Err(self.error(&claim.name, fault)),
        }
    }

    /// Puts a fault into words. An unknown outcome of a request that changes something is `unknown` instead.
    fn error(&self, lock: &Arc<str>, fault: CallError) -> Error {
        let lock = Arc::clone(lock);
        let node = self.topology.name(&lock);
        match fault {
            CallError::Exhausted(connections) => Error::Exhausted {
                lock,
                node,
                connections,
            },
            CallError::NotSent(reason) | CallError::NoReply { reason, .. } => {
                let (reason, source) = reason.into_parts();
                Error::Unreachable {
                    lock,
                    node,
                    reason,
                    source,
                }
            }
            CallError::Untrusted(reason) => {
                let (reason, source) = reason.into_parts();
                Error::Untrusted {
                    lock,
                    node,
                    reason,
                    source,
                }
            }
            CallError::NoVote(reason) => Error::Unavailable { lock, node, reason },
            CallError::Server(text) => {
                let reason = plain(&text);
                match class_of(&text) {
                    Class::Permission => {
                        let mut missing = self.missing_rights(self.scripts.kind_in(&text), &lock);
                        if missing.is_empty() {
                            missing.extend(named_in(&text, &lock));
                        }
                        Error::Permission {
                            lock,
                            node,
                            reason,
                            missing,
                        }
                    }
                    Class::WrongType => Error::WrongType { lock, node, reason },
                    Class::Passing => Error::Unavailable { lock, node, reason },
                    Class::Unknown => Error::Unexpected { lock, node, reason },
                }
            }
        }
    }

    /// The rights that the user lacks for this lock, as ACL rules; empty if that cannot be found out.
    fn missing_rights(&self, kind: Kind, lock: &str) -> Vec<String> {
        let channel = keys::channel(lock);
        let deadline = Instant::now() + Duration::from_millis(500);
        let kind = match kind {
            Kind::Reentrant => "",
            Kind::Token => "token",
        };
        let args = [channel.as_bytes(), kind.as_bytes()];
        let reply = self.call(&self.scripts.rights, lock, &args, deadline);
        missing_in(reply, lock)
    }

    /// Sends all of them to the node that has the first, then reads all replies: the server time where it was done. What
    /// was answered before a fault is in `replies` all the same.
    fn withdraw_at_once(
        &self,
        in_doubts: &[&mut InDoubt],
        deadline: Instant,
        replies: &mut Vec<Option<i64>>,
    ) -> Result<(), CallError> {
        let Some(first) = in_doubts.first() else {
            return Ok(());
        };
        self.topology
            .with(&first.name, deadline, |node, connection| {
                let by_text = node.pool.uses_text();
                let mut packed = Vec::new();
                let mut numbers = Vec::with_capacity(in_doubts.len());
                for in_doubt in in_doubts {
                    let resolve = Resolve::new(&**in_doubt);
                    let call = resolve.call(&self.scripts);
                    let script = match node.pool.is_sharded() {
                        true => call.script.sharded(),
                        false => call.script,
                    };
                    let number = connection.number();
                    numbers.push(number);
                    packed.extend(script.pack(by_text, &[call.lock], &call.args, number));
                }
                replies.clear();
                connection.send(&packed, deadline)?;
                for number in numbers {
                    replies.push(match connection.answer(number, deadline) {
                        Ok(Value::Int(now)) => Some(now),
                        Ok(_) | Err(CallError::Server(_)) => None,
                        Err(fault) => return Err(fault),
                    });
                }
                Ok(())
            })
    }

    /// What may still come of a hold that was given back.
    fn late_copy_of(&self, claim: &Claim) -> Option<InDoubt> {
        if claim.kind != Kind::Token {
            return None;
        }
        let mut late = self.late_copies.lock();
        late.retain(|(_, in_doubt)| !in_doubt.ends.has_passed());
        let at = late
            .iter()
            .position(|(holder, _)| *holder == claim.visitor)?;
        let (_, in_doubt) = late.swap_remove(at);
        Some(InDoubt {
            ends: claim.in_doubt(0).ends,
            ..in_doubt
        })
    }

    /// Notes that a hold goes on as another one.
    fn pass_late_copies_on(&self, from: &Claim, to: &Claim) {
        if from.kind == Kind::Token {
            for (holder, _) in &mut *self.late_copies.lock() {
                if *holder == from.visitor {
                    *holder = to.visitor.clone();
                }
            }
        }
    }

    /// Writes all batches, then reads all replies. What was answered before a fault is in `outcomes` all the same.
    fn renew_on(
        &self,
        node: &Node,
        connection: &mut Connection,
        claims: &[Claim],
        deadline: Instant,
        outcomes: &mut Vec<Renewal>,
    ) -> Result<(), CallError> {
        let sent = BootInstant::now();
        let chunks = chunks_of(claims, connection, deadline, sent);
        let by_text = node.pool.uses_text();
        if !by_text {
            let mut packed = Vec::new();
            for chunk in &chunks {
                chunk.pack(&self.scripts.renew, false, &mut packed);
            }
            connection.send(&packed, deadline)?;
        }
        self.read_renewals(node, connection, &chunks, sent, by_text, deadline, outcomes)
    }

    /// Asks for the replicas, if they count. What they do not have is not renewed.
    fn count_replicas(
        &self,
        connection: &mut Connection,
        deadline: Instant,
        outcomes: &mut [Renewal],
    ) {
        let Some(wanted) = self.replication else {
            return;
        };
        let answer = connection.call(&wanted.question(deadline), deadline);
        let replica_ack = ReplicaAck::of(answer, wanted);
        connection.is_spent |= replica_ack == ReplicaAck::NoAnswer;
        if let Some(flaw) = replica_ack.flaw(wanted) {
            discount(outcomes, &flaw);
        }
    }

    /// Reads the replies to all batches; with `by_text` they have yet to be sent.
    #[allow(clippy::too_many_arguments, reason = "it is one request, spelled out")]
    fn read_renewals(
        &self,
        node: &Node,
        connection: &mut Connection,
        chunks: &[RenewalBatch<'_>],
        sent: BootInstant,
        mut by_text: bool,
        deadline: Instant,
        outcomes: &mut Vec<Renewal>,
    ) -> Result<(), CallError> {
        let ask_by_text = |connection: &mut Connection, chunk: &RenewalBatch<'_>| {
            let mut packed = Vec::new();
            chunk.pack(&self.scripts.renew, true, &mut packed);
            connection.ask(&packed, deadline)?;
            connection.answer(chunk.number, deadline)
        };
        let mut alone = Vec::new();
        let mut late = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            let mut reply = if by_text {
                ask_by_text(connection, chunk)
            } else {
                connection.answer(chunk.number, deadline)
            };
            if let Err(CallError::Server(text)) = &reply {
                if transport::pool::lacks_evalsha(text) {
                    node.pool.note_evalsha_is_off();
                }
                if transport::pool::lacks_script(text) {
                    if !by_text {
                        // The replies to the chunks behind this one say the same, and have to be read first.
                        for _ in chunks.iter().skip(index + 1) {
                            if let Err(fault @ CallError::NoReply { .. }) =
                                connection.receive(deadline)
                            {
                                return Err(fault);
                            }
                        }
                        by_text = true;
                    }
                    reply = ask_by_text(connection, chunk);
                }
            }
            match reply {
                Ok(reply) => {
                    if let Some(now) = integer_at(&reply, 0) {
                        connection.note_time(now, sent);
                    }
                    if came_too_late(&reply) {
                        late.push((outcomes.len(), chunk.claims));
                    }
                    chunk.read(&reply, outcomes);
                }
                // It takes no writes any more, so the connection is of no use.
                Err(CallError::Server(text)) if text.starts_with("READONLY") => {
                    return Err(CallError::Server(text));
                }
                Err(CallError::Server(text)) => {
                    if chunk.claims.len() > 1 && may_be_for_one_key(&text) {
                        let begin = outcomes.len();
                        alone.extend(begin..begin + chunk.claims.len());
                    }
                    let unknown = Renewal::Unknown(plain(&text));
                    outcomes.resize(outcomes.len() + chunk.claims.len(), unknown);
                }
                Err(fault) => return Err(fault),
            }
        }
        self.renew_alone(connection, chunks, &alone, by_text, deadline, outcomes)?;
        self.renew_late(connection, &late, by_text, deadline, outcomes)
    }

    /// Renews once more what was refused as too late: the answers have told the server's time.
    fn renew_late(
        &self,
        connection: &mut Connection,
        late: &[(usize, &[Claim])],
        by_text: bool,
        deadline: Instant,
        outcomes: &mut [Renewal],
    ) -> Result<(), CallError> {
        if late.is_empty() || Instant::now() >= deadline {
            return Ok(());
        }
        let sent = BootInstant::now();
        let mut packed = Vec::new();
        let mut again = Vec::with_capacity(late.len());
        for (begin, claims) in late {
            for chunk in chunks_of(claims, connection, deadline, sent) {
                chunk.pack(&self.scripts.renew, by_text, &mut packed);
                again.push((*begin, chunk));
            }
        }
        connection.send(&packed, deadline)?;
        for (begin, chunk) in again {
            let mut renewed = Vec::with_capacity(chunk.claims.len());
            match connection.answer(chunk.number, deadline) {
                Ok(reply) => {
                    if let Some(now) = integer_at(&reply, 0) {
                        connection.note_time(now, sent);
                    }
                    chunk.read(&reply, &mut renewed);
                }
                Err(CallError::Server(_)) => continue,
                Err(fault) => return Err(fault),
            }
            for (place, outcome) in outcomes.iter_mut().skip(begin).zip(renewed) {
                *place = outcome;
            }
        }
        Ok(())
    }

    /// Renews one by one those that were refused together, because what was refused may be one of them. A key that is
    /// refused hides that the server lacks the script, so that may come to light only here.
    fn renew_alone(
        &self,
        connection: &mut Connection,
        chunks: &[RenewalBatch<'_>],
        alone: &[usize],
        by_text: bool,
        deadline: Instant,
        outcomes: &mut [Renewal],
    ) -> Result<(), CallError> {
        if alone.is_empty() {
            return Ok(());
        }
        let claims = chunks.iter().flat_map(|chunk| {
            let one_by_one = chunk.claims.chunks(1);
            one_by_one.map(|claims| (claims, chunk.not_after))
        });
        let claims: Vec<_> = claims.collect();
        let mut left = alone.to_vec();
        for by_text in [by_text, true] {
            let mut packed = Vec::new();
            let mut sent = Vec::with_capacity(left.len());
            for index in left.drain(..) {
                let Some(&(claims, not_after)) = claims.get(index) else {
                    continue;
                };
                let chunk = RenewalBatch {
                    claims,
                    not_after,
                    number: connection.number(),
                };
                chunk.pack(&self.scripts.renew, by_text, &mut packed);
                sent.push((index, chunk));
            }
            connection.send(&packed, deadline)?;
            for (index, chunk) in sent {
                let mut outcome = Vec::with_capacity(1);
                match connection.answer(chunk.number, deadline) {
                    Ok(reply) => chunk.read(&reply, &mut outcome),
                    Err(CallError::Server(text)) => {
                        if transport::pool::lacks_script(&text) && !by_text {
                            left.push(index);
                        }
                        outcome.push(Renewal::Unknown(plain(&text)));
                    }
                    Err(fault) => return Err(fault),
                }
                for (place, outcome) in outcomes.iter_mut().skip(index).zip(outcome) {
                    *place = outcome;
                }
            }
            if left.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// What is known of the copies of one request that were sent.
#[derive(Default)]
struct SentCopies<'v> {
    /// Who has to have a vote at the server that gets one.
    handle: Option<&'v NodeHandle>,
    /// Before the first one that may have run.
    first_sent: Option<BootInstant>,
    /// The same of those before the last one: they got no answer.
    unanswered: Option<BootInstant>,
    /// The server refuses all of them after this time of its clock.
    not_after: i64,
    /// How many replicas have to have it, and what they said of the last one.
    replication: Option<Replication>,
    replica_ack: ReplicaAck,
}

impl SentCopies<'_> {
    /// Notes that the last copy has not run, which says nothing of those before it.
    fn last_did_not_run(&mut self) {
        self.first_sent = self.unanswered;
    }

    /// Whether a copy may have run, or may yet run.
    fn is_in_doubt(&self) -> bool {
        self.first_sent.is_some()
    }

    fn replicated(replication: Option<Replication>) -> Self {
        SentCopies {
            replication,
            ..SentCopies::default()
        }
    }
}

/// What became of a request for a count.
enum CountReply {
    Done {
        sent: BootInstant,
        /// Until when an earlier copy may still run that got no answer.
        late: Option<i64>,
    },
    /// It was done, and too few replicas have it.
    Unreplicated {
        replica_ack: ReplicaAck,
        not_after: i64,
    },
    Refused {
        ttl: i64,
        holder: String,
        /// Until when an earlier copy may still be granted that got no answer.
        not_after: Option<i64>,
    },
    Gone(LossCause),
    Corrupt,
    Unknown {
        reason: Reason,
        not_after: i64,
    },
}

/// The answer to a request for a count.
enum Heard {
    CountReply(CountReply),
    TooLate,
    /// The keys may have become those of another server since it was asked who it is.
    AnotherHistory,
    /// This count stands there.
    Counts(String),
}

/// Understands the reply to a request for a count, whose first copy that may have run was sent at `sent`.
fn parse_count_reply(reply: &Value, sent: Option<BootInstant>) -> Result<Heard, CallError> {
    if let (Value::Int(_), Some(sent)) = (reply, sent) {
        return Ok(Heard::CountReply(CountReply::Done { sent, late: None }));
    }
    Ok(match (integer_at(reply, 0), item_at(reply, 2)) {
        (Some(0), Some(Value::Int(ttl))) => {
            let holder = item_at(reply, 3).map(text_of).unwrap_or_default();
            let holder = printable(&holder);
            Heard::CountReply(CountReply::Refused {
                ttl: *ttl,
                holder,
                not_after: None,
            })
        }
        (Some(2), Some(holder)) => Heard::CountReply(CountReply::Gone(cause_of(holder))),
        (Some(3), _) => Heard::TooLate,
        _ if is_another_history(reply) => Heard::AnotherHistory,
        (Some(4), Some(count)) => match text_of(count) {
            count if count.parse::<u32>().is_ok() => Heard::Counts(count),
            _ => Heard::CountReply(CountReply::Corrupt),
        },
        _ => {
            let reason = format!("unexpected reply {}", brief(reply));
            return Err(CallError::Server(reason));
        }
    })
}

/// Whether it was refused because the keys may have become those of another server.
fn is_another_history(reply: &Value) -> bool {
    integer_at(reply, 0) == Some(6)
}

/// What a script compares so that nobody votes for a server that has become another one.
fn history_of(voting: Option<&Identity>) -> Option<&[u8]> {
    let history = voting?.history.as_bytes();
    (!history.is_empty()).then_some(history)
}

/// Some holds that one call renews.
struct RenewalBatch<'a> {
    claims: &'a [Claim],
    not_after: i64,
    /// The number of the request, which its answer repeats.
    number: i64,
}

/// The requests that renew `claims` on this connection by `deadline`, sent at `sent`.
fn chunks_of<'a>(
    claims: &'a [Claim],
    connection: &mut Connection,
    deadline: Instant,
    sent: BootInstant,
) -> Vec<RenewalBatch<'a>> {
    let not_after = connection.expiry(deadline, sent);
    let chunks = claims.chunks(RENEWED_AT_ONCE).map(|claims| RenewalBatch {
        claims,
        not_after,
        number: connection.number(),
    });
    chunks.collect()
}

impl RenewalBatch<'_> {
    /// Makes the server know the script that renews, by the renewal of nothing, of which the connection owes the answer
    /// from then on. Returns whether it could be sent.
    fn makes_known(script: &Script, connection: &mut Connection, deadline: Instant) -> bool {
        let nothing = RenewalBatch {
            claims: &[],
            not_after: 0,
            number: connection.number(),
        };
        let mut packed = Vec::new();
        nothing.pack(script, true, &mut packed);
        connection.reply_due = Some(nothing.number);
        connection.ask(&packed, deadline).is_ok()
    }

    fn pack(&self, script: &Script, by_text: bool, into: &mut Vec<u8>) {
        let count = self.claims.len();
        let mut command = script.command(by_text, count, 2 + 2 * count);
        for claim in self.claims {
            command.arg(&*claim.name);
        }
        command.arg(self.not_after);
        for claim in self.claims {
            let lease = u64::try_from(claim.lease.as_millis()).unwrap_or(u64::MAX);
            command.arg(claim.visitor.as_str()).arg(lease);
        }
        command.arg(self.number);
        command.write_packed_command(into);
    }

    fn read(&self, reply: &Value, outcomes: &mut Vec<Renewal>) {
        let begin = outcomes.len();
        let (Value::Array(items), Some(1)) = (reply, integer_at(reply, 1)) else {
            let reason = "it reached the server too late".to_owned();
            outcomes.resize(begin + self.claims.len(), Renewal::Unknown(reason));
            return;
        };
        outcomes.resize(begin + self.claims.len(), Renewal::Renewed);
        for lost in items.get(2..).unwrap_or_default().chunks(2) {
            let [Value::Int(index), what] = lost else {
                continue;
            };
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            if let Some(outcome) = outcomes.get_mut(begin.saturating_add(index).saturating_sub(1)) {
                *outcome = Renewal::Lost(match what {
                    Value::Int(_) => LossCause::Gone,
                    holder => cause_of(holder),
                });
            }
        }
    }
}

/// Whether renewals were refused because our idea of the server's clock was off.
fn came_too_late(reply: &Value) -> bool {
    integer_at(reply, 1) == Some(0)
}

/// Takes renewals back that do not count.
fn discount(outcomes: &mut [Renewal], flaw: &str) {
    for outcome in outcomes {
        if *outcome == Renewal::Renewed {
            *outcome = Renewal::Unknown(flaw.to_owned());
        }
    }
}

/// The addresses of several servers that belong together.
fn addresses(urls: &[String], setting: &'static str, settings: &Settings) -> Result<Vec<Address>> {
    let mut addresses: Vec<Address> = Vec::with_capacity(urls.len());
    for url in urls {
        let address = Address::parse(url, settings.connect_timeout, &settings.tls_config)?;
        if !addresses.iter().any(|it| it.node == address.node) {
            addresses.push(address);
        }
    }
    let invalid = |reason: &str| Err(Error::config(setting, reason));
    let Some(first) = addresses.first() else {
        return invalid("there is none");
    };
    if addresses
        .iter()
        .any(|it| it.is_encrypted() != first.is_encrypted())
    {
        return invalid(
            "some are encrypted and some are not: the password would go over the latter as plain text; use rediss:// for \
             all, or for none",
        );
    }
    Ok(addresses)
}

impl Redis {
    /// Gives levels back, so that `keep` stay.
    fn release_level(
        &self,
        claim: &Claim,
        keep: u32,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let script = &self.scripts.release_level;
        let step = self.set_count(claim, script, [claim.count, keep], None, deadline);
        self.level_of(claim, step)
    }
}

impl Store for Redis {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        let script = &self.scripts.of(claim.kind).acquire;
        let wanted = claim.count.saturating_add(1);
        self.acquire_from(claim, script, claim.count, wanted, deadline)
    }

    fn release(&self, claim: &Claim, keep: u32, deadline: Instant) -> Result<Outcome<Released>> {
        match keep {
            0 => Release::new(claim).run(self, deadline),
            keep => self.release_level(claim, keep, deadline),
        }
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        if claims.is_empty() {
            return Vec::new();
        }
        let node = match &self.topology {
            Topology::One(node) => node,
            Topology::Cluster(cluster) => {
                return cluster.renew(&self.scripts.renew, claims, self.replication, deadline);
            }
        };
        let mut outcomes = Vec::with_capacity(claims.len());
        let talked = node.renewing(deadline, |connection| {
            self.renew_on(node, connection, claims, deadline, &mut outcomes)?;
            self.count_replicas(connection, deadline, &mut outcomes);
            Ok(())
        });
        if let Err(fault) = talked {
            let reason = reason_of(fault).into_words();
            if self.replication.is_some() {
                discount(&mut outcomes, &reason);
            }
            outcomes.resize(claims.len(), Renewal::Unknown(reason));
        }
        outcomes
    }

    fn hand_off(&self, from: &Claim, to: &Claim, deadline: Instant) -> Result<Outcome<Granted>> {
        let channel = keys::channel(&from.name);
        let script = &self.scripts.of(from.kind).transfer;
        let lease = to.lease.as_millis().to_string();
        let args = [from.visitor.as_str(), to.visitor.as_str(), &lease, &channel];
        let args = args.map(str::as_bytes);
        let now = Instant::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        let mut copies = SentCopies::replicated(self.replication);
        // A copy finds what the first one did, so a lost reply is asked for once more.
        let reply = match self.call_timed(script, &from.name, &args, half, &mut copies) {
            Err(CallError::NoReply { .. }) => {
                self.call_timed(script, &from.name, &args, deadline, &mut copies)
            }
            reply => reply,
        };
        let reply = match reply {
            // The answer has put our idea of the server's clock right.
            Ok(reply)
                if integer_at(&reply, 0) == Some(3)
                    && copies.unanswered.is_none()
                    && Instant::now() < deadline =>
            {
                copies.last_did_not_run();
                self.call_timed(script, &from.name, &args, deadline, &mut copies)
            }
            reply => reply,
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(fault) if copies.first_sent.is_none() => {
                return Err(self.error(&from.name, fault));
            }
            Err(fault) => return Ok(self.transfer_unknown(from, to, &copies, reason_of(fault))),
        };
        match (integer_at(&reply, 0), item_at(&reply, 2), copies.first_sent) {
            (Some(1), ..)
                if self.replication.is_some() && copies.replica_ack != ReplicaAck::Enough =>
            {
                self.transfer_back(from, to, &copies, deadline)
            }
            (Some(1), Some(Value::Int(listeners)), Some(sent)) => {
                self.pass_late_copies_on(from, to);
                Ok(Outcome::Done(Granted {
                    sent,
                    fence: None,
                    others_wait: *listeners < 0
                        || *listeners > i64::from(self.topology.is_live(&channel)),
                    leftover: None,
                }))
            }
            (Some(2), Some(holder), _) => Ok(Outcome::Gone(cause_of(holder))),
            (Some(3), ..) => {
                copies.last_did_not_run();
                if copies.is_in_doubt() {
                    return Ok(self.transfer_unknown(from, to, &copies, RUNAWAY_CLOCK.into()));
                }
                Err(self.error(&from.name, CallError::Server(RUNAWAY_CLOCK.to_owned())))
            }
            _ if copies.unanswered.is_some() => {
                Ok(self.transfer_unknown(from, to, &copies, brief(&reply).into()))
            }
            _ => Err(self.unexpected(&from.name, &reply)),
        }
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        let mut outcomes = Vec::with_capacity(in_doubts.len());
        let Some((first, rest)) = in_doubts.split_first_mut() else {
            return outcomes;
        };
        // It makes the script known, and finds out whether anybody answers.
        let outcome = Resolve::new(&**first).run(self, deadline);
        let is_silent = matches!(&outcome, Err(error) if error.may_pass());
        outcomes.push(outcome);
        if is_silent {
            return outcomes;
        }
        for batch in rest.chunks_mut(RESOLVED_AT_ONCE) {
            let mut replies = Vec::with_capacity(batch.len());
            let talked = self.withdraw_at_once(batch, deadline, &mut replies);
            for (in_doubt, reply) in batch.iter_mut().zip(replies) {
                outcomes.push(match reply {
                    Some(now) => Ok(now > in_doubt.not_after(0)),
                    // It is elsewhere, or the server does not know its script, or it says what is wrong.
                    None => Resolve::new(&**in_doubt).run(self, deadline),
                });
            }
            if let Err(fault) = talked {
                outcomes.push(Err(self.error(&first.name, fault)));
                break;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        outcomes
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        ForceRelease::new(lock).run(self, deadline)
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        Inspect { lock, visitor }.run(self, deadline)
    }

    fn subscribe(&self, lock: &LockId, source: u32, parker: &Arc<Parker>) -> Subscription {
        let LockId { kind, name } = lock;
        if *kind == Kind::Token {
            // Others with this layout publish nothing.
            return Subscription {
                registration: self.facts.notifier.join_as(source, name, parker),
                delivery: Delivery::Polling,
                jitter: Duration::ZERO,
                keep: None,
            };
        }
        let channel = keys::channel(name);
        let registration = self.facts.notifier.join_as(source, &channel, parker);
        let (keep, is_live) = self.topology.listen(&channel);
        Subscription {
            registration,
            delivery: if is_live {
                Delivery::Live
            } else {
                Delivery::Pending
            },
            jitter: Duration::ZERO,
            keep: Some(Box::new(keep)),
        }
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        preflight::check(self, deadline)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn prepare_renewal(&self, lock: &str, deadline: Instant) {
        let script = &self.scripts.renew;
        self.topology.get_ready_to_renew(script, lock, deadline);
    }

    fn close(&self) {
        self.topology.close();
    }

    fn node(&self, lock: Option<&str>) -> Arc<str> {
        match lock {
            Some(lock) => self.topology.name(lock),
            None => self.topology.whole_name(),
        }
    }
}

impl Redis {
    /// A hand-over of which a copy got no answer.
    fn transfer_unknown(
        &self,
        from: &Claim,
        to: &Claim,
        copies: &SentCopies<'_>,
        reason: Reason,
    ) -> Outcome<Granted> {
        Outcome::Unknown {
            in_doubt: from.in_doubt(0),
            successor: Some(Box::new(to.in_doubt(copies.not_after))),
            error: self.unknown(&from.name, Some(&from.visitor), "hand-over", reason),
        }
    }

    /// Gives a hold back to the one that it came from, because too few replicas have the other one.
    fn transfer_back(
        &self,
        from: &Claim,
        to: &Claim,
        copies: &SentCopies<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Granted>> {
        let channel = keys::channel(&from.name);
        let lease = to.lease.as_millis().to_string();
        let args = [to.visitor.as_str(), from.visitor.as_str(), &lease, &channel];
        let script = &self.scripts.of(from.kind).transfer;
        let args = args.map(str::as_bytes);
        let mut again = SentCopies::default();
        let reply = self.call_timed(script, &from.name, &args, deadline, &mut again);
        match &reply {
            Ok(reply) if integer_at(reply, 0) == Some(1) => {
                Err(self.unreplicated(&from.name, copies.replica_ack.clone()))
            }
            _ => {
                let reason = "too few replicas have it, and it could not be undone";
                let (lock, visitor) = (&from.name, Some(&from.visitor));
                Ok(Outcome::Unknown {
                    in_doubt: from.in_doubt(again.not_after),
                    successor: Some(Box::new(to.in_doubt(copies.not_after))),
                    error: self.unknown(lock, visitor, "hand-over", reason.into()),
                })
            }
        }
    }

    fn unknown(
        &self,
        lock: &Arc<str>,
        visitor: Option<&VisitorId>,
        operation: &'static str,
        reason: Reason,
    ) -> Error {
        let (reason, source) = reason.into_parts();
        Error::Unknown {
            lock: Arc::clone(lock),
            node: self.topology.name(lock),
            operation,
            visitor: visitor.cloned(),
            reason,
            source,
        }
    }

    fn unexpected(&self, lock: &Arc<str>, reply: &Value) -> Error {
        Error::Unexpected {
            lock: Arc::clone(lock),
            node: self.topology.name(lock),
            reason: brief(reply),
        }
    }

    fn corrupt(&self, claim: &Claim) -> Error {
        Error::CorruptCount {
            lock: Arc::clone(&claim.name),
            node: self.topology.name(&claim.name),
            visitor: claim.visitor.clone(),
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("node", &self.topology.whole_name())
            .finish_non_exhaustive()
    }
}

/// What kind of trouble an error reply means.
enum Class {
    /// The user, the password or a right.
    Permission,
    /// Something else is kept under the name.
    WrongType,
    /// It may be over in a while.
    Passing,
    Unknown,
}

fn class_of(text: &str) -> Class {
    const PERMISSION: [&str; 10] = [
        // Redis 7.2 and later, and Valkey, inside scripts.
        "ACL failure in script",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "DENIED",
        "can't run this command",
        "can't access at least one of the keys",
        "invalid password",
        "without any password configured",
        "nknown Redis command called from",
    ];
    const PASSING: [&str; 11] = [
        "LOADING",
        "BUSY",
        "READONLY",
        "MASTERDOWN",
        "NOREPLICAS",
        "MISCONF",
        "OOM",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "max number of clients",
        "UNBLOCKED",
    ];
    if text.starts_with(STRANGER) {
        // Its words are not those of a server that we know.
        Class::Unknown
    } else if text.contains("WRONGTYPE") {
        Class::WrongType
    } else if PERMISSION.iter().any(|sign| text.contains(sign))
        || text.to_ascii_lowercase().contains("unknown command")
    {
        Class::Permission
    } else if PASSING.iter().any(|sign| text.contains(sign)) {
        Class::Passing
    } else {
        Class::Unknown
    }
}

/// The rights that are missing by the reply of the script that tries them.
fn missing_in(reply: Result<Value, CallError>, lock: &str) -> Vec<String> {
    let refused = match reply {
        Ok(Value::Array(refused)) => refused,
        // Without TIME, EVAL or the key there is no way to try.
        Err(CallError::Server(text)) => return named_in(&text, lock).into_iter().collect(),
        _ => return Vec::new(),
    };
    let mut missing: Vec<String> = refused
        .iter()
        .map(|refused| match text_of(refused).as_str() {
            "~" => format!("~{lock}"),
            "&" => format!("&{}", keys::channel(lock)),
            command => format!("+{command}"),
        })
        .collect();
    missing.dedup();
    missing
}

/// What a refusal names, as an ACL rule.
fn named_in(text: &str, lock: &str) -> Option<String> {
    if let Some((_, rest)) = text.split_once("to run the '") {
        let (command, _) = rest.split_once('\'')?;
        return Some(format!("+{command}"));
    }
    (text.starts_with("NOPERM") && text.contains("key")).then(|| format!("~{lock}"))
}

/// Whether a refusal of several keys together may be for one of them.
fn may_be_for_one_key(text: &str) -> bool {
    match class_of(text) {
        Class::Passing => false,
        Class::Permission => text.contains("key"),
        Class::WrongType | Class::Unknown => true,
    }
}

fn reason_of(fault: CallError) -> Reason {
    match fault {
        CallError::NotSent(reason)
        | CallError::NoReply { reason, .. }
        | CallError::Untrusted(reason) => reason,
        CallError::Server(text) => plain(&text).into(),
        CallError::NoVote(text) => text.into(),
        CallError::Exhausted(_) => EXHAUSTED.to_owned().into(),
    }
}

/// What a server says, without what only those who write its scripts can use: their hashes and lines.
fn plain(text: &str) -> String {
    // Redis 7: `WRONGTYPE … script: 6b1b…, on @user_script:12.`
    let text = match text.rsplit_once(" script: ") {
        Some((text, script)) if script.starts_with(|sign: char| sign.is_ascii_hexdigit()) => text,
        _ => text,
    };
    // Redis 6: `ERR Error running script (call to f_6b1b…): @user_script:12: WRONGTYPE …`
    let text = match text.split_once("Error running script (call to f_") {
        Some((_, rest)) => rest.split_once("): ").map_or(rest, |(_, text)| text),
        None => text,
    };
    let mut words = text.split(' ').peekable();
    let mut plain = Vec::new();
    while let Some(word) = words.next() {
        let Some((_, line)) = word.split_once("user_script:") else {
            plain.push(word);
            continue;
        };
        // `@user_script: 12: …`
        if line.is_empty() {
            words.next_if(|word| word.starts_with(|sign: char| sign.is_ascii_digit()));
        }
    }
    let plain = plain.join(" ");
    // By this word of theirs we know that it passes.
    match plain.strip_prefix("TRYAGAIN ") {
        Some(rest) => rest.to_owned(),
        None => plain,
    }
}

fn cause_of(holder: &Value) -> LossCause {
    match text_of(holder) {
        holder if holder.is_empty() => LossCause::Gone,
        holder => LossCause::held_by(&holder),
    }
}

fn item_at(reply: &Value, index: usize) -> Option<&Value> {
    match reply {
        Value::Array(items) => items.get(index),
        _ => None,
    }
}

fn integer_at(reply: &Value, index: usize) -> Option<i64> {
    match item_at(reply, index)? {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_told_without_its_scripts() {
        let said = [
            (
                "WRONGTYPE Operation against a key script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:25.",
                "WRONGTYPE Operation against a key",
            ),
            (
                "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:1: WRONGTYPE Operation",
                "WRONGTYPE Operation",
            ),
            (
                "ERR Error running script (call to f_6b1b): @user_script: 12: -NOPERM this user",
                "-NOPERM this user",
            ),
            (
                "ERR user_script:30: attempt to compare nil script: 6b1b, on @user_script:30.",
                "ERR attempt to compare nil",
            ),
            ("TRYAGAIN the clock", "the clock"),
            ("OOM command not allowed", "OOM command not allowed"),
        ];
        for (text, expected) in said {
            assert_eq!(plain(text), expected);
        }
    }
}
