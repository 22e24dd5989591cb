//! Many threads of one process that wait for one lock.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use redlatch::Client;

use crate::Plan;
use crate::harness::report::{Report, Table};
use crate::harness::{Counter, Part, cpu_time, median, now, orders, resident, say};
use crate::protocol::Acquisition;
use crate::support::RedisServer;
use crate::throughput::overlaps;

const NAME: &str = "crowd";

/// The number of repetitions.
const REPEATS: usize = 3;

/// All threads are waiting once the process has sent this little for this time.
const QUIET: Duration = Duration::from_millis(200);
const LITTLE: Duration = Duration::from_millis(2);
const PATIENCE: u32 = 100;

pub(crate) fn measure(plan: &Plan, server: &RedisServer, report: &mut Report) {
    let mut all: Vec<Vec<f64>> = (0..REPEATS)
        .map(|_| once(plan.waiters, server, report))
        .collect();
    let mut middle = |column: usize| {
        let mut values: Vec<f64> = all.iter_mut().map(|values| values[column]).collect();
        median(&mut values)
    };
    let mut table = Table::new(
        &format!(
            "{} threads of one process wait for one name, then each has it once (redlatch; {REPEATS} repeats)",
            plan.waiters
        ),
        &["", ""],
    );
    let rows = [
        ("from the unlock until each had it once", 0, "ms", 1e6),
        (
            "the longest any of them took from one to the next",
            1,
            "ms",
            1e6,
        ),
        ("requests per acquisition while they pass it on", 2, "", 1.0),
        ("requests per waiter until all wait", 3, "", 1.0),
        (
            "CPU time of the client per waiter until all wait",
            4,
            "µs",
            1e3,
        ),
        ("CPU time of the client per acquisition", 5, "µs", 1e3),
        ("memory of a thread that only exists", 6, "B", 1.0),
        ("memory that waiting adds to it", 7, "B", 1.0),
        ("connections of the client", 8, "", 1.0),
    ];
    for (what, column, unit, divisor) in rows {
        let value = middle(column) / divisor;
        let value = if divisor == 1.0 && value.fract() == 0.0 {
            format!("{value:.0} {unit}")
        } else {
            format!("{value:.2} {unit}")
        };
        table.row(vec![what.to_owned(), value.trim_end().to_owned()]);
    }
    report.table(table);
}

fn once(size: usize, server: &RedisServer, report: &mut Report) -> Vec<f64> {
    let mut counter = Counter::of(server);
    let mut part = Part::start("crowd", &[&server.url(), &size.to_string()]);
    part.receive();
    let before = counter.counts();
    part.send("wait");
    let [queueing, thread, waiting] = part.receive()[..] else {
        panic!("the crowd says three numbers")
    };
    let queued = counter.since(before).reads;
    let clients = connections(server);
    let before = counter.counts();
    part.send("go");
    let [time, pause, handing_on, overlaps] = part.receive()[..] else {
        panic!("the crowd says four numbers")
    };
    let handed_on = counter.since(before).reads;
    report.two_holders(overlaps as usize);
    let each = |sum: u64| sum as f64 / size as f64;
    vec![
        time as f64,
        pause as f64,
        each(handed_on),
        each(queued),
        each(queueing),
        each(handing_on),
        each(thread).round(),
        each(waiting).round(),
        clients as f64,
    ]
}

/// The connections of the waiters, without the two of the counter and of this query.
fn connections(server: &RedisServer) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("clients")
        .query(&mut crate::harness::bare::connect(&server.url()))
        .expect("INFO");
    let clients = info
        .lines()
        .find_map(|line| line.strip_prefix("connected_clients:"));
    let clients: Option<u64> = clients.and_then(|clients| clients.parse().ok());
    clients.map_or(0, |clients| clients.saturating_sub(2))
}

/// Prints when its threads have started, then what it cost until all waited, then what it cost until all had acquired.
pub(crate) fn run(args: &[String]) {
    let size: usize = args[1].parse().expect("a number");
    let client = Client::open(&args[0]).expect("a client");
    let lock = client.lock(NAME);
    lock.lock().expect("the lock is free");
    let empty = resident();
    let barrier = Barrier::new(size + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let asked = now();
                    lock.lock().expect("the lock comes");
                    let had = now();
                    let left = now();
                    lock.unlock().expect("the lock is held");
                    Acquisition { asked, had, left }
                })
            })
            .collect();
        settle();
        let idle = resident();
        say(&[]);

        let mut orders = orders();
        orders.next();
        let before = cpu_time();
        barrier.wait();
        settle();
        let queueing = cpu_time() - before;
        let full = resident();
        say(&[
            queueing,
            idle.saturating_sub(empty),
            full.saturating_sub(idle),
        ]);

        orders.next();
        let before = cpu_time();
        let unlocked = now();
        lock.unlock().expect("the lock is held");
        let mut stays: Vec<Acquisition> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread"))
            .collect();
        let used = cpu_time() - before;
        let overlaps = overlaps(&mut stays);
        let last = stays.iter().map(|stay| stay.had).max().unwrap_or(unlocked);
        let pauses = stays.windows(2).map(|two| two[1].had - two[0].had);
        say(&[
            last.saturating_sub(unlocked),
            pauses.max().unwrap_or_default(),
            used,
            overlaps as u64,
        ]);
    });
}

/// Waits until this process is idle.
fn settle() {
    for _ in 0..PATIENCE {
        let before = cpu_time();
        thread::sleep(QUIET);
        if u128::from(cpu_time() - before) < LITTLE.as_nanos() {
            return;
        }
    }
    eprintln!("the crowd does not come to rest");
}
