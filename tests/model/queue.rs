//! The fair lock as a state machine: threads of several processes, the queue on the server, and the requests between them.
//!
//! Each thread takes the lock once. The server runs the scripts themselves, and a tick is a second: the living look
//! in time, are told at once, and give back what they hold. Requests are lost, late and doubled, and processes die, as the
//! model is told. Not in it: lost messages, threads that stop and go on, waits that end while a request is under way,
//! Redisson.

use redlatch_server::{Keyspace, Subscriptions, Value};
use redlatch_spec::with_look;
use stateright::{Model, Property};

use crate::server::{self, NOW, Said, members};

/// The threads, each of a process of its own.
pub(crate) const THREADS: usize = 3;

const LOCK: &[u8] = b"lock";
const LINE: &[u8] = b"line";
const TIMES: &[u8] = b"times";
const CHANNEL: &[u8] = b"channel";

/// A tick in ms.
const TICK: i64 = 1000;

/// The lease, in ticks. A hold that lives is given back in time.
const LEASE: u8 = 4;
const LONGEST_HOLD: u8 = 1;

/// For how long a waiter counts as alive behind the one before it, ms.
const PATIENCE: i64 = 20_000;

/// Until when a request may be carried out, in ticks.
const EXPIRY: u8 = 1;

/// The lock is free for no more ticks than these while somebody waits: one behind others looks after 3 s, and passes all the dead
/// over after 1.5 s more, in the next tick.
const LONGEST_FREE: u8 = 5;

/// A visitor: a thread, and which of its visits it is.
pub(crate) type Visitor = (usize, u8);

/// What the clients and the server go by; the default is what the library does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether one that has just come stands behind those who wait.
    pub(crate) newcomers_queue: bool,
    /// Whether a request is refused that comes late.
    pub(crate) requests_expire: bool,
    /// How long is withdrawn what a request without an answer may leave.
    pub(crate) withdraws: Withdraws,
    /// Whether a visit without an answer is another one from then on.
    pub(crate) fresh_visits: bool,
    /// Whether a waiter also looks if nobody tells it.
    pub(crate) looks: bool,
    /// What becomes of those who do not come.
    pub(crate) absent: Absent,
    /// Whether one that leaves gives up its place.
    pub(crate) leaves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdraws {
    /// Until the request can no longer come.
    UntilExpired,
    Once,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// They are passed over once they were away for long enough.
    InTime,
    AtOnce,
    Never,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            newcomers_queue: true,
            requests_expire: true,
            withdraws: Withdraws::UntilExpired,
            fresh_visits: true,
            looks: true,
            absent: Absent::InTime,
            leaves: true,
        }
    }
}

/// What becomes of one request in a run, beside that it is carried out and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// Its answer is lost.
    Unanswered,
    /// It has no answer, and may be carried out later.
    Late,
    /// It is carried out and answered, and a copy may be carried out later; its client knows of that.
    Doubled,
    /// The process dies.
    Crash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Is {
    Idle,
    Waits,
    Holds { ticks: u8, leftover: Option<u8> },
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    is: Is,
    visit: u8,
    has_place: bool,
    listens: bool,
    /// In how many ticks it looks at the latest; 0 is before the next one.
    looks_in: u8,
}

/// A request that may still come, and a visitor that is to be withdrawn: for so many ticks, or as long as the faults last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    visitor: Visitor,
    ticks: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    keys: Keyspace,
    threads: [Thread; THREADS],
    /// The visitors in the order in which they took their places.
    line: Vec<Visitor>,
    flight: Vec<Pending>,
    doubts: Vec<Pending>,
    faults: Vec<Fault>,
    /// For how many ticks the lock was free while somebody waited.
    free_for: u8,
    was_overtaken: bool,
    did: Did,
}

/// What has happened in this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Did {
    passed_over: bool,
    came_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A second passes.
    Tick,
    /// A thread asks for the lock.
    Ask(usize),
    AskBadly(usize, Fault),
    /// It subscribes to its channel.
    Listen(usize),
    Release(usize),
    GiveUp(usize),
    Crash(usize),
    /// A request comes after all.
    Arrive(usize),
    /// What a request may have left is withdrawn.
    Withdraw(usize),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub(crate) rules: Rules,
    /// Each happens once at most.
    pub(crate) faults: &'static [Fault],
    /// Whether threads may also give up.
    pub(crate) gives_up: bool,
    /// Whether it is also looked for what shall happen.
    pub(crate) shows_what_happens: bool,
}

impl Model for Queue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let thread = Thread {
            is: Is::Idle,
            visit: 0,
            has_place: false,
            listens: false,
            looks_in: 0,
        };
        vec![State {
            keys: Keyspace::default(),
            threads: std::array::from_fn(|_| thread.clone()),
            line: Vec::new(),
            flight: Vec::new(),
            doubts: Vec::new(),
            faults: self.faults.to_vec(),
            free_for: 0,
            was_overtaken: false,
            did: Did::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut may_pass = true;
        for (at, thread) in state.threads.iter().enumerate() {
            match thread.is {
                Is::Idle => actions.push(Action::Ask(at)),
                Is::Waits if !thread.listens => {
                    actions.push(Action::Listen(at));
                    may_pass = false;
                }
                Is::Waits if thread.looks_in == 0 => {
                    actions.push(Action::Ask(at));
                    may_pass = false;
                }
                Is::Holds { ticks, .. } => {
                    actions.push(Action::Release(at));
                    may_pass &= ticks < LONGEST_HOLD;
                }
                Is::Waits | Is::Done | Is::Dead => {}
            }
            if thread.is == Is::Waits && self.gives_up {
                actions.push(Action::GiveUp(at));
            }
            for fault in &state.faults {
                match (fault, thread.is) {
                    (Fault::Crash, Is::Waits | Is::Holds { .. }) => actions.push(Action::Crash(at)),
                    (Fault::Crash, _) => {}
                    (fault, Is::Idle) => actions.push(Action::AskBadly(at, *fault)),
                    (fault, Is::Waits) if thread.listens && thread.looks_in == 0 => {
                        actions.push(Action::AskBadly(at, *fault));
                    }
                    _ => {}
                }
            }
        }
        actions.extend((0..state.flight.len()).map(Action::Arrive));
        for (at, doubt) in state.doubts.iter().enumerate() {
            // One that can still come is withdrawn again later.
            actions.push(Action::Withdraw(at));
            may_pass &= doubt.ticks.is_some();
        }
        // Where nobody does anything, time changes nothing but how much of it is left.
        let acts = |thread: &Thread| matches!(thread.is, Is::Waits | Is::Holds { .. });
        let is_open = !state.flight.is_empty() || !state.doubts.is_empty();
        if may_pass && (is_open || state.threads.iter().any(acts)) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => self.tick(&mut next),
            Action::Ask(at) => {
                let said = self.acquire(&mut next, at);
                self.answered(&mut next, at, &said, None);
            }
            Action::AskBadly(at, fault) => {
                next.faults.retain(|it| *it != fault);
                let visitor = (at, next.threads[at].visit);
                let ticks = Some(EXPIRY);
                if fault != Fault::Unanswered {
                    next.flight.push(Pending { visitor, ticks });
                }
                match fault {
                    Fault::Unanswered => {
                        self.acquire(&mut next, at);
                        self.retire(&mut next, at, ticks);
                    }
                    Fault::Late | Fault::Crash => self.retire(&mut next, at, ticks),
                    Fault::Doubled => {
                        let said = self.acquire(&mut next, at);
                        self.answered(&mut next, at, &said, ticks);
                    }
                }
            }
            Action::Listen(at) => {
                next.threads[at].listens = true;
                next.threads[at].looks_in = 0;
            }
            Action::Release(at) => {
                let visitor = (at, next.threads[at].visit);
                let Is::Holds { leftover, .. } = next.threads[at].is else {
                    return None;
                };
                next.threads[at].is = Is::Done;
                let name = name_of(visitor);
                let said = next.call("fair/release", &[LOCK, LINE, TIMES], &[&name, CHANNEL]);
                next.hear(&said);
                if leftover.is_some() {
                    self.doubt(&mut next, visitor, leftover);
                }
            }
            Action::GiveUp(at) => {
                let visitor = (at, next.threads[at].visit);
                next.threads[at].is = Is::Done;
                next.line.retain(|it| *it != visitor);
                if self.rules.leaves {
                    next.doubts.push(Pending {
                        visitor,
                        ticks: None,
                    });
                }
            }
            Action::Crash(at) => {
                next.faults.retain(|it| *it != Fault::Crash);
                next.threads[at].is = Is::Dead;
                next.threads[at].listens = false;
                next.line.retain(|it| it.0 != at);
                next.doubts.retain(|doubt| doubt.visitor.0 != at);
            }
            Action::Arrive(at) => {
                let request = next.flight.remove(at);
                let before = next.keys.clone();
                let name = name_of(request.visitor);
                let said = self.acquire_as(&mut next, &name, b"join", b"1000000000000000");
                next.hear(&said);
                next.did.came_late |= next.keys != before;
            }
            Action::Withdraw(at) => {
                let doubt = next.doubts[at].clone();
                if doubt.ticks.is_none() || self.rules.withdraws == Withdraws::Once {
                    next.doubts.remove(at);
                }
                let name = name_of(doubt.visitor);
                let said = next.call("fair/withdraw", &[LOCK, LINE, TIMES], &[&name, CHANNEL]);
                next.hear(&said);
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Queue>> {
        let always = vec![
            Property::always("one holder", |_, state: &State| {
                let holds = |thread: &&Thread| matches!(thread.is, Is::Holds { .. });
                state.threads.iter().filter(holds).count() <= 1
            }),
            Property::always("in order", |_, state: &State| !state.was_overtaken),
            Property::always("nobody waits for ever", |_, state: &State| {
                state.free_for <= LONGEST_FREE
            }),
            Property::always("no entry is left", |_, state: &State| {
                state.leftover().is_none()
            }),
        ];
        let sometimes = vec![
            Property::sometimes("a dead one is passed over", |_, state: &State| {
                state.did.passed_over
            }),
            Property::sometimes("a late request leaves something", |_, state: &State| {
                state.did.came_late
            }),
            Property::sometimes("all are done", |_, state: &State| {
                state.threads.iter().all(|thread| thread.is == Is::Done)
            }),
        ];
        match self.shows_what_happens {
            true => [always, sometimes].concat(),
            false => always,
        }
    }
}

impl Queue {
    fn acquire(&self, next: &mut State, at: usize) -> Said {
        let thread = &next.threads[at];
        let (name, wish) = (name_of((at, thread.visit)), thread.has_place);
        let wish: &[u8] = if wish { b"rejoin" } else { b"join" };
        let expiry = (NOW + i64::from(EXPIRY) * TICK).to_string();
        self.acquire_as(next, &name, wish, expiry.as_bytes())
    }

    fn acquire_as(&self, next: &mut State, name: &[u8], wish: &[u8], expiry: &[u8]) -> Said {
        let (lease, patience) = (i64::from(LEASE) * TICK, PATIENCE.to_string());
        let lease = lease.to_string();
        let args: [&[u8]; 9] = [
            name,
            lease.as_bytes(),
            b"0",
            b"1",
            CHANNEL,
            wish,
            patience.as_bytes(),
            b"1",
            expiry,
        ];
        let is_new = !members(&next.keys, LINE).iter().any(|it| it == name);
        if !self.rules.newcomers_queue && is_new && server::entry(&next.keys, LOCK).is_none() {
            return next.call("fair/acquire", &[LOCK, b"", b""], &args);
        }
        let before = members(&next.keys, LINE);
        let said = next.call("fair/acquire", &[LOCK, LINE, TIMES], &args);
        let after = members(&next.keys, LINE);
        next.did.passed_over |= before.iter().any(|it| it != name && !after.contains(it));
        self.meddle(&mut next.keys);
        said
    }

    /// Spoils the notes on when each has looked.
    fn meddle(&self, keys: &mut Keyspace) {
        let looked = match self.rules.absent {
            Absent::InTime => return,
            Absent::Never => NOW,
            Absent::AtOnce => NOW - 4 * TICK,
        };
        if let Some(mut entry) = server::entry(keys, TIMES).cloned() {
            if let Value::Sorted(members) = &mut entry.value {
                for (_, score) in members {
                    *score = with_look(score.whole(), looked);
                }
            }
            server::put(keys, TIMES, Some(entry));
        }
    }

    /// Goes on with the answer to a request; of `leftover` copies may come for so many ticks.
    fn answered(&self, next: &mut State, at: usize, said: &Said, leftover: Option<u8>) {
        let visitor = (at, next.threads[at].visit);
        next.hear(said);
        if said.is_done() {
            let mut before = next.line.iter().take_while(|it| **it != visitor);
            next.was_overtaken |= before.any(|it| next.waits(*it));
            next.line.retain(|it| *it != visitor);
            next.threads[at].is = Is::Holds { ticks: 0, leftover };
            next.threads[at].listens = false;
            return;
        }
        if !next.line.contains(&visitor) {
            next.line.push(visitor);
            next.threads[at].listens = false;
        }
        let thread = &mut next.threads[at];
        thread.is = Is::Waits;
        thread.has_place = true;
        let pause = (said.number(4) + TICK - 1) / TICK;
        let pause = u8::try_from(pause).unwrap_or(u8::MAX);
        thread.looks_in = if self.rules.looks { pause } else { u8::MAX };
        if leftover.is_some() {
            self.retire(next, at, leftover);
        }
    }

    /// Goes on as another visitor, and withdraws the former one.
    fn retire(&self, next: &mut State, at: usize, ticks: Option<u8>) {
        let visitor = (at, next.threads[at].visit);
        self.doubt(next, visitor, ticks);
        let thread = &mut next.threads[at];
        thread.is = Is::Waits;
        thread.looks_in = 0;
        thread.listens = true;
        if self.rules.fresh_visits {
            thread.visit += 1;
            thread.has_place = false;
            next.line.retain(|it| *it != visitor);
        }
    }

    fn doubt(&self, next: &mut State, visitor: Visitor, ticks: Option<u8>) {
        if self.rules.withdraws != Withdraws::Never {
            next.doubts.push(Pending { visitor, ticks });
        }
    }

    fn tick(&self, next: &mut State) {
        server::pass(&mut next.keys, TICK);
        let is_free = server::entry(&next.keys, LOCK).is_none();
        let somebody_waits = next.threads.iter().any(|thread| thread.is == Is::Waits);
        next.free_for = match is_free && somebody_waits {
            true => next.free_for + 1,
            false => 0,
        };
        for thread in &mut next.threads {
            match &mut thread.is {
                Is::Holds { ticks, leftover } => {
                    *ticks += 1;
                    *leftover = leftover.and_then(|left| left.checked_sub(1));
                }
                Is::Waits => {
                    thread.looks_in = thread.looks_in.saturating_sub(u8::from(self.rules.looks))
                }
                _ => {}
            }
        }
        for pending in next.flight.iter_mut().chain(&mut next.doubts) {
            pending.ticks = pending.ticks.and_then(|left| left.checked_sub(1));
        }
        if self.rules.requests_expire {
            next.flight.retain(|request| request.ticks.is_some());
        }
    }
}

impl State {
    fn call(&mut self, script: &str, names: &[&[u8]], args: &[&[u8]]) -> Said {
        let mut listening = Subscriptions::new();
        for (at, thread) in self.threads.iter().enumerate() {
            if thread.is == Is::Waits && thread.listens {
                let channel = [CHANNEL, b":", &name_of((at, thread.visit))].concat();
                listening.entry(channel).or_default().insert(at as u64);
            }
        }
        server::call(&mut self.keys, script, names, args, &listening)
    }

    /// Tells those whose channels a script has published to.
    fn hear(&mut self, said: &Said) {
        for (at, thread) in self.threads.iter_mut().enumerate() {
            let channel = [CHANNEL, b":", &name_of((at, thread.visit))].concat();
            if thread.is == Is::Waits && thread.listens && said.told.contains(&channel) {
                thread.looks_in = 0;
            }
        }
    }

    fn waits(&self, (at, visit): Visitor) -> bool {
        self.threads[at].is == Is::Waits && self.threads[at].visit == visit
    }

    /// Something on the server of a visitor that is over, and of which no request can come.
    fn leftover(&self) -> Option<Vec<u8>> {
        let places = [LOCK, LINE, TIMES].map(|name| members(&self.keys, name));
        places.concat().into_iter().find(|name| {
            let is_known = |visitor: Visitor| name_of(visitor) == *name;
            let mut threads = self.threads.iter().enumerate();
            let is_of_thread = threads.any(|(at, thread)| match thread.is {
                // Its process cannot take it away.
                Is::Dead => (0..=thread.visit).any(|visit| is_known((at, visit))),
                Is::Waits | Is::Holds { .. } => is_known((at, thread.visit)),
                Is::Idle | Is::Done => false,
            });
            let mut pending = self.flight.iter().chain(&self.doubts);
            !is_of_thread && !pending.any(|it| is_known(it.visitor))
        })
    }
}

fn name_of((thread, visit): Visitor) -> Vec<u8> {
    format!("client-{thread}:1:{visit}").into_bytes()
}
