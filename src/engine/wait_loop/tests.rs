//! A table of the rules of a wait. Each row has the events of one wait and the steps that follow. Times are in ms since the
//! beginning of the wait. A random time is written as a range.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::Timeouts;
use crate::engine::wait_loop::next_step::{BURST, Next, Seen, Time, Waiting};
use crate::engine::wait_queue::{Turn, View};
use crate::ground::error::{Error, Result};
use crate::store::{Delivery, Refusal};

#[derive(Clone, Copy)]
enum Limit {
    Once,
    Forever,
    For(u64),
}

/// An event of the wait: a reply, a wake-up, or a change of its queue.
#[derive(Clone, Copy)]
enum Told {
    Nothing,
    /// Another client has the lock. The number is the rest of its lease in ms.
    Refused(u64),
    /// Another client has the lock, and the lock's key has no TTL.
    Endless,
    /// No client acquired a majority of the quorum's nodes. The number is the round trip in ms.
    Split(u64),
    Fails(fn(Arc<str>) -> Error),
    /// The waiter is the first of its queue. The number is the time of the last usable reply.
    First(u64),
    Behind(u64),
    HeldLocally(u64),
    Yielding(u64),
    /// The waiter is not the first of its queue, and the last reply to the first waiter was not usable.
    InDoubt(u64),
    Hears(Delivery, u64),
    Woken,
    TimedOut,
    /// The waiter is woken this many times, and each attempt that follows is refused.
    WokenInVain(u32),
}

#[derive(Debug)]
enum Does {
    Refused,
    Fails(&'static str),
    Attempts(RangeInclusive<u64>),
    Joins,
    Listens,
    Sleeps(RangeInclusive<u64>),
    Rests(RangeInclusive<u64>),
}

use Delivery::{Live, Pending, Polling};
use Does::{Attempts, Joins, Listens, Rests, Sleeps};
use Limit::{For, Forever, Once};
use Told::*;

fn reason() -> (Arc<str>, String) {
    ("there".into(), "it is silent".to_owned())
}

fn unreachable(lock: Arc<str>) -> Error {
    let (node, reason) = reason();
    let source = None;
    Error::Unreachable {
        lock,
        node,
        reason,
        source,
    }
}

fn unknown(lock: Arc<str>) -> Error {
    let (node, reason) = reason();
    Error::Unknown {
        lock,
        node,
        operation: "acquire",
        visitor: None,
        reason,
        source: None,
    }
}

fn not_reentrant(lock: Arc<str>) -> Error {
    Error::NotReentrant { lock }
}

type Row = (&'static str, Limit, Vec<(u64, Told, Does)>);

/// A request may take 750 ms: `command_timeout` minus a margin of 50 ms.
const TIMEOUTS: Timeouts = Timeouts {
    watchdog_timeout: Duration::from_secs(30),
    command_timeout: Duration::from_millis(800),
    outage_timeout: Duration::from_millis(1300),
};

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        ("a single attempt that is refused", Once, vec![
            (0, Nothing, Attempts(750..=750)), (9, Refused(5000), Does::Refused)]),
        ("a single attempt that fails", Once, vec![
            (0, Nothing, Attempts(750..=750)), (9, Fails(unreachable), Does::Fails("unreachable"))]),
        ("an error that waiting cannot help", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Fails(not_reentrant), Does::Fails("not_reentrant"))]),
        ("a release cannot slip in between refusal and sleep", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Refused(5000), Joins), (9, First(9), Listens),
            (9, Hears(Live, 0), Attempts(759..=759)), (20, Refused(5000), Sleeps(1020..=1120))]),
        ("a subscription that is not live yet wakes it when it is", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Refused(5000), Joins), (9, First(9), Listens),
            (9, Hears(Pending, 0), Sleeps(1009..=1109)), (12, Woken, Attempts(762..=762))]),
        ("a store without messages is polled, less and less often", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Refused(5000), Joins), (9, First(9), Listens),
            (9, Hears(Polling, 0), Sleeps(11..=17)), (17, TimedOut, Attempts(767..=767)),
            (20, Refused(5000), Sleeps(25..=35)), (35, TimedOut, Attempts(785..=785)),
            (40, Refused(5000), Sleeps(50..=70))]),
        ("it asks when the holder's lease ends", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Refused(30), Joins), (9, First(9), Listens),
            (9, Hears(Pending, 0), Sleeps(40..=40)), (40, TimedOut, Attempts(790..=790))]),
        ("it asks although it heard nothing", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Refused(60_000), Joins), (9, First(9), Listens),
            (9, Hears(Pending, 0), Sleeps(1009..=1109)), (1109, TimedOut, Attempts(1859..=1859))]),
        ("a re-entry that is refused waits outside of the queue", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Refused(60_000), Joins), (9, Nothing, Listens),
            (9, Hears(Pending, 0), Sleeps(1009..=1109)), (12, Woken, Attempts(762..=762)),
            (20, Refused(60_000), Joins), (20, Nothing, Sleeps(1020..=1120))]),
        ("a wait of zero allows one round trip", For(0), vec![
            (0, Nothing, Attempts(180..=180)), (9, Refused(5000), Does::Refused)]),
        ("it sleeps to its deadline, asks once more, and gives up", For(500), vec![
            (0, Nothing, Attempts(680..=680)), (9, Refused(5000), Joins), (9, First(9), Listens),
            (9, Hears(Pending, 0), Sleeps(500..=500)), (501, TimedOut, Attempts(681..=681)),
            (510, Refused(5000), Does::Refused)]),
        ("it tries first and looks at the clock second", For(500), vec![
            (0, Nothing, Attempts(680..=680)), (9, Refused(5000), Joins), (9, First(9), Listens),
            (9, Hears(Pending, 0), Sleeps(500..=500)), (600, Woken, Attempts(780..=780))]),
        ("errors that may pass are ridden out until the deadline", For(500), vec![
            (0, Nothing, Attempts(680..=680)), (9, Fails(unreachable), Joins),
            (9, First(9), Sleeps(14..=24)), (490, TimedOut, Listens), (490, Hears(Pending, 0), Attempts(680..=680)),
            (495, Fails(unreachable), Sleeps(500..=500)), (500, TimedOut, Attempts(680..=680)),
            (510, Fails(unreachable), Does::Fails("unreachable"))]),
        ("a lock without an end is an error once the wait is over", For(500), vec![
            (0, Nothing, Attempts(680..=680)), (9, Endless, Joins), (9, First(9), Listens),
            (9, Hears(Pending, 0), Sleeps(500..=500)), (500, TimedOut, Attempts(680..=680)),
            (510, Endless, Does::Fails("no_ttl"))]),
        ("an outage is the end of a wait without a deadline", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Fails(unreachable), Joins), (9, Nothing, Sleeps(14..=24)),
            (1200, TimedOut, Attempts(1480..=1480)), (1250, Fails(unreachable), Joins),
            (1250, Nothing, Sleeps(1260..=1280)), (1299, TimedOut, Attempts(1480..=1480)),
            (1300, Fails(unreachable), Does::Fails("unreachable"))]),
        ("an outage counts from the last usable answer", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (1000, Refused(5000), Joins), (1000, First(1000), Listens),
            (1000, Hears(Pending, 0), Sleeps(2000..=2100)), (1400, Woken, Attempts(2150..=2150)),
            (1500, Fails(unreachable), Sleeps(1505..=1515)), (2290, TimedOut, Attempts(2480..=2480)),
            (2299, Fails(unreachable), Sleeps(2300..=2300)), (2300, TimedOut, Attempts(2480..=2480)),
            (2301, Fails(unreachable), Does::Fails("unreachable"))]),
        ("a lock without an end is like an outage", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (9, Endless, Joins), (9, First(9), Listens),
            (9, Hears(Pending, 0), Sleeps(1009..=1109)), (1309, TimedOut, Attempts(1489..=1489)),
            (1310, Endless, Does::Fails("no_ttl"))]),
        ("what an attempt may have left stays in doubt", For(500), vec![
            (0, Nothing, Attempts(680..=680)), (9, Fails(unknown), Joins), (9, Nothing, Sleeps(14..=24)),
            (500, TimedOut, Attempts(680..=680)), (510, Fails(unreachable), Does::Fails("unknown"))]),
        ("a usable answer settles what was in doubt", For(500), vec![
            (0, Nothing, Attempts(680..=680)), (9, Fails(unknown), Joins), (9, Nothing, Sleeps(14..=24)),
            (20, TimedOut, Attempts(680..=680)), (30, Refused(5000), Joins), (30, Nothing, Listens),
            (30, Hears(Pending, 0), Sleeps(500..=500)), (500, TimedOut, Attempts(680..=680)),
            (510, Fails(unreachable), Does::Fails("unreachable"))]),
        ("several that ask at once part, further each time, whatever messages come", Forever, vec![
            (0, Nothing, Attempts(750..=750)), (10, Split(10), Joins), (10, First(10), Rests(30..=50)),
            (50, Nothing, Listens), (50, Hears(Live, 0), Attempts(800..=800)), (60, Split(10), Rests(90..=130)),
            (130, Nothing, Attempts(880..=880)), (140, Refused(5000), Sleeps(1140..=1240)),
            (150, Woken, Attempts(900..=900)), (160, Split(10), Rests(180..=200))]),
        ("a split vote waits no longer than the wait", For(30), vec![
            (0, Nothing, Attempts(210..=210)), (10, Split(10), Joins), (10, First(10), Rests(30..=30))]),
        ("a waiter that is first listens before it asks", Forever, vec![
            (0, First(0), Listens), (0, Hears(Live, 0), Attempts(750..=750))]),
        ("a waiter behind others sleeps a second at most, and goes on if they were answered", Forever, vec![
            (0, Behind(0), Sleeps(1000..=1100)), (1100, TimedOut, Sleeps(1300..=1300)),
            (1300, Behind(1250), Sleeps(2300..=2400)), (2350, First(2300), Listens)]),
        ("a holder of this client is relied on for a second", Forever, vec![
            (100, HeldLocally(50), Sleeps(1050..=1150)), (1050, TimedOut, Listens),
            (1050, Hears(Live, 0), Attempts(1800..=1800))]),
        ("a lock that was freed for others is left to them", Forever, vec![
            (0, Yielding(5), Listens), (0, Hears(Live, 0), Sleeps(5..=5)), (3, Woken, Sleeps(5..=5)),
            (5, First(0), Attempts(755..=755))]),
        ("a waiter behind fresh refusals gives up without asking", For(500), vec![
            (0, Behind(0), Sleeps(500..=500)), (500, TimedOut, Does::Refused)]),
        ("a waiter that hears nothing fresh asks at its deadline", For(1250), vec![
            (0, Behind(0), Sleeps(1000..=1100)), (1100, TimedOut, Sleeps(1250..=1250)),
            (1250, TimedOut, Attempts(1430..=1430)), (1251, Refused(5000), Does::Refused)]),
        ("a waiter whose queue is in doubt asks at its deadline", For(500), vec![
            (0, InDoubt(0), Sleeps(500..=500)), (500, TimedOut, Attempts(680..=680))]),
        ("a waiter that was woken late looks at the queue before it gives up", For(500), vec![
            (0, Behind(0), Sleeps(500..=500)), (600, Woken, Sleeps(500..=500)), (600, TimedOut, Does::Refused)]),
        ("a wait of zero is no time to hear of the others in", For(0), vec![
            (0, Behind(0), Sleeps(0..=0)), (0, TimedOut, Attempts(180..=180))]),
        ("a waiter that has not asked reports no outage", Forever, vec![
            (0, Behind(0), Sleeps(1000..=1100)), (1100, TimedOut, Sleeps(1300..=1300)),
            (1300, TimedOut, Attempts(2050..=2050)), (1310, Fails(unreachable), Does::Fails("unreachable"))]),
        ("nobody asks again and again at a quorum that cannot be had, as each attempt that is undone is told", Forever, vec![
            (0, Hears(Live, 0), Attempts(750..=750)), (9, Fails(|lock| Error::NoQuorum { lock, granted: 1, refused: 0,
            unreachable: 2, needed: 2, nodes: vec![] }), Joins), (9, Nothing, Rests(14..=24))]),
        ("so that not all ask at once, it waits a little after a message", Forever, vec![
            (0, First(0), Listens), (0, Hears(Live, 40), Attempts(750..=750)), (9, Refused(5000), Sleeps(1009..=1109)),
            (100, Woken, Rests(100..=140)), (140, Nothing, Attempts(890..=890))]),
        ("a sender of thousands causes a hundred attempts in 100 ms", Forever, vec![
            (0, First(0), Listens), (0, Hears(Live, 0), Attempts(750..=750)), (9, Refused(5000), Sleeps(1009..=1109)),
            (50, WokenInVain(BURST), Sleeps(1050..=1150)), (50, Woken, Rests(100..=100)),
            (100, Nothing, Attempts(850..=850)), (101, Refused(5000), Sleeps(1101..=1201)),
            (102, Woken, Attempts(852..=852))]),
    ]
}

struct Bench<'a> {
    began: Instant,
    end: Option<Instant>,
    waiting: Waiting<'a>,
    queue: Option<View>,
    messages: Option<(Delivery, Duration)>,
}

impl Bench<'_> {
    fn time(&self, at: u64) -> Time {
        let (now, end) = (self.began + Duration::from_millis(at), self.end);
        Time { now, end }
    }

    fn next(&mut self, at: u64) -> Next {
        let (time, queue, messages) = (self.time(at), self.queue, self.messages);
        self.waiting.next(Seen {
            time,
            queue,
            messages,
        })
    }

    fn answer(&mut self, at: u64, answer: Result<Refusal>) {
        let time = self.time(at);
        self.waiting.on_reply(answer, time);
    }

    fn tell(&mut self, at: u64, told: Told, lock: &Arc<str>) {
        let millis = Duration::from_millis;
        let heard = |heard| Some(self.began + millis(heard));
        let seen = |turn, last_usable, is_in_doubt| {
            Some(View {
                turn,
                last_usable,
                is_in_doubt,
                ..View::default()
            })
        };
        let refused = |retry_after: Option<u64>, split: Option<u64>| Refusal {
            retry_after: retry_after.map(millis),
            split: split.map(millis),
            ..Refusal::default()
        };
        match told {
            Nothing => {}
            Told::Refused(left) => self.answer(at, Ok(refused(Some(left), None))),
            Endless => self.answer(at, Ok(refused(None, None))),
            Split(round_trip) => self.answer(at, Ok(refused(Some(0), Some(round_trip)))),
            Told::Fails(error) => self.answer(at, Err(error(Arc::clone(lock)))),
            First(at) => self.queue = seen(Turn::Attempt, heard(at), false),
            Behind(at) => self.queue = seen(Turn::NotFirst, heard(at), false),
            HeldLocally(at) => self.queue = seen(Turn::HeldLocally, heard(at), false),
            Yielding(until) => {
                let until = self.began + millis(until);
                self.queue = seen(Turn::Yield(until), heard(0), false);
            }
            InDoubt(at) => self.queue = seen(Turn::NotFirst, heard(at), true),
            Hears(delivery, jitter) => self.messages = Some((delivery, millis(jitter))),
            Woken => self.waiting.slept(true),
            TimedOut => self.waiting.slept(false),
            WokenInVain(times) => {
                for time in 0..times {
                    self.waiting.slept(true);
                    assert!(matches!(self.next(at), Next::Attempt(_)), "{time}");
                    self.tell(at, Told::Refused(5000), lock);
                    if time + 1 < times {
                        assert!(matches!(self.next(at), Next::Sleep(_)), "{time}");
                    }
                }
            }
        }
    }

    fn is_as(&self, next: &Next, does: &Does) -> bool {
        let within = |until: &Instant, range: &RangeInclusive<u64>| {
            let [first, last] = [range.start(), range.end()].map(|at| Duration::from_millis(*at));
            (self.began + first..=self.began + last).contains(until)
        };
        match (next, does) {
            (Next::Return(Ok(())), Does::Refused)
            | (Next::Join { .. }, Joins)
            | (Next::Listen, Listens) => true,
            (Next::Return(Err(error)), Does::Fails(name)) => error.kind() == *name,
            (Next::Attempt(until), Attempts(range))
            | (Next::Sleep(until), Sleeps(range))
            | (Next::Rest(until), Rests(range)) => within(until, range),
            _ => false,
        }
    }
}

#[test]
fn each_rule_of_a_wait_holds() {
    let lock: Arc<str> = "orders".into();
    let mut broken = Vec::new();
    for (rule, limit, steps) in rows() {
        let began = Instant::now();
        let end = match limit {
            For(wait) => Some(began + Duration::from_millis(wait)),
            Once | Forever => None,
        };
        let time = Time { now: began, end };
        let is_single = matches!(limit, Once);
        let polls = crate::ground::backoff::Backoff::of_polls();
        let mut bench = Bench {
            began,
            end,
            waiting: Waiting::new(&lock, &TIMEOUTS, is_single, false, polls, time),
            queue: None,
            messages: None,
        };
        for (step, (at, told, does)) in steps.iter().enumerate() {
            bench.tell(*at, *told, &lock);
            let next = bench.next(*at);
            if !bench.is_as(&next, does) {
                broken.push(format!(
                    "{rule}, step {step} at {at} ms: {next:?}, not {does:?}"
                ));
                break;
            }
        }
    }
    let broken = broken.join("\n");
    assert!(broken.is_empty(), "{broken}");
}

#[test]
fn a_wait_joins_a_queue_before_its_first_attempt() {
    let lock: Arc<str> = "orders".into();
    let now = Instant::now();
    let time = Time { now, end: None };
    let first = |is_single| {
        let (queue, messages, polls) = (None, None, crate::ground::backoff::Backoff::of_polls());
        Waiting::new(&lock, &TIMEOUTS, is_single, true, polls, time).next(Seen {
            time,
            queue,
            messages,
        })
    };
    assert!(matches!(first(false), Next::Join { is_refused: false }));
    // A single attempt bypasses the queue.
    assert!(matches!(first(true), Next::Attempt(_)));
}
