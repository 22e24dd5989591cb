//! The cost of holding locks, and of idling.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Guard};

use crate::Plan;
use crate::harness::{
    Cores, Counter, Counts, Part, Stalls, bare, cpu_time, orders, resident, say, threads_named,
};
use crate::report::Report;
use crate::support::RedisServer;

/// The number of keys in one request.
const BATCH: usize = 1000;

/// Measures a process with many holds, and two processes without holds, each with its own server.
pub(crate) fn measure(plan: &Plan, cores: &Cores, server: &RedisServer, report: &mut Report) {
    let mut idle = Idle::start("idle client", "uncontended", cores);
    let mut woken = Idle::start("idle client that had to wait before", "contended", cores);
    let keep = HoldPlan {
        holds: plan.holds,
        hold: plan.hold,
        lease: Duration::from_secs(3),
    };
    let mut holder = HolderProcess::start(keep, server);
    idle.begin();
    woken.begin();
    let kept = holder.keep(cores, server);
    let idle = idle.end(plan, report);
    woken.end(plan, report);
    kept.print(keep, report);
    report.value("watchdog_lost", kept.lost as f64);
    report.value("watchdog_cpu_s", kept.cpu);
    report.value("bytes_per_hold", kept.bytes.round());
    report.value("idle_requests_per_s", idle);
}

/// Measures a process with very many holds for longer than their lease, which is the default.
pub(crate) fn many(plan: &Plan, cores: &Cores, server: &RedisServer, report: &mut Report) {
    let keep = HoldPlan {
        holds: plan.holds * 10,
        hold: plan.hold * 7 / 2,
        lease: Duration::from_secs(30),
    };
    let kept = HolderProcess::start(keep, server).keep(cores, server);
    kept.print(keep, report);
    report.value("many_lost", kept.lost as f64);
    report.value("many_cpu_s", kept.cpu);
    report.value("many_bytes_per_hold", kept.bytes_later.round());
}

/// The number of locks, for how long they are held, and their lease.
#[derive(Clone, Copy)]
struct HoldPlan {
    holds: usize,
    hold: Duration,
    lease: Duration,
}

/// A process that holds locks.
struct HolderProcess {
    keep: HoldPlan,
    process: Part,
    empty: u64,
    full: u64,
}

/// The cost of holding them.
struct HoldCost {
    lost: u64,
    /// CPU time of the process, in s.
    cpu: f64,
    /// Growth of its memory per hold, after the acquisitions and at the end.
    bytes: f64,
    bytes_later: f64,
    reads_per_s: u64,
    renewers: u64,
    stall: Duration,
}

impl HolderProcess {
    /// Starts the process, which acquires its locks.
    fn start(keep: HoldPlan, server: &RedisServer) -> HolderProcess {
        let lease = keep.lease.as_millis().to_string();
        let args = [&server.url(), &keep.holds.to_string(), &lease];
        let mut process = Part::start("renewing_holder", &args.map(String::as_str));
        let [empty, full] = process.receive()[..] else {
            panic!("the holder says two sizes")
        };
        HolderProcess {
            keep,
            process,
            empty,
            full,
        }
    }

    /// Holds the locks for their time, and counts the remaining ones.
    fn keep(&mut self, cores: &Cores, server: &RedisServer) -> HoldCost {
        let HoldPlan { holds, hold, .. } = self.keep;
        let mut counter = Counter::of(server);
        let stalls = Stalls::watch(cores);
        self.process.send(&hold.as_millis().to_string());
        let before = counter.counts();
        let [cpu, later, renewers, valid] = self.process.receive()[..] else {
            panic!("the holder says four numbers")
        };
        let reads = counter.since(before).reads;
        let grown = |size: u64| size.saturating_sub(self.empty) as f64 / holds as f64;
        HoldCost {
            lost: holds as u64 - present(server, holds).min(valid),
            cpu: cpu as f64 / 1e9,
            bytes: grown(self.full),
            bytes_later: grown(later),
            reads_per_s: reads / hold.as_secs(),
            renewers,
            stall: stalls.longest(),
        }
    }
}

impl HoldCost {
    fn print(&self, keep: HoldPlan, report: &mut Report) {
        let held = format!(
            "{} holds, lease {} s, held for {} s",
            keep.holds,
            keep.lease.as_secs(),
            keep.hold.as_secs()
        );
        let mut row = |what: &str, value: String| {
            let what = format!("{held}: {what}");
            report.row(&what, value, String::new(), String::new());
        };
        row("lost", self.lost.to_string());
        row("CPU time of the process", format!("{:.3} s", self.cpu));
        row("reads at the server", format!("{} /s", self.reads_per_s));
        row("renewal threads", self.renewers.to_string());
        row("memory per hold", format!("{:.0} B", self.bytes));
        row("the same in the end", format!("{:.0} B", self.bytes_later));
        let stall = self.stall.as_millis();
        row("longest stall of a core", format!("{stall} ms"));
    }
}

/// How many of the holder's locks exist; queried while it still holds them.
fn present(server: &RedisServer, holds: usize) -> u64 {
    let mut connection = bare::connect(&server.url());
    let mut present = 0;
    for first in (0..holds).step_by(BATCH) {
        let mut batch = redis::pipe();
        for index in first..holds.min(first + BATCH) {
            batch.cmd("EXISTS").arg(name(index));
        }
        let found: Vec<u64> = batch.query(&mut connection).expect("an answer to EXISTS");
        present += found.iter().sum::<u64>();
    }
    present
}

fn name(index: usize) -> String {
    format!("held:{index:06}")
}

/// Acquires locks and holds them. Prints its memory before and after; then, for each given duration, what the renewals
/// cost.
pub(crate) fn renewing_holder(args: &[String]) {
    let holds: usize = args[1].parse().expect("a number");
    let lease: u64 = args[2].parse().expect("a number");
    let client = Client::builder()
        .watchdog_timeout(Duration::from_millis(lease))
        .open(&args[0])
        .expect("a client");
    client.lock("first").run(|_| ()).expect("the lock is free");
    let empty = resident();
    let mut guards: Vec<Guard> = (0..holds)
        .map(|index| client.lock(&name(index)).guard().expect("the lock is free"))
        .collect();
    say(&[empty, resident()]);

    let mut orders = orders();
    let hold: u64 = orders
        .next()
        .and_then(|order| order.parse().ok())
        .expect("a number");
    let before = cpu_time();
    thread::sleep(Duration::from_millis(hold));
    let used = cpu_time() - before;
    let later = resident();
    let lost = guards.extract_if(.., |guard| !guard.is_valid());
    // Each unlock returns the cause; one is enough.
    let cause = lost.map(Guard::unlock).last();
    if let Some(Err(cause)) = cause {
        eprintln!("{cause}");
    }
    let valid = guards.len();
    say(&[
        used,
        later,
        threads_named("redlatch-renew") as u64,
        valid as u64,
    ]);

    // Held until the parent has counted. Unlocking each would only take time.
    orders.for_each(drop);
    std::process::exit(0);
}

/// A process without holds, and its server.
struct Idle {
    what: &'static str,
    process: Part,
    before: Option<Counts>,
    counter: Counter,
    _server: RedisServer,
}

impl Idle {
    fn start(what: &'static str, past: &str, cores: &Cores) -> Idle {
        let server = RedisServer::start();
        cores.split(&server);
        let mut process = Part::start("idler", &[&server.url(), past]);
        process.receive();
        Idle {
            what,
            process,
            before: None,
            counter: Counter::of(&server),
            _server: server,
        }
    }

    fn begin(&mut self) {
        self.process.send("begin");
        self.before = Some(self.counter.counts());
    }

    /// Returns the requests per second, without PINGs.
    fn end(mut self, plan: &Plan, report: &mut Report) -> f64 {
        let before = self.before.expect("a beginning");
        let counts = self.counter.since(before);
        self.process.send("end");
        let cpu = self.process.receive()[0] as f64 / 1e6;
        let others = counts.reads - counts.pings;
        report.row(
            self.what,
            format!(
                "{} PINGs, {others} other reads, {cpu:.1} ms CPU in {} s",
                counts.pings,
                plan.hold.as_secs()
            ),
            String::new(),
            String::new(),
        );
        others as f64 / plan.hold.as_secs_f64()
    }
}

/// Locks and unlocks, with or without a wait, and then idles.
pub(crate) fn idler(args: &[String]) {
    let client = Client::open(&args[0]).expect("a client");
    let lock = client.lock("idle");
    if args[1] == "contended" {
        let other = Client::open(&args[0]).expect("a client");
        let theirs = other.lock("idle").guard().expect("the lock is free");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock().and_then(|()| lock.unlock()));
            thread::sleep(Duration::from_millis(200));
            drop(theirs);
            waiter.join().expect("a waiter").expect("the lock comes");
        });
        other.shutdown();
    } else {
        lock.lock().expect("the lock is free");
        lock.unlock().expect("the lock is held");
    }
    // Lets the cleanup finish.
    thread::sleep(Duration::from_millis(500));
    say(&[]);
    let mut orders = orders();
    orders.next();
    let before = cpu_time();
    orders.next();
    say(&[cpu_time() - before]);
}
