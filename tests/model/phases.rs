//! The read-write lock as a state machine: readers and writers that come again and again.
//!
//! Each thread is of a process of its own, and a tick is half a second: all are told at once of a message, look in time, and
//! give back what they hold. The server runs the scripts themselves. Runs have no end and yet finitely many states,
//! for the last phases alone count, not their number. Not in it: what fails, re-entry, a thread with both sides,
//! Redisson.

use redlatch_server::{Keyspace, Subscriptions, Value};
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

/// For so long one that waits to write counts as alive, and so long a reader needs to come, ms.
const ALIVE: &[u8] = b"3000";
const NEED: &[u8] = b"500";

/// The server time after which requests are refused.
const LATE: &[u8] = b"9000000000000000";

/// More than are ever counted.
const MANY: u8 = 20;

/// For so many ticks nobody waits: two holds of each side before it, and a window.
const LONGEST: u8 = 8;

/// What the clients and the server go by; the default is what the library does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether a reader tells in which phase it was turned away.
    pub(crate) has_memo: bool,
    /// Whether readers come in whoever waits to write.
    pub(crate) prefers_readers: bool,
    /// Whether a writer leaves the lock to readers that were turned away.
    pub(crate) opens_window: bool,
    /// Whether the last of these ends that time, not the first.
    pub(crate) counts_readers: bool,
    /// Whether a writer that waits is noted.
    pub(crate) notes_writers: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            has_memo: true,
            prefers_readers: false,
            opens_window: true,
            counts_readers: true,
            notes_writers: true,
        }
    }
}

/// The number of the present phase in all states in which so many writers were in.
const PHASE: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Is {
    Idle,
    Waits {
        /// The writer behind which a reader was told to come.
        memo: Option<u8>,
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
                let said = next.call(at, "read_write/release", &[&visitor, CHANNEL]);
                next.threads[at] = Is::Idle;
                if !said.told.is_empty() {
                    next.tell_all();
                }
            }
        }
        if !self.rules.opens_window {
            next.forget(&[b"turned", b"window", b"due"]);
        }
        if !self.rules.counts_readers {
            next.expect_one();
        }
        next.count_from_last();
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
        if WRITES[at] {
            let waits: &[u8] = if self.rules.notes_writers {
                ALIVE
            } else {
                b"0"
            };
            return next.call(
                at,
                "read_write/write",
                &[&visitor, LEASE, b"0", b"1", waits, LATE],
            );
        }
        let memo = match next.threads[at] {
            _ if self.rules.prefers_readers => "*".to_owned(),
            Is::Waits {
                memo: Some(memo), ..
            } if self.rules.has_memo => memo.to_string(),
            _ => String::new(),
        };
        let memo = memo.as_bytes();
        let args: [&[u8]; 8] = [&visitor, LEASE, b"0", b"1", b"", memo, NEED, LATE];
        next.call(at, "read_write/read", &args)
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
        let word = match WRITES[at] {
            true => None,
            false => std::str::from_utf8(said.text(4))
                .ok()
                .and_then(|it| it.parse().ok()),
        };
        match &mut next.threads[at] {
            Is::Waits { memo, looks_in, .. } => (*memo, *looks_in) = (word, soon),
            thread => {
                *thread = Is::Waits {
                    memo: word,
                    looks_in: soon,
                    writers: 0,
                    ticks: 0,
                };
                if WRITES[at] {
                    next.line.push(at);
                    next.tell_apart(at);
                }
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

    /// Lets the writers that are noted have come before this one, which has come at the same microsecond in the model.
    fn tell_apart(&mut self, at: usize) {
        let me = visitor(at);
        self.change_notes(|notes| {
            for (field, text) in notes.iter_mut().filter(|(field, _)| *field != me) {
                let noted = std::str::from_utf8(text)
                    .ok()
                    .and_then(|it| it.split_once(':'));
                let came = noted.and_then(|(came, ends)| Some((came.parse::<i64>().ok()?, ends)));
                if let Some((came, ends)) = came.filter(|_| field.ends_with(b":write")) {
                    *text = format!("{}:{ends}", came - 1).into_bytes();
                }
            }
        });
    }

    fn call(&mut self, at: usize, script: &str, args: &[&[u8]]) -> Said {
        let own = [LOCK, b":", &visitor(at), b":rwlock_timeout:1"].concat();
        let nobody = Subscriptions::new();
        server::call(&mut self.keys, script, &[LOCK, &own, NOTES], args, &nobody)
    }

    fn tell_all(&mut self) {
        for thread in &mut self.threads {
            if let Is::Waits { looks_in, .. } = thread {
                *looks_in = 0;
            }
        }
    }

    /// What is noted under a name.
    fn note(&self, name: &[u8]) -> Vec<u8> {
        let Some(Value::Hash(notes)) = server::entry(&self.keys, NOTES).map(|it| &it.value) else {
            return b"0".to_vec();
        };
        let found = notes.iter().find(|(field, _)| field == name);
        found.map_or(b"0".to_vec(), |(_, text)| text.clone())
    }

    fn change_notes(&mut self, change: impl FnOnce(&mut Vec<(Vec<u8>, Vec<u8>)>)) {
        if let Some(mut entry) = server::entry(&self.keys, NOTES).cloned() {
            if let Value::Hash(notes) = &mut entry.value {
                change(notes);
                notes.sort();
            }
            server::put(&mut self.keys, NOTES, Some(entry));
        }
    }

    fn forget(&mut self, names: &[&[u8]]) {
        self.change_notes(|notes| notes.retain(|(field, _)| !names.contains(&&**field)));
    }

    /// Lets the first reader that comes end the time of all.
    fn expect_one(&mut self) {
        self.change_notes(|notes| {
            for (_, text) in notes.iter_mut().filter(|(field, _)| field == b"due") {
                let due = numbers(text).map(|[opened, due]| [opened, due.min(1)]);
                *text = due.map_or(Vec::new(), |[opened, due]| {
                    format!("{opened},{due}").into_bytes()
                });
            }
        });
    }

    /// Gives the present phase the same number in all states, and those before it the numbers before that.
    fn count_from_last(&mut self) {
        let phase = std::str::from_utf8(&self.note(b"phase"))
            .ok()
            .and_then(|it| it.parse().ok());
        let past = phase.map_or(0, |phase: u8| phase.saturating_sub(PHASE));
        for thread in &mut self.threads {
            if let Is::Waits {
                memo: Some(memo), ..
            } = thread
            {
                *memo = memo.saturating_sub(past);
            }
        }
        self.change_notes(|notes| {
            for (field, text) in notes {
                if field == b"phase" && past > 0 {
                    *text = PHASE.to_string().into_bytes();
                } else if field == b"due"
                    && let Some([opened, due]) = numbers(text)
                {
                    *text = format!("{},{due}", opened.saturating_sub(past)).into_bytes();
                } else if field == b"window"
                    && std::str::from_utf8(text)
                        .is_ok_and(|it| it.parse().is_ok_and(|end: i64| end < NOW))
                {
                    *text = (NOW - 1).to_string().into_bytes();
                }
            }
        });
    }
}

/// Two numbers between which a comma stands.
fn numbers(text: &[u8]) -> Option<[u8; 2]> {
    let (one, other) = std::str::from_utf8(text).ok()?.split_once(',')?;
    Some([one.parse().ok()?, other.parse().ok()?])
}

fn visitor(at: usize) -> Vec<u8> {
    let write = if WRITES[at] { ":write" } else { "" };
    format!("client-{at}:1:1{write}").into_bytes()
}
