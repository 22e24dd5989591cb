//! A semaphore whose permits have owners, as a state machine: threads of several processes, the server, and the requests
//! between them.
//!
//! Each thread takes its permits once, all times in ticks. The server runs the scripts themselves. A request and
//! its answer take any time, also in the middle; as the model is told, answers are lost, requests come late or twice, and
//! processes die. Not in it: renewals (a hold that lasts is one whose lease is longer), permits that are set anew, added or
//! forgotten, messages, Redisson.

use redlatch_server::{Entry, Keyspace, Subscriptions, Value};
use stateright::{Model, Property};

use crate::server::{self, NOW, Said, members};

/// The permits that each thread wants, and how many there are.
const WANTED: [u8; 3] = [2, 1, 1];
const PERMITS: u8 = 2;

const SEMAPHORE: &[u8] = b"semaphore";
const OWNERS: &[u8] = b"owners";
const CHANNEL: &[u8] = b"channel";

/// A tick in ms.
const TICK: i64 = 1000;

/// The lease, and until when a request may be carried out, in ticks.
const LEASE: u8 = 2;
const EXPIRY: u8 = 1;

/// A thread that has gone on as another owner so often asks no more.
const LAST_VISIT: u8 = 1;

/// What the clients and the server go by; the default is what the library does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether validity counts from before the request was sent.
    pub(crate) counts_from_send: bool,
    /// Whether each hold has an owner of its own, so that nothing of an earlier hold can touch it.
    pub(crate) fresh_owners: bool,
    /// Whether a request is refused that comes late.
    pub(crate) requests_expire: bool,
    /// Whether what a request without an answer may have taken is given back until it can no longer come.
    pub(crate) withdraws: bool,
    /// Whether who took permits is on record.
    pub(crate) has_records: bool,
    /// Whether the record goes with the permits that are given back.
    pub(crate) records_end: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            counts_from_send: true,
            fresh_owners: true,
            requests_expire: true,
            withdraws: true,
            has_records: true,
            records_end: true,
        }
    }
}

/// What happens once at most in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The client no longer waits for an answer.
    Unanswered,
    /// Its client gives permits back, and does not hear of it; the request may come again.
    DoubledRelease,
    /// A process dies.
    Crash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Is {
    Idle,
    /// It has asked so many ticks ago; with the answer once the request was carried out.
    Asked {
        age: u8,
        is_granted: Option<bool>,
    },
    Refused,
    /// Its permits are valid for so many ticks.
    Holds {
        left: u8,
    },
    /// Its lease is over, for its own clock at least.
    Ended,
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    is: Is,
    visit: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    Acquire,
    Release,
}

/// A request on its way: for an acquisition, with the ticks until it is refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    what: What,
    thread: usize,
    visit: u8,
    left: Option<u8>,
}

/// An owner whose permits are given back, now and as long as its request may come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Doubt {
    thread: usize,
    visit: u8,
    left: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    keys: Keyspace,
    threads: [Thread; WANTED.len()],
    flight: Vec<Request>,
    doubts: Vec<Doubt>,
    faults: Vec<Fault>,
    reclaimed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Tick,
    Ask(usize),
    /// A request is carried out.
    Arrive(usize),
    /// A thread hears the answer.
    Hear(usize),
    /// It waits for it no longer.
    GiveUp(usize),
    Release(usize),
    ReleaseTwice(usize),
    Withdraw(usize),
    Crash(usize),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Permits {
    pub(crate) rules: Rules,
    pub(crate) faults: &'static [Fault],
    /// Whether it is also looked for what shall happen.
    pub(crate) shows_what_happens: bool,
}

impl Model for Permits {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut keys = Keyspace::default();
        let free = Entry {
            value: Value::String(PERMITS.to_string().into_bytes()),
            expires: None,
        };
        server::put(&mut keys, SEMAPHORE, Some(free));
        let thread = Thread {
            is: Is::Idle,
            visit: 0,
        };
        vec![State {
            keys,
            threads: std::array::from_fn(|_| thread.clone()),
            flight: Vec::new(),
            doubts: Vec::new(),
            faults: self.faults.to_vec(),
            reclaimed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let has = |fault| state.faults.contains(&fault);
        let mut may_pass = false;
        for (at, thread) in state.threads.iter().enumerate() {
            may_pass |= !matches!(thread.is, Is::Ended | Is::Done | Is::Dead | Is::Idle);
            match thread.is {
                Is::Idle | Is::Refused => actions.push(Action::Ask(at)),
                Is::Asked { is_granted, .. } => {
                    if is_granted.is_some() {
                        actions.push(Action::Hear(at));
                    }
                    if has(Fault::Unanswered) {
                        actions.push(Action::GiveUp(at));
                    }
                }
                Is::Holds { .. } => {
                    actions.push(Action::Release(at));
                    if has(Fault::DoubledRelease) {
                        actions.push(Action::ReleaseTwice(at));
                    }
                }
                Is::Ended | Is::Done | Is::Dead => {}
            }
            if has(Fault::Crash) && matches!(thread.is, Is::Asked { .. } | Is::Holds { .. }) {
                actions.push(Action::Crash(at));
            }
        }
        actions.extend((0..state.flight.len()).map(Action::Arrive));
        actions.extend((0..state.doubts.len()).map(Action::Withdraw));
        // What is to be withdrawn for the last time is, before time goes on.
        let is_due = state.doubts.iter().any(|doubt| doubt.left.is_none());
        if may_pass && !is_due {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => self.tick(&mut next),
            Action::Ask(at) => {
                let thread = &mut next.threads[at];
                thread.is = Is::Asked {
                    age: 0,
                    is_granted: None,
                };
                next.flight.push(Request {
                    what: What::Acquire,
                    thread: at,
                    visit: thread.visit,
                    left: Some(EXPIRY),
                });
            }
            Action::Arrive(at) => {
                let request = next.flight.remove(at);
                self.carry_out(&mut next, &request);
            }
            Action::Hear(at) => {
                let Is::Asked { age, is_granted } = next.threads[at].is else {
                    return None;
                };
                let elapsed = if self.rules.counts_from_send { age } else { 0 };
                match LEASE.checked_sub(elapsed).filter(|left| *left > 0) {
                    _ if is_granted == Some(false) => self.go_on(&mut next, at, None),
                    Some(left) => next.threads[at].is = Is::Holds { left },
                    None => self.go_on(&mut next, at, Some(None)),
                }
            }
            Action::GiveUp(at) => {
                next.faults.retain(|it| *it != Fault::Unanswered);
                self.go_on(&mut next, at, Some(Some(EXPIRY)));
            }
            Action::Release(at) | Action::ReleaseTwice(at) => {
                let request = Request {
                    what: What::Release,
                    thread: at,
                    visit: next.threads[at].visit,
                    left: None,
                };
                self.carry_out(&mut next, &request);
                next.threads[at].is = Is::Done;
                if action == Action::ReleaseTwice(at) {
                    next.faults.retain(|it| *it != Fault::DoubledRelease);
                    // It takes permits once more.
                    next.threads[at].is = Is::Idle;
                    next.threads[at].visit += u8::from(self.rules.fresh_owners);
                    next.flight.push(request);
                }
            }
            Action::Withdraw(at) => {
                let doubt = next.doubts[at].clone();
                if doubt.left.is_none() {
                    next.doubts.remove(at);
                }
                let owner = owner_of(doubt.thread, doubt.visit);
                next.call("permits/withdraw", &[&owner, CHANNEL]);
            }
            Action::Crash(at) => {
                next.faults.retain(|it| *it != Fault::Crash);
                next.threads[at].is = Is::Dead;
                next.doubts.retain(|doubt| doubt.thread != at);
            }
        }
        // In which order they were sent does not matter.
        next.flight.sort();
        next.doubts.sort();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Permits>> {
        let always = vec![
            Property::always("no more than there are", |_, state: &State| {
                let both = state.threads.iter().zip(WANTED);
                let inside = both.filter(|(thread, _)| matches!(thread.is, Is::Holds { .. }));
                inside.map(|(_, wanted)| wanted).sum::<u8>() <= PERMITS
            }),
            Property::always("the sum is right", |_, state: &State| {
                state.free() + state.owned() == i64::from(PERMITS)
            }),
            Property::always("no permit is left", |_, state: &State| {
                !state.has_leftover()
            }),
        ];
        let sometimes = vec![
            Property::sometimes("permits of the dead come back", |_, state: &State| {
                state.reclaimed
            }),
            Property::sometimes("two are inside", |_, state: &State| {
                let holds = |thread: &&Thread| matches!(thread.is, Is::Holds { .. });
                state.threads.iter().filter(holds).count() == 2
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

impl Permits {
    fn carry_out(&self, next: &mut State, request: &Request) {
        let owner = owner_of(request.thread, request.visit);
        match request.what {
            What::Release => {
                let ends = server::entry(&next.keys, OWNERS).cloned();
                next.call("permits/release", &[&owner, CHANNEL]);
                if !self.rules.records_end {
                    server::put(&mut next.keys, OWNERS, ends);
                }
            }
            What::Acquire => {
                let lease = (i64::from(LEASE) * TICK).to_string();
                let expiry = (NOW + i64::from(request.left.unwrap_or(EXPIRY)) * TICK).to_string();
                let before = members(&next.keys, OWNERS).len();
                let args: [&[u8]; 4] = [&owner, lease.as_bytes(), CHANNEL, expiry.as_bytes()];
                let said = next.call("permits/acquire", &args);
                let after = members(&next.keys, OWNERS).len();
                next.reclaimed |= after < before || said.is_done() && after == before && after > 0;
                if !self.rules.has_records {
                    server::put(&mut next.keys, OWNERS, None);
                }
                let thread = &mut next.threads[request.thread];
                if let Is::Asked { is_granted, .. } = &mut thread.is
                    && thread.visit == request.visit
                {
                    *is_granted = Some(said.is_done());
                }
            }
        }
    }

    /// Goes on as another owner; what the former one may have is given back now, or for so many ticks.
    fn go_on(&self, next: &mut State, at: usize, left: Option<Option<u8>>) {
        let thread = &mut next.threads[at];
        if let Some(left) = left.filter(|_| self.rules.withdraws) {
            next.doubts.push(Doubt {
                thread: at,
                visit: thread.visit,
                left,
            });
        }
        thread.visit += u8::from(self.rules.fresh_owners && left.is_some());
        thread.is = match thread.visit >= LAST_VISIT {
            true => Is::Done,
            false => Is::Refused,
        };
    }

    fn tick(&self, next: &mut State) {
        server::pass(&mut next.keys, TICK);
        // A lease that is over is, for however long.
        if let Some(mut entry) = server::entry(&next.keys, OWNERS).cloned() {
            if let Value::Sorted(owners) = &mut entry.value {
                for (_, ends) in owners {
                    *ends = (*ends).max(NOW.into());
                }
            }
            server::put(&mut next.keys, OWNERS, Some(entry));
        }
        for thread in &mut next.threads {
            match &mut thread.is {
                Is::Asked { age, .. } => *age = LEASE.min(*age + 1),
                Is::Holds { left: 1 } => thread.is = Is::Ended,
                Is::Holds { left } => *left -= 1,
                _ => {}
            }
        }
        for request in &mut next.flight {
            request.left = request.left.and_then(|left| left.checked_sub(1));
        }
        if self.rules.requests_expire {
            let stays = |it: &Request| it.what == What::Release || it.left.is_some();
            let gone: Vec<_> = next
                .flight
                .iter()
                .filter(|it| !stays(it))
                .cloned()
                .collect();
            next.flight.retain(stays);
            // It is refused, and the client hears of that.
            for request in gone {
                let thread = &mut next.threads[request.thread];
                if let Is::Asked { is_granted, .. } = &mut thread.is
                    && thread.visit == request.visit
                {
                    *is_granted = Some(false);
                }
            }
        }
        for doubt in &mut next.doubts {
            doubt.left = doubt.left.and_then(|left| left.checked_sub(1));
        }
    }
}

impl State {
    fn call(&mut self, script: &str, args: &[&[u8]]) -> Said {
        let nobody = Subscriptions::new();
        server::call(&mut self.keys, script, &[SEMAPHORE, OWNERS], args, &nobody)
    }

    fn free(&self) -> i64 {
        let Some(Value::String(free)) = server::entry(&self.keys, SEMAPHORE).map(|it| &it.value)
        else {
            return 0;
        };
        let free = std::str::from_utf8(free).ok();
        free.and_then(|free| free.parse().ok()).unwrap_or_default()
    }

    fn owned(&self) -> i64 {
        let owners = members(&self.keys, OWNERS);
        let permits = owners.iter().filter_map(|owner| owner.first());
        permits.map(|digit| i64::from(digit - b'0')).sum()
    }

    /// Whether permits are taken by an owner that is over, and of which no request can come, before their lease is.
    fn has_leftover(&self) -> bool {
        let Some(Value::Sorted(owners)) = server::entry(&self.keys, OWNERS).map(|it| &it.value)
        else {
            return false;
        };
        let mut live = owners.iter().filter(|(_, ends)| ends.whole() > NOW);
        live.any(|(owner, _)| {
            let is = |thread: usize, visit: u8| owner_of(thread, visit) == *owner;
            let mut threads = self.threads.iter().enumerate();
            let is_of_thread = threads.any(|(at, thread)| match thread.is {
                Is::Dead => (0..=thread.visit).any(|visit| is(at, visit)),
                Is::Asked { .. } | Is::Holds { .. } | Is::Refused | Is::Ended => {
                    is(at, thread.visit)
                }
                Is::Done | Is::Idle => false,
            });
            let mut flight = self.flight.iter().map(|it| (it.thread, it.visit));
            let mut doubts = self.doubts.iter().map(|it| (it.thread, it.visit));
            !is_of_thread
                && !flight.any(|(thread, visit)| is(thread, visit))
                && !doubts.any(|(thread, visit)| is(thread, visit))
        })
    }
}

fn owner_of(thread: usize, visit: u8) -> Vec<u8> {
    format!("{}*client-{thread}:1:{visit}", WANTED[thread]).into_bytes()
}
