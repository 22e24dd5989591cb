use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::ground::time;

const HOUR: Duration = Duration::from_secs(3600);

const LONG: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
struct Item(usize, Arc<AtomicBool>);

impl Timed for Item {
    fn is_due_at(&self, _: Instant) -> bool {
        self.1.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Bench {
    timer: Arc<Timer<Item>>,
    counts: Vec<Arc<AtomicBool>>,
}

impl Bench {
    fn schedule(&mut self, due: Instant, number: usize) {
        for _ in 0..number {
            let counts = Arc::new(AtomicBool::new(true));
            let item = Item(self.counts.len(), Arc::clone(&counts));
            assert!(self.timer.schedule(due, item));
            self.counts.push(counts);
        }
    }

    fn cancel(&self, numbers: Range<usize>) {
        for counts in &self.counts[numbers] {
            counts.store(false, Ordering::Relaxed);
            self.timer.cancelled();
        }
    }

    /// The number of entries in the timer, cancelled entries included.
    fn lying(&self) -> usize {
        let lies = |counts: &&Arc<AtomicBool>| Arc::strong_count(counts) > 1;
        self.counts.iter().filter(lies).count()
    }

    fn living(&self) -> usize {
        let mut living = 0;
        self.timer.each(|_| living += 1);
        living
    }

    fn due(&self) -> Vec<usize> {
        let due = self.timer.next_due().unwrap_or_default();
        due.into_iter().map(|item| item.0).collect()
    }
}

#[test]
fn due_entries_come_at_once_in_order_without_cancelled_ones() {
    let mut bench = Bench::default();
    let now = time::now();
    bench.schedule(now + HOUR, 1);
    bench.schedule(now + Duration::from_nanos(1), 2);
    bench.schedule(now, 2);
    bench.cancel(1..2);
    assert_eq!(bench.due(), [3, 4, 2]);
    assert_eq!((bench.lying(), bench.living()), (1, 1));
}

#[test]
fn only_valid_entries_are_visited() {
    let mut bench = Bench::default();
    bench.schedule(time::now() + HOUR, 3);
    bench.cancel(1..2);
    let mut visited = Vec::new();
    bench.timer.each(|item| visited.push(item.0));
    assert_eq!(visited, [0, 2]);
}

#[test]
fn a_closed_timer_accepts_and_returns_nothing() {
    let mut bench = Bench::default();
    bench.schedule(time::now(), 1);
    assert!(!bench.timer.is_closed());
    bench.timer.close();
    assert!(bench.timer.is_closed());
    let late = Item(1, Arc::default());
    assert!(!bench.timer.schedule(time::now(), late));
    assert!(bench.timer.next_due().is_none());
    assert_eq!(bench.lying(), 1);
}

#[test]
fn a_sweep_needs_8_cancelled_entries_and_half_of_all() {
    let mut bench = Bench::default();
    bench.schedule(time::now() + HOUR, 10);
    bench.cancel(0..8);
    assert_eq!(bench.lying(), 10);
    bench.cancel(8..9);
    assert_eq!((bench.lying(), bench.living()), (1, 1));

    let mut bench = Bench::default();
    bench.schedule(time::now() + HOUR, 400);
    bench.cancel(0..200);
    assert_eq!(bench.lying(), 400);
    bench.cancel(200..201);
    assert_eq!(bench.lying(), 199);
    // A sweep sets the count of cancelled entries to 0.
    bench.cancel(201..300);
    assert_eq!(bench.lying(), 199);
    bench.cancel(300..301);
    assert_eq!((bench.lying(), bench.living()), (99, 99));
}

#[test]
fn due_entries_leave_the_count_of_entries() {
    let mut bench = Bench::default();
    let now = time::now();
    bench.schedule(now, 61);
    bench.schedule(now + HOUR, 100);
    bench.cancel(0..60);
    bench.cancel(61..71);
    assert_eq!(bench.due(), [60]);
    assert_eq!(bench.lying(), 100);
    bench.cancel(71..111);
    assert_eq!(bench.lying(), 100, "50 of them were cancelled");
    bench.cancel(111..112);
    assert_eq!(bench.lying(), 49);

    let mut bench = Bench::default();
    bench.schedule(now, 200);
    bench.schedule(now + HOUR, 320);
    assert_eq!(bench.due().len(), 200);
    bench.cancel(200..360);
    assert_eq!(bench.lying(), 320);
    bench.cancel(360..361);
    assert_eq!(bench.lying(), 159);
}

#[test]
fn an_earlier_entry_wakes_the_thread() {
    for sleeps_past in [None, Some(HOUR)] {
        let mut bench = Bench::default();
        if let Some(later) = sleeps_past {
            bench.schedule(time::now() + later, 1);
        }
        let (tell, told) = mpsc::channel();
        let timer = Arc::clone(&bench.timer);
        thread::spawn(move || tell.send(timer.next_due()));
        while !bench.timer.inner.lock().asleep {
            thread::yield_now();
        }
        bench.schedule(time::now(), 1);
        let due = told.recv_timeout(LONG).ok().flatten();
        assert_eq!(due.map(|due| due.len()), Some(1), "{sleeps_past:?}");
    }
}

#[test]
fn closing_wakes_the_thread() {
    let timer = Arc::<Timer<Item>>::default();
    let (tell, told) = mpsc::channel();
    let theirs = Arc::clone(&timer);
    thread::spawn(move || tell.send(theirs.next_due().is_none()));
    while !timer.inner.lock().asleep {
        thread::yield_now();
    }
    timer.close();
    assert_eq!(told.recv_timeout(LONG), Ok(true));
}

/// Waits until `thread` sleeps at the timer. Returns the line of its `status` file that counts its sleeps.
#[cfg(target_os = "linux")]
fn sleeps(timer: &Timer<Item>, thread: &std::path::Path) -> Option<String> {
    while !timer.inner.lock().asleep {
        thread::yield_now();
    }
    let is_asleep = |status: &str| status.lines().any(|line| line.starts_with("State:\tS"));
    loop {
        let status = std::fs::read_to_string(thread.join("status")).ok()?;
        if is_asleep(&status) {
            let mut lines = status.lines();
            return lines
                .find(|line| line.starts_with("voluntary"))
                .map(str::to_owned);
        }
        thread::yield_now();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_later_entry_wakes_nothing() {
    let mut bench = Bench::default();
    let first = time::now() + HOUR;
    bench.schedule(first, 1);
    let (tell, told) = mpsc::channel();
    let timer = Arc::clone(&bench.timer);
    thread::spawn(move || {
        let _ = tell.send(std::fs::canonicalize("/proc/thread-self").unwrap_or_default());
        timer.next_due()
    });
    let thread = told.recv().unwrap_or_default();
    let before = sleeps(&bench.timer, &thread);
    for later in [Duration::ZERO, HOUR] {
        bench.schedule(first + later, 1);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(sleeps(&bench.timer, &thread), before, "{later:?}");
    }
    assert!(before.is_some());
    bench.timer.close();
}
