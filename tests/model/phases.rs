//! The read-write lock as a state machine: readers and writers that come again and again.
//!
//! Each thread is of a process of its own, and a tick is half a second: all are told at once of a message, look in time, and
//! give back what they hold. The server runs the scripts themselves. Runs have no end and yet finitely many states,
//! for the order of those who wait alone counts, not when they came. Not in it: what fails, re-entry, a thread with both sides,
//! Redisson.

use redlatch_server::{Keyspace, Score, Subscriptions, Value};
use redlatch_spec::{looked, with_look};
use stateright::{Model, Property};

use crate::server::{self, NOW, Said};

/// The threads that write are true; the others read.
const WRITES: [bool; 4] = [false, false, true, true];

const LOCK: &[u8] = b"{lock}";
const NOTES: &[u8] = b"notes";
const CHANNEL: &[u8] = b"channel";

/// A tick in ms.
const TICK: i64 = 500;

const LEASE: &[u8] = b"2000";

/// The server time after which requests are refused.
const LATE: &[u8] = b"9000000000000000";

/// More than are ever counted.
const MANY: u8 = 20;

/// For so many ticks nobody waits: two holds of each side before it.
const LONGEST: u8 = 8;

/// What the clients and the server go by; the default is what the library does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether readers come in whoever waits to write.
    pub(crate) prefers_readers: bool,
    /// Whether readers that waited go first after a writer.
    pub(crate) lets_readers_in: bool,
    /// Whether a writer that waits is noted.
    pub(crate) notes_writers: bool,
    /// Whether a reader that waits is noted.
    pub(crate) notes_readers: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            prefers_readers: false,
            lets_readers_in: true,
            notes_writers: true,
            notes_readers: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Is {
    Idle,
    Waits {
        /// In how many ticks it looks at the latest.
        looks_in: u8,
        /// The writers that came in since it came, and the ticks.
        writers: u8,
        ticks: u8,
    },
    Holds {
        ticks: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    keys: Keyspace,
    threads: [Is; WRITES.len()],
    /// The writers that wait, as they came.
    line: Vec<usize>,
    was_overtaken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Tick,
    Ask(usize),
    Release(usize),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    pub(crate) rules: Rules,
}

impl Model for Phases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            keys: Keyspace::default(),
            threads: [Is::Idle; WRITES.len()],
            line: Vec::new(),
            was_overtaken: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut may_pass = false;
        for (at, thread) in state.threads.iter().enumerate() {
            match thread {
                Is::Idle => actions.push(Action::Ask(at)),
                Is::Waits { looks_in: 0, .. } => actions.push(Action::Ask(at)),
                Is::Waits { .. } => {}
                Is::Holds { .. } => actions.push(Action::Release(at)),
            }
            may_pass |= *thread != Is::Idle;
        }
        let is_late = |thread: &Is| {
            matches!(
                thread,
                Is::Waits { looks_in: 0, .. } | Is::Holds { ticks: 1 }
            )
        };
        if may_pass && !state.threads.iter().any(is_late) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => {
                server::pass(&mut next.keys, TICK);
                for thread in &mut next.threads {
                    match thread {
                        Is::Holds { ticks } => *ticks += 1,
                        Is::Waits {
                            looks_in, ticks, ..
                        } => {
                            *looks_in -= 1;
                            *ticks = MANY.min(*ticks + 1);
                        }
                        Is::Idle => {}
                    }
                }
            }
            Action::Ask(at) => {
                let said = self.ask(&mut next, at);
                self.answered(&mut next, at, &said);
            }
            Action::Release(at) => {
                let visitor = visitor(at);
                let notes = if self.rules.lets_readers_in {
                    NOTES
                } else {
                    b"none"
                };
                let own = own(&visitor);
                let names = [LOCK, &own, notes];
                let said = next.call("read_write/release", &names, &[&visitor, CHANNEL]);
                next.threads[at] = Is::Idle;
                if !said.told.is_empty() {
                    next.tell_all();
                }
            }
        }
        next.count_from_now();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Phases>> {
        vec![
            Property::always("a writer is alone", |_, state: &State| {
                let holds = |at: &usize| matches!(state.threads[*at], Is::Holds { .. });
                let inside = (0..WRITES.len()).filter(holds);
                let (writers, readers): (Vec<_>, Vec<_>) = inside.partition(|at| WRITES[*at]);
                writers.is_empty() || writers.len() == 1 && readers.is_empty()
            }),
            Property::always("writers come by arrival", |_, state: &State| {
                !state.was_overtaken
            }),
            // The phase in which it came, and one more.
            Property::always(
                "nobody waits for more than two phases",
                |_, state: &State| {
                    state.line.iter().all(|at| state.waits(*at).0 < 2)
                        && (0..WRITES.len()).all(|at| WRITES[at] || state.waits(at).0 < 2)
                },
            ),
            Property::always("nobody waits for long", |_, state: &State| {
                (0..WRITES.len()).all(|at| state.waits(at).1 <= LONGEST)
            }),
        ]
    }
}

impl Phases {
    fn ask(&self, next: &mut State, at: usize) -> Said {
        let visitor = visitor(at);
        let is_noted = match WRITES[at] {
            true => self.rules.notes_writers,
            false => self.rules.notes_readers,
        };
        let wish: &[u8] = match next.threads[at] {
            _ if self.rules.prefers_readers && !WRITES[at] => b"barge",
            _ if !is_noted => b"never",
            Is::Waits { .. } => b"rejoin",
            _ => b"join",
        };
        let own = own(&visitor);
        let args: [&[u8]; 7] = [&visitor, LEASE, b"0", b"1", b"", wish, LATE];
        next.call("read_write/acquire", &[LOCK, &own, NOTES, &own], &args)
    }

    fn answered(&self, next: &mut State, at: usize, said: &Said) {
        if said.is_done() {
            next.was_overtaken |= WRITES[at] && next.line.first().is_some_and(|it| *it != at);
            next.line.retain(|it| *it != at);
            next.threads[at] = Is::Holds { ticks: 0 };
            for thread in &mut next.threads {
                if let Is::Waits { writers, .. } = thread {
                    *writers = MANY.min(*writers + u8::from(WRITES[at]));
                }
            }
            return;
        }
        let ttl = said.number(2).clamp(1, 1000);
        let soon = u8::try_from((ttl + TICK - 1) / TICK).unwrap_or(1);
        match &mut next.threads[at] {
            Is::Waits { looks_in, .. } => *looks_in = soon,
            thread => {
                *thread = Is::Waits {
                    looks_in: soon,
                    writers: 0,
                    ticks: 0,
                };
                if WRITES[at] {
                    next.line.push(at);
                }
                next.tell_apart(at);
            }
        }
    }
}

impl State {
    /// How many writers have come in before a thread that waits, and how many ticks it has waited.
    fn waits(&self, at: usize) -> (u8, u8) {
        match self.threads[at] {
            Is::Waits { writers, ticks, .. } => (writers, ticks),
            _ => (0, 0),
        }
    }

    /// Lets those who are noted have come before this one, which has come at the same millisecond in the model.
    fn tell_apart(&mut self, at: usize) {
        let me = visitor(at);
        self.change_notes(|notes| {
            for (_, score) in notes.iter_mut().filter(|(visitor, _)| *visitor != me) {
                *score = came(*score, |time| time - 1);
            }
        });
    }

    fn call(&mut self, script: &str, names: &[&[u8]], args: &[&[u8]]) -> Said {
        let nobody = Subscriptions::new();
        server::call(&mut self.keys, script, names, args, &nobody)
    }

    fn tell_all(&mut self) {
        for thread in &mut self.threads {
            if let Is::Waits { looks_in, .. } = thread {
                *looks_in = 0;
            }
        }
    }

    fn change_notes(&mut self, change: impl FnOnce(&mut Vec<(Vec<u8>, Score)>)) {
        if let Some(mut entry) = server::entry(&self.keys, NOTES).cloned() {
            if let Value::Sorted(notes) = &mut entry.value {
                change(notes);
                notes.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
            }
            server::put(&mut self.keys, NOTES, Some(entry));
        }
    }

    /// Gives those who are noted times that tell their order alone.
    fn count_from_now(&mut self) {
        self.change_notes(|notes| {
            for (place, (_, score)) in notes.iter_mut().enumerate() {
                *score = came(*score, |_| NOW - 10 + place as i64);
            }
        });
    }
}

/// A score with another time of coming, if it has one.
fn came(score: Score, time: impl FnOnce(i64) -> i64) -> Score {
    match (score.whole(), looked(score)) {
        (whole, Some(at)) if whole > 0 => with_look(time(whole), at),
        _ => score,
    }
}

fn own(visitor: &[u8]) -> Vec<u8> {
    [LOCK, b":", visitor, b":rwlock_timeout:1"].concat()
}

fn visitor(at: usize) -> Vec<u8> {
    let write = if WRITES[at] { ":write" } else { "" };
    format!("client-{at}:1:1{write}").into_bytes()
}
