//! The measurements, on names that nobody else has.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use redlatch::{Error, Interrupt, Lock};

use crate::connect::Place;
use crate::errors::Failure;

/// A lock that is free is handed over in this time, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// A thread that is late makes up for so much of it.
const BEHIND: Duration = Duration::from_millis(20);

/// What is measured, and how.
pub(super) struct Bench<'a> {
    pub(super) place: &'a Place,
    /// The same place as another client.
    pub(super) other: &'a Place,
    /// The beginning of all names.
    pub(super) name: String,
    /// How long each measurement takes.
    pub(super) time: Duration,
    pub(super) max_rate: u32,
    pub(super) interrupt: &'a Interrupt,
}

/// The times that were measured, the shortest first.
pub(super) struct Sample {
    pub(super) threads: u32,
    pub(super) times: Vec<Duration>,
    pub(super) took: Duration,
}

impl Sample {
    fn new(threads: u32, mut times: Vec<Duration>, took: Duration) -> Sample {
        times.sort_unstable();
        Sample {
            threads,
            times,
            took,
        }
    }

    /// The time that so many percent of all do not exceed.
    pub(super) fn at(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100);
        self.times
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

/// The turns of one thread, which come no faster than they may.
struct Turns<'a> {
    each: Duration,
    next: Instant,
    until: Instant,
    /// So many come, however late it is.
    owed: u32,
    interrupt: &'a Interrupt,
}

impl Turns<'_> {
    /// Waits for the next turn; `false` if there is none.
    fn come(&mut self) -> bool {
        let now = Instant::now();
        let at = self.next;
        if at.max(now) >= self.until && self.owed == 0 {
            return false;
        }
        self.owed = self.owed.saturating_sub(1);
        // Turns that were missed come later, but not all at a time.
        self.next = now.checked_sub(BEHIND).map_or(at, |least| at.max(least)) + self.each;
        match at.checked_duration_since(now) {
            Some(pause) if !pause.is_zero() => !self.interrupt.wait_timeout(pause),
            _ => !self.interrupt.is_raised(),
        }
    }
}

impl Bench<'_> {
    fn lock(&self, place: &Place, name: &str) -> Lock {
        place.lock(&format!("{}:{name}", self.name))
    }

    fn turns(&self, threads: u32) -> Turns<'_> {
        let now = Instant::now();
        Turns {
            each: Duration::from_secs(threads.into()) / self.max_rate,
            next: now,
            until: now + self.time,
            // The first hand-off is not measured.
            owed: 2,
            interrupt: self.interrupt,
        }
    }

    /// The question whether a free name is locked: no other request costs less.
    pub(super) fn round_trip(&self) -> Result<Sample, Failure> {
        let lock = self.lock(self.place, "free");
        // The first one connects.
        lock.is_locked()?;
        let (begun, mut turns, mut times) = (Instant::now(), self.turns(1), Vec::new());
        while turns.come() {
            let asked = Instant::now();
            lock.is_locked()?;
            times.push(asked.elapsed());
        }
        Ok(Sample::new(1, times, begun.elapsed()))
    }

    /// Pairs of lock and unlock by so many threads, each with a name of its own.
    pub(super) fn pairs(&self, threads: u32) -> Result<Sample, Failure> {
        let begun = Instant::now();
        let done: Result<Vec<_>, Failure> = thread::scope(|scope| {
            let spawn = |number| scope.spawn(move || self.pairs_of_one(number, threads));
            let workers: Vec<_> = (0..threads).map(spawn).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                let died = |_| Err(Failure::usage("a thread of the measurement has died"));
                worker.join().unwrap_or_else(died)
            };
            // All have ended, and unlocked, before one is asked for its outcome.
            workers.into_iter().map(join).collect::<Vec<_>>()
        })
        .into_iter()
        .collect();
        let times = done?.concat();
        Ok(Sample::new(threads, times, begun.elapsed()))
    }

    fn pairs_of_one(&self, number: u32, threads: u32) -> Result<Vec<Duration>, Failure> {
        let lock = self.lock(self.place, &number.to_string());
        if !self.pair(&lock)? {
            return Ok(Vec::new());
        }
        let (mut turns, mut times) = (self.turns(threads), Vec::new());
        while turns.come() {
            let begun = Instant::now();
            if !self.pair(&lock)? {
                break;
            }
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    /// Locks and unlocks; `false` if it was interrupted before.
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

    /// From the unlock in one client to the lock in another, which waits for it.
    pub(super) fn hand_off(&self) -> Result<Sample, Failure> {
        let giver = self.lock(self.place, "handed");
        let taker = self.lock(self.other, "handed");
        let (go, gone) = bounded::<()>(0);
        let (tell, told) = bounded::<Result<Instant, Failure>>(1);
        let take = move || {
            for () in gone {
                let taken = take(&taker);
                if tell.send(taken).is_err() {
                    return;
                }
            }
        };
        let dead = || Failure::usage("a thread of the measurement has died");
        let begun = Instant::now();
        let times = thread::scope(|scope| {
            scope.spawn(take);
            // It ends with this end of the channel, and so before the scope.
            let go = go;
            let (mut turns, mut times) = (self.turns(1), Vec::new());
            let mut is_first = true;
            while turns.come() {
                match giver.lock_interruptibly(self.interrupt) {
                    Ok(()) => {}
                    Err(Error::Interrupted { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
                let waits = go.send(()).map_err(|_| dead());
                if waits.is_ok() {
                    until_waiting(self.other, self.interrupt);
                }
                let given = Instant::now();
                giver.unlock()?;
                waits?;
                let taken = told.recv().map_err(|_| dead())??;
                // The first one connects.
                if !std::mem::take(&mut is_first) {
                    times.push(taken.saturating_duration_since(given));
                }
            }
            Ok::<_, Failure>(times)
        })?;
        Ok(Sample::new(2, times, begun.elapsed()))
    }
}

/// Waits for the lock, and tells when it came.
fn take(lock: &Lock) -> Result<Instant, Failure> {
    if !lock.try_lock_for(PATIENCE)? {
        return Err(Failure::usage("the lock was not handed over"));
    }
    let taken = Instant::now();
    lock.unlock()?;
    Ok(taken)
}

/// Returns when a thread of the other client waits, and listens.
fn until_waiting(place: &Place, interrupt: &Interrupt) {
    let begun = Instant::now();
    while place.waits() == 0 && begun.elapsed() < PATIENCE && !interrupt.is_raised() {
        thread::sleep(Duration::from_micros(100));
    }
    // It subscribes and tries once more; that takes two round trips, and what took so long so far were at least as many.
    thread::sleep(begun.elapsed().max(Duration::from_millis(1)));
}
