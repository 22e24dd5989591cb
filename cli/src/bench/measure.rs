//! The measurements. They use lock names that no other client uses.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use redlatch::{Error, Interrupt, Lock};

use crate::connect::Backend;
use crate::errors::Failure;

/// If a hand-off takes longer, the measurement fails.
const HAND_OFF_TIMEOUT: Duration = Duration::from_secs(30);

/// A late thread catches up with missed rounds by at most this time.
const MAX_LAG: Duration = Duration::from_millis(20);

pub(super) struct Bench<'a> {
    pub(super) backend: &'a Backend,
    /// A second client of the same servers.
    pub(super) other: &'a Backend,
    pub(super) name: String,
    pub(super) time: Duration,
    pub(super) max_rate: u32,
    pub(super) interrupt: &'a Interrupt,
}

/// The measured times, in ascending order.
pub(super) struct Samples {
    pub(super) threads: u32,
    pub(super) times: Vec<Duration>,
    pub(super) took: Duration,
}

impl Samples {
    fn new(threads: u32, mut times: Vec<Duration>, took: Duration) -> Samples {
        times.sort_unstable();
        Samples {
            threads,
            times,
            took,
        }
    }

    /// Returns the time that `percent` % of the samples do not exceed.
    pub(super) fn at(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100);
        self.times
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

struct Pacer<'a> {
    each: Duration,
    next: Instant,
    until: Instant,
    /// How many rounds run in any case, even after `until`.
    least: u32,
    interrupt: &'a Interrupt,
}

impl Pacer<'_> {
    /// Returns `false` if there is no next round.
    fn wait_for_next(&mut self) -> bool {
        let now = Instant::now();
        let at = self.next;
        if at.max(now) >= self.until && self.least == 0 {
            return false;
        }
        self.least = self.least.saturating_sub(1);
        self.next = now.checked_sub(MAX_LAG).map_or(at, |least| at.max(least)) + self.each;
        match at.checked_duration_since(now) {
            Some(pause) if !pause.is_zero() => !self.interrupt.wait_timeout(pause),
            _ => !self.interrupt.is_raised(),
        }
    }
}

impl Bench<'_> {
    fn lock(&self, backend: &Backend, name: &str) -> Lock {
        backend.lock(&format!("{}:{name}", self.name))
    }

    fn pacer(&self, threads: u32) -> Pacer<'_> {
        let now = Instant::now();
        Pacer {
            each: Duration::from_secs(threads.into()) / self.max_rate,
            next: now,
            until: now + self.time,
            // The first hand-off connects, so it is not measured.
            least: 2,
            interrupt: self.interrupt,
        }
    }

    /// Asks whether a free lock is locked, which is the cheapest request of the library.
    pub(super) fn round_trip(&self) -> Result<Samples, Failure> {
        let lock = self.lock(self.backend, "free");
        // The first request connects, so it is not measured.
        lock.is_locked()?;
        let (begun, mut pacer, mut times) = (Instant::now(), self.pacer(1), Vec::new());
        while pacer.wait_for_next() {
            let asked = Instant::now();
            lock.is_locked()?;
            times.push(asked.elapsed());
        }
        Ok(Samples::new(1, times, begun.elapsed()))
    }

    /// Each thread has a lock of its own.
    pub(super) fn pairs(&self, threads: u32) -> Result<Samples, Failure> {
        let begun = Instant::now();
        let done: Result<Vec<_>, Failure> = thread::scope(|scope| {
            let spawn = |number| scope.spawn(move || self.pairs_of_one(number, threads));
            let workers: Vec<_> = (0..threads).map(spawn).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().unwrap_or_else(|_| Err(thread_panicked()))
            };
            // All threads have unlocked before the first result is read.
            workers.into_iter().map(join).collect::<Vec<_>>()
        })
        .into_iter()
        .collect();
        let times = done?.concat();
        Ok(Samples::new(threads, times, begun.elapsed()))
    }

    fn pairs_of_one(&self, number: u32, threads: u32) -> Result<Vec<Duration>, Failure> {
        let lock = self.lock(self.backend, &number.to_string());
        if !self.pair(&lock)? {
            return Ok(Vec::new());
        }
        let (mut pacer, mut times) = (self.pacer(threads), Vec::new());
        while pacer.wait_for_next() {
            let begun = Instant::now();
            if !self.pair(&lock)? {
                break;
            }
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    /// Returns `false` if a signal interrupted the wait.
    fn pair(&self, lock: &Lock) -> Result<bool, Failure> {
        match lock.lock_interruptibly(self.interrupt) {
            Ok(()) => {
                lock.unlock()?;
                Ok(true)
            }
            Err(Error::Interrupted { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Measures the time from an unlock in one client until another client, which waits, has the lock.
    pub(super) fn hand_off(&self) -> Result<Samples, Failure> {
        let giver = self.lock(self.backend, "handed");
        let taker = self.lock(self.other, "handed");
        let (go, gone) = bounded::<()>(0);
        let (sender, receiver) = bounded::<Result<Instant, Failure>>(1);
        let take = move || {
            for () in gone {
                let taken = take(&taker);
                if sender.send(taken).is_err() {
                    return;
                }
            }
        };
        let begun = Instant::now();
        let times = thread::scope(|scope| {
            scope.spawn(take);
            // The drop of `go` at the end of this closure ends the taker thread.
            let go = go;
            let (mut pacer, mut times) = (self.pacer(1), Vec::new());
            let mut is_first = true;
            while pacer.wait_for_next() {
                match giver.lock_interruptibly(self.interrupt) {
                    Ok(()) => {}
                    Err(Error::Interrupted { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
                let waits = go.send(()).map_err(|_| thread_panicked());
                if waits.is_ok() {
                    until_waiting(self.other, self.interrupt);
                }
                let given = Instant::now();
                giver.unlock()?;
                waits?;
                let taken = receiver.recv().map_err(|_| thread_panicked())??;
                // The first request connects, so it is not measured.
                if !std::mem::take(&mut is_first) {
                    times.push(taken.saturating_duration_since(given));
                }
            }
            Ok::<_, Failure>(times)
        })?;
        Ok(Samples::new(2, times, begun.elapsed()))
    }
}

fn thread_panicked() -> Failure {
    Failure::usage("a thread of the measurement panicked; report this as a defect of redlatch")
}

/// Returns the time of the acquisition.
fn take(lock: &Lock) -> Result<Instant, Failure> {
    if !lock.try_lock_for(HAND_OFF_TIMEOUT)? {
        return Err(Failure::usage(
            "the waiting client did not acquire the lock within 30 s of the unlock; check the server with redlatch \
             doctor",
        ));
    }
    let taken = Instant::now();
    lock.unlock()?;
    Ok(taken)
}

fn until_waiting(backend: &Backend, interrupt: &Interrupt) {
    let begun = Instant::now();
    while backend.waiter_count() == 0
        && begun.elapsed() < HAND_OFF_TIMEOUT
        && !interrupt.is_raised()
    {
        thread::sleep(Duration::from_micros(100));
    }
    // The waiter now subscribes and tries once more. The pause leaves time for both.
    thread::sleep(begun.elapsed().max(Duration::from_millis(1)));
}
