//! The state of the world, and pure functions of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::Thread;

use fastrand::Rng;

use super::{AS, IS_WORLD, ME, MOST_IN_ALL, MOST_STEPS, NEVER, Nanos, Pace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Blocked,
    Ended,
}

pub(super) struct Task {
    pub(super) name: String,
    pub(super) process: usize,
    pub(super) thread: Option<Thread>,
    pub(super) has_turn: Arc<AtomicBool>,
    pub(super) state: State,
    /// The key it waits at, and the deadline.
    pub(super) key: usize,
    pub(super) deadline: Nanos,
    pub(super) has_timed_out: bool,
    pub(super) rank: u64,
}

/// A process of the world: a label on threads, and clocks of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) name: String,
    /// The number of present pauses.
    pub(super) pauses: u32,
    pub(super) is_killed: bool,
    /// How much faster its clocks run, in millionths.
    pub(super) rate: i64,
    /// Its clock since boot at the start.
    pub(super) booted: Nanos,
    /// How long its threads have been kept from running.
    pub(super) lag: Nanos,
    /// How long the machine has slept, during which the clock of deadlines stops; and until when it sleeps.
    pub(super) slept: Nanos,
    pub(super) sleeps_until: Nanos,
}

pub(super) type Event = Box<dyn FnOnce() + Send>;

pub(super) struct Core {
    pub(super) now: Nanos,
    pub(super) draw: Rng,
    pub(super) pace: Pace,
    pub(super) tasks: Vec<Task>,
    /// The live ones, in order.
    pub(super) live: Vec<usize>,
    /// A buffer for some of them.
    pub(super) able: Vec<usize>,
    pub(super) processes: Vec<Process>,
    pub(super) events: BTreeMap<(Nanos, u64), Event>,
    pub(super) next_event: u64,
    pub(super) steps: u64,
    pub(super) switches: u64,
    /// The step at which the present time began.
    pub(super) stands_at: Nanos,
    pub(super) stands_since: u64,
    /// Of all choices.
    pub(super) hash: u64,
    pub(super) trace: Option<String>,
    pub(super) is_closing: bool,
}

impl Core {
    pub(super) fn task(&mut self, index: usize) -> &mut Task {
        &mut self.tasks[index]
    }

    pub(super) fn chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.draw.f64() < chance
    }

    pub(super) fn may_run(&self, index: usize) -> bool {
        let task = &self.tasks[index];
        let process = &self.processes[task.process];
        task.state == State::Ready && process.pauses == 0 && !process.is_killed
    }

    pub(super) fn pick(&mut self) -> Option<usize> {
        let mut able = std::mem::take(&mut self.able);
        able.clear();
        able.extend(self.live.iter().filter(|index| self.may_run(**index)));
        let next = if self.pace.ranks {
            able.iter()
                .copied()
                .max_by_key(|index| self.tasks[*index].rank)
        } else if able.len() > 1 {
            let chosen = self.draw.clone().usize(..able.len());
            self.draw.u64(..);
            able.get(chosen).copied()
        } else {
            able.first().copied()
        };
        self.able = able;
        next
    }

    /// The time of the next event, if no thread runs.
    pub(super) fn next_instant(&self) -> Option<Nanos> {
        let live = self.live.iter().map(|index| &self.tasks[*index]);
        let waits =
            |task: &&Task| task.state == State::Blocked && !self.processes[task.process].is_killed;
        let deadlines = live.filter(waits).map(|task| task.deadline);
        let events = self.events.keys().next().map(|(at, _)| *at);
        deadlines.chain(events).filter(|at| *at != NEVER).min()
    }

    /// Sets the clock, and readies threads whose deadline has passed.
    pub(super) fn set_time(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.now);
        self.now += passed;
        // By their bits, the processes that are kept from running.
        let mut kept = 0_u64;
        for index in &self.live {
            let task = &mut self.tasks[*index];
            if task.state == State::Ready {
                kept |= 1 << task.process;
            } else if task.state == State::Blocked && task.deadline <= self.now {
                task.state = State::Ready;
                task.has_timed_out = true;
            }
        }
        for (number, process) in self.processes.iter_mut().enumerate() {
            if kept & 1 << number != 0 {
                process.lag += passed;
            }
        }
    }

    pub(super) fn next_due(&mut self) -> Option<Event> {
        let entry = self.events.first_entry()?;
        (entry.key().0 <= self.now).then(|| entry.remove())
    }

    /// Readies up to `most` random waiters at `key`. Returns how many.
    pub(super) fn wake(&mut self, key: usize, most: usize) -> usize {
        let waits = |index: &&usize| {
            let task = &self.tasks[**index];
            task.key == key && task.state == State::Blocked
        };
        let mut waiting = std::mem::take(&mut self.able);
        waiting.clear();
        waiting.extend(self.live.iter().filter(waits));
        while waiting.len() > most {
            let lucky = self.draw.usize(..waiting.len());
            waiting.swap_remove(lucky);
        }
        for index in &waiting {
            self.tasks[*index].state = State::Ready;
        }
        let count = waiting.len();
        self.able = waiting;
        count
    }

    /// How long a process has been awake, of the time of the world.
    pub(super) fn awake(&self, process: usize) -> Nanos {
        let process = &self.processes[process];
        self.now + process.sleeps_until.saturating_sub(self.now) - process.slept
    }

    /// The time at which a process will have been awake for `awake`.
    pub(super) fn asleep(&self, process: usize, awake: Nanos) -> Nanos {
        awake.saturating_add(self.processes[process].slept)
    }

    pub(super) fn local(&self, process: usize, at: Nanos) -> Nanos {
        let rate = self.processes[process].rate;
        let more = i128::from(at) * i128::from(rate) / 1_000_000;
        u64::try_from(i128::from(at) + more).unwrap_or(NEVER)
    }

    /// The first world time at which the clock of a process reads `local` or more.
    pub(super) fn of_local(&self, process: usize, local: Nanos) -> Nanos {
        let rate = i128::from(self.processes[process].rate);
        let guess = i128::from(local) * 1_000_000 / (1_000_000 + rate);
        let mut at = u64::try_from(guess).unwrap_or(NEVER);
        while at < NEVER && self.local(process, at) < local {
            at += 1;
        }
        at
    }

    pub(super) fn process_of(&self) -> usize {
        let of_thread = || ME.get().map(|me| self.tasks[me].process);
        AS.get().or_else(of_thread).unwrap_or_default()
    }

    /// Returns whether there were too many, in all or without time passing.
    pub(super) fn count_step(&mut self) -> bool {
        self.steps += 1;
        if self.now != self.stands_at {
            (self.stands_at, self.stands_since) = (self.now, self.steps);
        }
        self.steps - self.stands_since >= MOST_STEPS || self.steps >= MOST_IN_ALL
    }

    pub(super) fn mix(&mut self, what: u64) {
        self.hash = (self.hash.rotate_left(5) ^ what).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let at = self.now / 1_000;
            let who = match ME.get().filter(|_| !IS_WORLD.get()) {
                Some(me) => {
                    let task = &self.tasks[me];
                    format!("{} {}", self.processes[task.process].name, task.name)
                }
                None => "world".to_owned(),
            };
            let text = text();
            if let Some(trace) = &mut self.trace {
                let (millis, micros) = (at / 1_000, at % 1_000);
                // Writing to a string cannot fail.
                let _ = writeln!(trace, "{millis:>7}.{micros:03} {who:<24} {text}");
            }
        }
    }
}
