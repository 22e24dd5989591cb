//! The connections of one client to one node.
//!
//! The connection is the affair of whoever has a slot: it takes the one used last, or makes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::claim::VisitorId;
use crate::ground::sync::Mutex;
use crate::store::{EXPIRY_SLACK, SETTLED};
use crate::stores::permits::{Slot, Slots};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::topology::connector::Route;
use crate::stores::redis::transport::connection::{Fault, Wire};
use crate::stores::redis::wait_replicas::{Acknowledged, Replication};

pub(crate) struct Pool {
    slots: Slots,
    /// The sound connections not in use, the one used last on top. Who has a slot may use one, or make one.
    idle: Mutex<Vec<Wire>>,
    /// The connections on which somebody did not wait for the answer.
    late: Mutex<Vec<Late>>,
    /// The requests whose connection was closed before they were answered, as long as they may still arrive.
    lost: Mutex<Vec<Lost>>,
    route: Arc<dyn Route>,
    /// Whether EVALSHA was found to be switched off on this node.
    evalsha_is_off: AtomicBool,
    serves_a_quorum: AtomicBool,
    /// Whether unlock messages are sharded here.
    is_sharded: bool,
    /// How often the server was found to have cut a connection.
    cuts: AtomicU64,
}

/// A connection for one request, and the right to use it.
pub(crate) struct Boarded {
    pub(crate) wire: Wire,
    pub(crate) slot: Slot,
    /// How many answers to earlier requests of the same visitor come first.
    pub(crate) owed: u32,
    /// An earlier request of the same visitor, on a connection that is closed, may arrive up to this time of the server's
    /// clock, in ms; [`SETTLED`] if there is none.
    pub(crate) not_after: i64,
}

/// A request that may arrive after those behind it, which go on other connections.
struct Lost {
    visitor: VisitorId,
    /// The server refuses it after this time of its clock.
    not_after: i64,
    /// By then it has been refused.
    until: Instant,
}

/// A connection that still owes answers.
struct Late {
    wire: Wire,
    owed: u32,
    /// Whose requests they answer.
    visitor: VisitorId,
    /// The server refuses the last of them after this time of its clock, in ms.
    not_after: i64,
    /// After this time it is closed.
    until: Instant,
}

impl Pool {
    pub(crate) fn new(route: Arc<dyn Route>, slots: Slots, is_sharded: bool) -> Pool {
        Pool {
            is_sharded,
            cuts: AtomicU64::new(0),
            slots,
            idle: Mutex::default(),
            late: Mutex::default(),
            lost: Mutex::default(),
            route,
            evalsha_is_off: AtomicBool::new(false),
            serves_a_quorum: AtomicBool::new(false),
        }
    }

    /// Whether unlock messages are sharded here.
    pub(crate) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    pub(crate) fn route(&self) -> &dyn Route {
        &*self.route
    }

    fn slot(&self, until: Instant) -> Result<Slot, Fault> {
        self.slots
            .take(until)
            .map_err(|none| Fault::Exhausted(none.of))
    }

    /// The connection used last, if there is one that is still good.
    fn pop(&self) -> Option<Wire> {
        self.pop_rather(|_| true)
    }

    /// The connection used last of those that `are_right`, else the one used last.
    fn pop_rather(&self, are_right: fn(&Wire) -> bool) -> Option<Wire> {
        let generation = self.route.generation();
        let cuts = self.cuts.load(Ordering::Relaxed);
        loop {
            let wire = {
                let mut idle = self.idle.lock();
                match idle.iter().rposition(are_right) {
                    Some(at) => idle.remove(at),
                    None => idle.pop()?,
                }
            };
            // A server that has cut one connection has mostly cut them all.
            let is_stale =
                wire.has_unread() || wire.is_stale() || (wire.cuts != cuts && wire.is_cut());
            if wire.generation == generation && !is_stale {
                return Some(wire);
            }
        }
    }

    /// Whether there is a connection to lend.
    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.lock().is_empty()
    }

    /// Takes out a connection that lies idle, to be kept again after renewals.
    pub(crate) fn lend(&self) -> Option<Wire> {
        self.pop()
    }

    /// Keeps a sound connection for the next one who needs one.
    pub(crate) fn keep(&self, mut wire: Wire) {
        if wire.is_spent || wire.has_unread() {
            return;
        }
        wire.cuts = self.cuts.load(Ordering::Relaxed);
        let mut idle = self.idle.lock();
        if self.keeps() {
            idle.push(wire);
        }
    }

    /// Whether connections are kept for later.
    pub(crate) fn keeps(&self) -> bool {
        !self.slots.is_closed() || self.serves_a_quorum.load(Ordering::Relaxed)
    }

    /// Notes that a quorum relies on connections that are ready, whatever becomes of the client of this node.
    pub(crate) fn serve_a_quorum(&self) {
        self.serves_a_quorum.store(true, Ordering::Relaxed);
    }

    /// Closes what lies idle, and keeps no connection from now on. Requests go on working, each on one of its own.
    pub(crate) fn close(&self) {
        self.slots.close();
        // A quorum that is still at work says so again.
        self.serves_a_quorum.store(false, Ordering::Relaxed);
        self.late.lock().clear();
        self.idle.lock().clear();
    }

    fn note_cut<T>(&self, outcome: &Result<T, Fault>) {
        if let Err(
            Fault::NotSent(_)
            | Fault::NoReply {
                timed_out: false, ..
            },
        ) = outcome
        {
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a connection for a request of `visitor`: the one that still owes it an answer, so that the server gets its
    /// requests in order, else any, rather one of those that `are_right`.
    pub(crate) fn board(
        &self,
        visitor: &VisitorId,
        are_right: fn(&Wire) -> bool,
        until: Instant,
    ) -> Result<Boarded, Fault> {
        let slot = self.slot(until)?;
        self.collect();
        let late = {
            let mut late = self.late.lock();
            let at = late.iter().position(|late| late.visitor == *visitor);
            at.map(|at| late.swap_remove(at))
        };
        let mut not_after = SETTLED;
        let (wire, owed) = match late {
            Some(late) => (late.wire, late.owed),
            None => {
                let lost = self.lost.lock();
                let mine = lost.iter().filter(|lost| lost.visitor == *visitor);
                not_after = mine.map(|lost| lost.not_after).max().unwrap_or(SETTLED);
                drop(lost);
                match self.pop_rather(are_right) {
                    Some(wire) => (wire, 0),
                    None => (self.route.connect(until)?, 0),
                }
            }
        };
        Ok(Boarded {
            wire,
            slot,
            owed,
            not_after,
        })
    }

    /// Takes a connection back after `reply`, unless that leaves its state in doubt.
    pub(crate) fn give_back(&self, wire: Wire, reply: &Result<Value, Fault>) {
        doubt_after(reply, &wire, self.route());
        self.note_cut(reply);
        if is_sound(reply) {
            self.keep(wire);
        }
    }

    /// Takes a connection back that owes answers to requests of `visitor`, until `until`.
    pub(crate) fn leave(
        &self,
        wire: Wire,
        owed: u32,
        visitor: VisitorId,
        not_after: i64,
        until: Instant,
    ) {
        let mut late = self.late.lock();
        if self.keeps() {
            late.push(Late {
                wire,
                owed,
                visitor,
                not_after,
                until,
            });
        } else {
            self.note_lost(visitor, not_after, until);
        }
    }

    /// Whether a connection that `is_right` lies idle, or owes this visitor an answer.
    pub(crate) fn is_warm(&self, visitor: Option<&VisitorId>, is_right: fn(&Wire) -> bool) -> bool {
        self.collect();
        if self.idle.lock().iter().any(is_right) {
            return true;
        }
        let mut late = self.late.lock();
        let owed = |late: &mut Late| Some(&late.visitor) == visitor && is_right(&late.wire);
        late.iter_mut().any(owed)
    }

    /// Reads the late answers that have come, and closes what has had its time.
    fn collect(&self) {
        let mut late = self.late.lock();
        if late.is_empty() {
            return;
        }
        let now = Instant::now();
        let settled = late.extract_if(.., |late| {
            while late.owed > 0 {
                // Some may have been read together with one before.
                let at_once = now + Duration::from_millis(u64::from(late.wire.has_arrived()));
                match late.wire.receive(at_once) {
                    Ok(_) => late.owed -= 1,
                    Err(Fault::Server(text)) => {
                        late.owed -= 1;
                        if lacks_script(&text) {
                            late.wire.has_forgotten_scripts();
                        }
                    }
                    Err(Fault::NoReply {
                        timed_out: true, ..
                    }) => return now >= late.until,
                    Err(_) => return true,
                }
            }
            true
        });
        let mut idle = self.idle.lock();
        for late in settled {
            if late.owed == 0 {
                idle.push(late.wire);
            } else {
                self.note_lost(late.visitor, late.not_after, late.until);
            }
        }
    }

    /// Notes that nobody will read the answer to a request, which may still arrive at the server.
    fn note_lost(&self, visitor: VisitorId, not_after: i64, until: Instant) {
        if not_after != SETTLED {
            let mut lost = self.lost.lock();
            let now = Instant::now();
            lost.retain(|lost| now < lost.until);
            lost.push(Lost {
                visitor,
                not_after,
                until: until + EXPIRY_SLACK,
            });
        }
    }

    /// Runs `talk` on a connection. After a fault that leaves its state in doubt the connection is closed.
    pub(crate) fn with<T>(
        &self,
        until: Instant,
        mut talk: impl FnMut(&mut Wire) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _slot = self.slot(until)?;
        let mut place = self.pop();
        let is_fresh = place.is_none();
        let mut outcome = on_wire(&mut place, self.route(), until, &mut talk);
        self.note_cut(&outcome);
        if matches!(outcome, Err(Fault::NotSent(_))) && !is_fresh {
            // The server had closed a connection that lay idle. Nothing was sent, so it is safe to send it again.
            outcome = on_wire(&mut place, self.route(), until, &mut talk);
        }
        if let Some(wire) = place {
            self.keep(wire);
        }
        outcome
    }

    /// Runs a script: by its hash, and with its text if the server does not know it yet.
    pub(crate) fn eval(
        &self,
        wire: &mut Wire,
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
        until: Instant,
    ) -> Result<Value, Fault> {
        let number = wire.number();
        self.eval_with(script, keys, args, number, |packed| {
            wire.ask(&packed, until)?;
            wire.answer(number, until)
        })
    }

    /// Runs a script, and asks in the same breath how many replicas have what it did. What comes of the latter is of no
    /// interest if the script did nothing.
    pub(crate) fn eval_replicated(
        &self,
        wire: &mut Wire,
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
        replication: Replication,
        until: Instant,
    ) -> Result<(Value, Acknowledged), Fault> {
        let number = wire.number();
        self.eval_with(script, keys, args, number, |mut packed| {
            packed.extend(replication.question(until));
            wire.ask(&packed, until)?;
            let reply = wire.answer(number, until);
            if matches!(reply, Err(Fault::NoReply { .. })) {
                return reply.map(|reply| (reply, Acknowledged::NoAnswer));
            }
            let acknowledged = Acknowledged::of(wire.receive(until), replication);
            // The answer of the script stands, but the one behind it may still come.
            wire.is_spent |= acknowledged == Acknowledged::NoAnswer;
            Ok((reply?, acknowledged))
        })
    }

    /// Both calls have the same number: whichever of two copies is answered, the answer is that of the request.
    fn eval_with<T>(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
        number: i64,
        mut call: impl FnMut(Vec<u8>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let script = if self.is_sharded {
            script.sharded()
        } else {
            script
        };
        if !self.evalsha_is_off.load(Ordering::Relaxed) {
            match call(script.pack(false, keys, args, number)) {
                Err(Fault::Server(text)) if text.starts_with("NOSCRIPT") => {}
                Err(Fault::Server(text)) if lacks_evalsha(&text) => {
                    self.evalsha_is_off.store(true, Ordering::Relaxed)
                }
                outcome => return outcome,
            }
        }
        call(script.pack(true, keys, args, number))
    }

    pub(crate) fn note_evalsha_is_off(&self) {
        self.evalsha_is_off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn uses_text(&self) -> bool {
        self.evalsha_is_off.load(Ordering::Relaxed)
    }
}

/// Whether the script has to be sent as text.
pub(crate) fn lacks_script(text: &str) -> bool {
    text.starts_with("NOSCRIPT") || lacks_evalsha(text)
}

/// Whether a connection can be used again after this.
fn is_sound<T>(outcome: &Result<T, Fault>) -> bool {
    match outcome {
        Ok(_) | Err(Fault::NoVote(_)) => true,
        // A server that turned into a replica stays one: the next connection may find the master.
        Err(Fault::Server(text)) => !text.contains("READONLY"),
        Err(
            Fault::NotSent(_) | Fault::NoReply { .. } | Fault::Untrusted(_) | Fault::Exhausted(_),
        ) => false,
    }
}

/// Notes that a server which takes no writes is not the master.
fn doubt_after<T>(outcome: &Result<T, Fault>, wire: &Wire, route: &dyn Route) {
    if let Err(Fault::Server(text)) = outcome
        && text.contains("READONLY")
    {
        route.doubt(wire.generation);
    }
}

/// Whether the server has no EVALSHA, or does not let this user have it; EVAL may be there all the same.
pub(crate) fn lacks_evalsha(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("'evalsha'") && (text.contains("unknown command") || text.starts_with("noperm"))
}

/// Whether the server does not let this user send scripts; calling them by their hash may be allowed all the same.
pub(crate) fn lacks_eval(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("'eval'") && (text.contains("unknown command") || text.starts_with("noperm"))
}

/// Runs `talk` on what is in `place`, connecting first if need be, and empties the place after a fault.
pub(crate) fn on_wire<T>(
    place: &mut Option<Wire>,
    route: &dyn Route,
    until: Instant,
    talk: &mut impl FnMut(&mut Wire) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut wire = match place.take() {
        Some(wire) => wire,
        None => route.connect(until)?,
    };
    let outcome = talk(&mut wire);
    doubt_after(&outcome, &wire, route);
    if is_sound(&outcome) && !wire.is_spent {
        *place = Some(wire);
    }
    outcome
}
