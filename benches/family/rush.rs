//! Many threads that acquire and release repeatedly; `Rush.java` does the same.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::members::Member;

/// One of this many turns of a thread writes.
const READS_PER_WRITE: usize = 20;

/// The weight of a writer, which excludes every reader; a reader weighs 1.
pub(crate) const WRITER: usize = 1000;

/// The result of a rush.
#[derive(Clone, Debug)]
pub(crate) struct Rushed {
    /// The time until all threads have finished.
    pub(crate) took: Duration,
    /// Of readers (or of all, for kinds without sides), and of writers.
    pub(crate) longest_waits: [Duration; 2],
    /// With [`WRITER`] for a writer; 0 if unknown.
    pub(crate) most_inside: usize,
    /// How often each thread acquired.
    pub(crate) times: Vec<u64>,
}

impl Rushed {
    /// Parses the output of `Rush.java`.
    pub(crate) fn of(numbers: &[u64]) -> Rushed {
        let [took, reader, writer, times @ ..] = numbers else {
            panic!("a rush has more numbers than {numbers:?}")
        };
        Rushed {
            took: Duration::from_nanos(*took),
            longest_waits: [*reader, *writer].map(Duration::from_nanos),
            most_inside: 0,
            times: times.to_vec(),
        }
    }

    pub(crate) fn acquisitions(&self) -> f64 {
        self.times.iter().sum::<u64>() as f64
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.acquisitions() / self.took.as_secs_f64()
    }

    /// The fewest acquisitions of a thread, divided by the most.
    pub(crate) fn fairness(&self) -> f64 {
        let bounds = (self.times.iter().min(), self.times.iter().max());
        let (Some(fewest), Some(most)) = bounds else {
            panic!("no threads")
        };
        *fewest as f64 / *most as f64
    }

    pub(crate) fn longest_wait_ms(&self, writes: bool) -> f64 {
        self.longest_waits[usize::from(writes)].as_secs_f64() * 1000.0
    }
}

/// Runs one thread for each member; writers weigh `writer`.
pub(crate) fn rush(
    members: Vec<Box<dyn Member>>,
    time: Duration,
    inside: Duration,
    writer: usize,
) -> Rushed {
    let ready = Barrier::new(members.len() + 1);
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .enumerate()
            .map(|(first, mut member)| {
                let (ready, now, most) = (&ready, &now, &most);
                scope.spawn(move || {
                    ready.wait();
                    let (mut times, mut longest) = (0, [Duration::ZERO; 2]);
                    let end = Instant::now() + time;
                    loop {
                        let asked = Instant::now();
                        if asked >= end {
                            return (times as u64, longest);
                        }
                        let writes = (times + first) % READS_PER_WRITE == 0;
                        member.enter(writes);
                        let longest = &mut longest[usize::from(writes)];
                        *longest = asked.elapsed().max(*longest);
                        let weight = if writes { writer } else { 1 };
                        let here = now.fetch_add(weight, Ordering::SeqCst) + weight;
                        most.fetch_max(here, Ordering::SeqCst);
                        if !inside.is_zero() {
                            thread::sleep(inside);
                        }
                        now.fetch_sub(weight, Ordering::SeqCst);
                        member.leave(writes);
                        times += 1;
                    }
                })
            })
            .collect();
        ready.wait();
        let start = Instant::now();
        let mut rushed = Rushed {
            took: Duration::ZERO,
            longest_waits: [Duration::ZERO; 2],
            most_inside: 0,
            times: Vec::new(),
        };
        for thread in threads {
            let (times, longest) = thread.join().expect("a thread");
            rushed.times.push(times);
            for (all, one) in rushed.longest_waits.iter_mut().zip(longest) {
                *all = one.max(*all);
            }
        }
        rushed.took = start.elapsed();
        rushed.most_inside = most.load(Ordering::SeqCst);
        rushed
    })
}
