//! What it costs to hold, and to hold nothing.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Guard};

use crate::Plan;
use crate::harness::{
    Cores, Counter, Counts, Part, Stalls, bare, cpu_time, orders, resident, say, threads_named,
};
use crate::report::Report;
use crate::support::RedisServer;

const LEASE: Duration = Duration::from_secs(3);

/// How many keys are asked for in one go.
const BATCH: usize = 1000;

/// Measures a process with many holds, and beside it two with none, each at a server of its own.
pub(crate) fn measure(plan: &Plan, cores: &Cores, server: &RedisServer, report: &mut Report) {
    let mut idle = Idle::start("idle client", "uncontended", cores);
    let mut woken = Idle::start("idle client that had to wait before", "contended", cores);
    let mut keeper = Part::start("keeper", &[&server.url(), &plan.holds.to_string()]);
    let [empty, full] = keeper.hear()[..] else {
        panic!("the keeper says two sizes")
    };

    let mut counter = Counter::of(server);
    idle.begin();
    woken.begin();
    let stalls = Stalls::watch(cores);
    keeper.tell(&plan.hold.as_millis().to_string());
    let before = counter.counts();
    let [cpu, later, renewers, valid] = keeper.hear()[..] else {
        panic!("the keeper says four numbers")
    };
    let reads = counter.since(before).reads;
    let stall = stalls.longest().as_millis();
    let idle = idle.end(plan, report);
    woken.end(plan, report);

    let present = present(server, plan.holds);
    drop(keeper);
    let lost = plan.holds as u64 - present.min(valid);
    let cpu = cpu as f64 / 1e9;
    let seconds = plan.hold.as_secs();
    let bytes = full.saturating_sub(empty) as f64 / plan.holds as f64;
    report.value("watchdog_lost", lost as f64);
    report.value("watchdog_cpu_s", cpu);
    report.value("bytes_per_hold", bytes.round());
    report.value("idle_requests_per_s", idle);
    let mut row = |what: &str, value: String| report.row(what, value, String::new(), String::new());
    let held = format!(
        "{} holds, lease {} s, held for {seconds} s",
        plan.holds,
        LEASE.as_secs()
    );
    row(&format!("{held}: lost"), lost.to_string());
    row(
        &format!("{held}: CPU time of the process"),
        format!("{cpu:.3} s"),
    );
    row(
        &format!("{held}: reads at the server"),
        format!("{} /s", reads / seconds),
    );
    row(&format!("{held}: renewal threads"), renewers.to_string());
    row(
        "longest stall of one of the cores meanwhile",
        format!("{stall} ms"),
    );
    row("memory per hold", format!("{bytes:.0} B"));
    row(
        "memory per hold after renewals",
        format!(
            "{:.0} B",
            later.saturating_sub(empty) as f64 / plan.holds as f64
        ),
    );
}

/// How many of the keeper's locks are there, to be asked while it still holds them.
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
    format!("held:{index:05}")
}

/// Takes locks and keeps them. Says its size before and after; then, when told for how long, what it took to hold.
pub(crate) fn keeper(args: &[String]) {
    let holds: usize = args[1].parse().expect("a number");
    let client = Client::builder()
        .watchdog_timeout(LEASE)
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
    // Each of them says why when it is unlocked; one is enough.
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

    // Held until the starter has counted. To unlock them one by one would only take time.
    orders.for_each(drop);
    std::process::exit(0);
}

/// A process that holds nothing, and its server.
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
        process.hear();
        Idle {
            what,
            process,
            before: None,
            counter: Counter::of(&server),
            _server: server,
        }
    }

    fn begin(&mut self) {
        self.process.tell("begin");
        self.before = Some(self.counter.counts());
    }

    /// Returns the requests per second, PINGs left out.
    fn end(mut self, plan: &Plan, report: &mut Report) -> f64 {
        let before = self.before.expect("a beginning");
        let counts = self.counter.since(before);
        self.process.tell("end");
        let cpu = self.process.hear()[0] as f64 / 1e6;
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

/// Locks and unlocks, with or without having to wait for it, and then does nothing.
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
    // Whatever is to be cleared up has its time.
    thread::sleep(Duration::from_millis(500));
    say(&[]);
    let mut orders = orders();
    orders.next();
    let before = cpu_time();
    orders.next();
    say(&[cpu_time() - before]);
}
