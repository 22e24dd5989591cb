//! The waiting code of the library under shuttle, which tries many interleavings of its threads.
//!
//! The wait queue, the notifier and the timer are compiled here against `sync.rs` of this folder, from copies in which
//! `build.rs` plants bugs. Each scenario is also run with a bug, which it has to find.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "not every part of the files is driven here"
)]

/// The copy of a file of `src`.
macro_rules! library {
    ($file:literal) => {
        include!(concat!(env!("OUT_DIR"), "/src/", $file));
    };
}

#[path = "."]
mod ground {
    pub(crate) mod claim {
        pub(crate) type LockId = std::sync::Arc<str>;
    }
    pub(crate) mod notify {
        library!("ground/notify.rs");
    }
    #[path = "sync.rs"]
    pub(crate) mod sync;
    pub(crate) mod time {
        use std::time::{Duration, Instant};

        /// Time is fixed; the scheduler chooses which deadlines have passed.
        pub(crate) fn now() -> Instant {
            super::sync::start()
        }

        pub(crate) fn since(moment: Instant) -> Duration {
            now() - moment
        }
    }
}
mod timer {
    library!("engine/timer.rs");
}
mod wait_queue {
    library!("engine/wait_queue/mod.rs");
}

#[path = "planted.rs"]
mod own;
#[path = "../sim/planted/mod.rs"]
mod planted;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use shuttle::thread;

use ground::notify::{Notifier, Wake};
use ground::sync::{self, Mutex};
use timer::{Timed, Timer};
use wait_queue::{Successor, Turn, WaitQueues};

/// Runs `scenario` in many schedules: random ones, and schedules with few well-placed switches.
fn explore(scenario: fn()) {
    let schedules = if std::env::var_os("REDLATCH_LONG").is_some() {
        200_000
    } else {
        4_000
    };
    shuttle::check_random(scenario, schedules);
    shuttle::check_pct(scenario, schedules, 3);
}

/// Runs `scenario` with a planted bug, and asserts that it is found.
fn finds(bug: &'static str, scenario: fn()) {
    ground::sync::plant(bug);
    let found = std::panic::catch_unwind(|| explore(scenario)).is_err();
    ground::sync::plant("");
    assert!(found, "nobody noticed: {bug}");
}

/// A lock whose state is one flag, with the wait loop's order: attempt, join, attempt, sleep, attempt.
struct Latch {
    name: Arc<str>,
    held: Mutex<bool>,
    notifier: Arc<Notifier>,
}

impl Latch {
    fn new() -> Arc<Latch> {
        Arc::new(Latch {
            name: "orders".into(),
            held: Mutex::new(false),
            notifier: Arc::default(),
        })
    }

    fn attempt(&self) -> bool {
        !std::mem::replace(&mut *self.held.lock(), true)
    }

    fn unlock(&self) {
        *self.held.lock() = false;
        self.notifier.release(&self.name, 1);
    }

    /// Acquires the latch; false if the deadline passes or it is interrupted first.
    fn lock(
        &self,
        deadline: Option<Instant>,
        interrupter: Option<&Mutex<Option<Arc<ground::notify::Parker>>>>,
    ) -> bool {
        if self.attempt() {
            return true;
        }
        let parker = self.notifier.parker();
        if let Some(node) = interrupter {
            *node.lock() = Some(Arc::clone(&parker));
        }
        let mut registration = self.notifier.join(0, &self.name, &parker);
        if !sync::mutant("no attempt after joining") {
            if self.attempt() {
                return true;
            }
            registration.spend();
        }
        loop {
            match registration.park(deadline) {
                Wake::Permit | Wake::Look => {
                    // It may leave with a permit, because the caller also checks the deadline.
                    if deadline.is_some_and(|deadline| sync::Clock::look().has_passed(deadline)) {
                        return false;
                    }
                    if self.attempt() {
                        return true;
                    }
                    registration.spend();
                }
                Wake::TimedOut | Wake::Interrupted | Wake::Closed => return false,
            }
        }
    }
}

/// Patient waiters must all acquire, whatever impatient waiters do meanwhile.
fn patient_and_impatient() {
    let latch = Latch::new();
    let patient: Vec<_> = (0..2)
        .map(|_| {
            let latch = Arc::clone(&latch);
            thread::spawn(move || {
                assert!(latch.lock(None, None));
                thread::yield_now();
                latch.unlock();
            })
        })
        .collect();
    let impatient: Vec<_> = (0..2)
        .map(|_| {
            let latch = Arc::clone(&latch);
            thread::spawn(move || {
                if latch.lock(Some(sync::near()), None) {
                    latch.unlock();
                }
            })
        })
        .collect();
    for thread in patient.into_iter().chain(impatient) {
        thread.join().unwrap();
    }
}

/// An interrupted waiter must not take a wake-up with it.
fn patient_and_interrupted() {
    let latch = Latch::new();
    let node = Arc::new(Mutex::new(None));
    assert!(latch.attempt());
    let interrupted = thread::spawn({
        let (latch, node) = (Arc::clone(&latch), Arc::clone(&node));
        move || {
            if latch.lock(None, Some(&node)) {
                latch.unlock();
            }
        }
    });
    let patient = thread::spawn({
        let latch = Arc::clone(&latch);
        move || {
            assert!(latch.lock(None, None));
            latch.unlock();
        }
    });
    let interrupter = thread::spawn(move || {
        let parker: Option<Arc<ground::notify::Parker>> = node.lock().clone();
        if let Some(parker) = parker {
            parker.interrupt();
        }
    });
    latch.unlock();
    interrupter.join().unwrap();
    interrupted.join().unwrap();
    patient.join().unwrap();
}

/// Two messages wake two waiters, though the first waiter has not run yet when the second message arrives.
fn two_messages_for_two() {
    let notifier = Arc::new(Notifier::default());
    let name: Arc<str> = "orders".into();
    let parkers: Vec<_> = (0..2).map(|_| notifier.parker()).collect();
    let tickets: Vec<_> = parkers
        .iter()
        .map(|parker| notifier.join(0, &name, parker))
        .collect();
    let waiters: Vec<_> = tickets
        .into_iter()
        .map(|mut registration| {
            thread::spawn(move || {
                assert_eq!(registration.park(None), Wake::Permit);
                // Its attempt is resolved; a later permit belongs to another waiter.
                registration.spend();
            })
        })
        .collect();
    notifier.release(&name, 1);
    notifier.release(&name, 1);
    for waiter in waiters {
        waiter.join().unwrap();
    }
}

#[derive(Debug)]
struct Job {
    due: Mutex<Option<Instant>>,
    done: AtomicU32,
}

impl Job {
    fn due(due: Instant) -> Arc<Job> {
        Arc::new(Job {
            due: Mutex::new(Some(due)),
            done: AtomicU32::new(0),
        })
    }
}

impl Timed for Arc<Job> {
    fn is_due_at(&self, due: Instant) -> bool {
        *self.due.lock() == Some(due)
    }
}

/// The thread sleeps until a far entry; an added near entry must run, a cancelled one must not.
fn an_earlier_entry() {
    let timer: Arc<Timer<Arc<Job>>> = Arc::default();
    timer.schedule(sync::far(9), Job::due(sync::far(9)));
    let runner = thread::spawn({
        let timer = Arc::clone(&timer);
        move || {
            while let Some(jobs) = timer.next_due() {
                for job in jobs {
                    job.done.fetch_add(1, Ordering::SeqCst);
                    timer.close();
                }
            }
        }
    });
    let cancelled = Job::due(sync::far(1));
    timer.schedule(sync::far(1), Arc::clone(&cancelled));
    *cancelled.due.lock() = None;
    timer.cancelled();
    let near = Job::due(sync::near());
    timer.schedule(sync::near(), Arc::clone(&near));
    runner.join().unwrap();
    assert_eq!(near.done.load(Ordering::SeqCst), 1);
    assert_eq!(cancelled.done.load(Ordering::SeqCst), 0);
}

/// A lock whose state is the number of its holder, with hand-offs that succeed, fail, or free the lock instead.
struct Counter {
    name: Arc<str>,
    /// The holder, and the waiter that was next; 0 for none.
    holder: Mutex<u32>,
    inside: AtomicU32,
    notifier: Arc<Notifier>,
    wait_queues: Arc<WaitQueues<u32, u32>>,
}

impl Counter {
    fn new() -> Arc<Counter> {
        Arc::new(Counter {
            name: "orders".into(),
            holder: Mutex::new(0),
            inside: AtomicU32::new(0),
            notifier: Arc::default(),
            wait_queues: Arc::default(),
        })
    }

    fn attempt(&self, me: u32) -> bool {
        // A handed-off hold belongs to another visitor of the same thread, so it refuses this one.
        let mut holder = self.holder.lock();
        let is_free = *holder == 0;
        if is_free {
            *holder = me;
        }
        is_free
    }

    fn free(&self) {
        *self.holder.lock() = 0;
        // The message, then the notification of the queue, in the order of the library.
        self.notifier.release(&self.name, 1);
        self.wait_queues.freed(&self.name, None, None);
    }

    fn unlock(&self, fails: bool) {
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1);
        let successor: Option<Successor<u32, u32>> = self.wait_queues.choose(&self.name, None);
        match successor {
            Some(successor) if !fails => {
                let successor_hold = *successor.offer();
                *self.holder.lock() = successor_hold;
                thread::yield_now();
                if successor.grant(successor_hold, true).is_err() {
                    self.free();
                }
            }
            successor => {
                drop(successor);
                self.free();
            }
        }
    }

    /// Acquires the lock; false if it gives up first.
    fn lock(&self, me: u32, deadline: Option<Instant>) -> bool {
        let has_it = self.wait(me, deadline);
        if has_it {
            assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        }
        has_it
    }

    fn wait(&self, me: u32, deadline: Option<Instant>) -> bool {
        if !self.wait_queues.is_busy(&self.name) && self.attempt(me) {
            return true;
        }
        let parker = self.notifier.parker();
        let node = self.wait_queues.join(&self.name, &parker, me);
        let mut registration = None;
        let has_it = loop {
            if node.take().is_some() {
                break true;
            }
            if node.view().turn == Turn::Attempt {
                if registration.is_none() {
                    registration = Some(self.notifier.join(0, &self.name, &parker));
                }
                if self.attempt(me) {
                    break true;
                }
                node.note_refused(true);
                if let Some(registration) = &mut registration {
                    registration.spend();
                }
            }
            let wake = match &mut registration {
                Some(registration) => registration.park(deadline),
                None => parker.park(deadline),
            };
            if !matches!(wake, Wake::Permit | Wake::Look) {
                break false;
            }
        };
        match node.leave(has_it, false) {
            Some(handed) => {
                assert_eq!(handed, me);
                assert!(!has_it, "granted twice");
                true
            }
            None => has_it,
        }
    }
}

/// Patient waiters all acquire, whichever others leave the queue, and whichever hand-off fails.
fn a_line_with_impatient_ones() {
    let counter = Counter::new();
    let threads: Vec<_> = (1..=4)
        .map(|me| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                let deadline = (me % 2 == 0).then(sync::near);
                let has_it = counter.lock(me, deadline);
                assert!(has_it || deadline.is_some());
                if has_it {
                    thread::yield_now();
                    counter.unlock(me == 3);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*counter.holder.lock(), 0, "nobody has it any more");
}

/// Two threads that acquire alternately: no waiter misses a free lock.
fn two_that_come_again() {
    let counter = Counter::new();
    let threads: Vec<_> = (1..=2)
        .map(|me| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                for round in 0..4 {
                    assert!(counter.lock(me, None));
                    thread::yield_now();
                    // Sometimes freed in place of a hand-off.
                    counter.unlock(round % 2 == 0);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*counter.holder.lock(), 0, "nobody has it any more");
}

#[test]
fn no_waiter_misses_a_concurrent_release() {
    explore(two_that_come_again);
    finds(
        "a lock that was set free is taken for held here",
        two_that_come_again,
    );
}

#[test]
fn the_queue_loses_no_waiter_and_no_wake_up() {
    explore(a_line_with_impatient_ones);
    finds("one who left is handed a hold", a_line_with_impatient_ones);
    finds("nobody takes over", a_line_with_impatient_ones);
}

#[test]
fn a_timed_out_waiter_takes_no_wake_up_with_it() {
    explore(patient_and_impatient);
    finds("a leaving waiter keeps its permit", patient_and_impatient);
    finds("no attempt after joining", patient_and_impatient);
}

#[test]
fn an_interrupted_waiter_takes_no_wake_up_with_it() {
    explore(patient_and_interrupted);
    finds("a leaving waiter keeps its permit", patient_and_interrupted);
}

#[test]
fn each_message_wakes_a_waiter_of_its_own() {
    explore(two_messages_for_two);
    finds("a second permit for one waiter", two_messages_for_two);
}

#[test]
fn the_timer_wakes_for_an_earlier_entry() {
    explore(an_earlier_entry);
    finds("an earlier entry wakes nobody", an_earlier_entry);
}

#[test]
fn each_planted_bug_has_a_search() {
    let scenarios = [include_str!("main.rs")];
    for bug in own::BUGS {
        let name = format!("{:?}", bug.name);
        let is_found = scenarios.iter().any(|text| text.contains(&name));
        assert!(is_found, "no scenario finds {name}");
    }
}
