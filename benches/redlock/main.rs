//! What a lock on five servers costs, against one server and against other crates in the same run.
//!
//! `cargo bench --bench redlock` starts five Redis servers of its own (loopback, no persistence), measures for about two
//! minutes, and prints tables and, as its last line, one JSON object.
//!
//! # The contenders
//!
//! | | what it is |
//! |---|---|
//! | **redlatch, five nodes** | `Redlock` with a lease of 10 s and its watchdog on; the time-out of a node is 50 ms, which is the default for that lease |
//! | **redlatch, one node** | a single `Client` of the first node |
//! | **one after the other** | the two scripts of a Redisson lock over the `redis` crate, one connection per node, each node asked when the one before has answered |
//! | **bare, five at once** | the same, sent to all five before the first answer is read, and three answers waited for: what a quorum costs at the least |
//! | **bare, one node** | the same for one node |
//! | **rslock** 0.10.0 | `lock` and `release`, its defaults, on a Tokio runtime with its defaults |
//! | **redlock** 2.0.0 | `lock` and `unlock`, its defaults |
//!
//! The last two live in a package of their own, `benches/peers`; see the benchmark `contention`.
//!
//! # How it is measured
//!
//! **Distance.** A proxy between all clients and all nodes delays each request by 1 ms; replies are not delayed. Without
//! it five requests on one machine would only cost five times the CPU. The proxy is a separate process with one thread.
//! Nothing is pinned, so that the nodes can work in parallel as far as the machine permits.
//!
//! **Turns.** All take turns of one second, seven times. Ratios are of medians within one round, and the median of
//! these is reported; p50 and p99 are of all pairs.
//!
//! **One node frozen.** In each of three rounds another node is stopped by a signal: its kernel still accepts
//! connections and requests, without replies. The measurement begins two seconds later. A crate whose call does not
//! return within five seconds counts as hanging.
//!
//! **Failures.** Three nodes are frozen, 20 locks are requested and not granted, and the nodes are resumed. All five
//! nodes are then queried directly, until no key is left or five seconds have passed; the lease of these locks is a
//! minute, so no key expires. The other crates try for two seconds.
//!
//! | key | what is measured |
//! |---|---|
//! | `five_vs_one` | lock and unlock of redlatch on five nodes, p50, by the same on one |
//! | `bare_five_vs_one` | the same of the bare scripts |
//! | `one_frozen_vs_healthy` | the same with one of the five frozen, p50, by that without |
//! | `one_frozen_p99_vs_node_timeout` | the same with one frozen, p99, by the time-out of a node |
//! | `in_turn_vs_ours`, `rslock_vs_ours`, `redlock_vs_ours` | p50 of the others by that of redlatch on five nodes |
//! | `keys_left_after_failure` | keys of redlatch on any node after failed acquisitions |
//! | `requests_per_node` | requests that one node gets for one lock and unlock, at most |
//! | `connections_per_node` | connections that one node gets while that is counted, at most |
//! | `cpu_us_vs_one` | CPU time of the process per pair on five nodes, by that on one |
//!
//! Environment: `REDLATCH_BENCH_TURNS` (7), `REDLATCH_BENCH_TURN_MS` (1000), `REDIS_SERVER` (redis-server).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "the table goes to stdout, and a benchmark that cannot go on has nobody to tell but its caller"
)]

mod contender;
mod delay_proxy;
#[path = "../harness/mod.rs"]
mod harness;
mod nodes;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use contender::{Contender, Turn};
use delay_proxy::Proxies;
use harness::peers;
use harness::report::{Report, Table};
use harness::{Part, median};
use nodes::Node;

const NODES: usize = 5;
const LEASE: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// The pause of the measurement after a freeze and after its end.
const SETTLE: Duration = Duration::from_secs(2);

/// How many nodes are frozen, one after another.
const FREEZES: usize = 3;

/// How many locks are requested without a majority.
const DOOMED: usize = 20;
const DOOMED_LEASE: Duration = Duration::from_secs(60);
const CLEARED_WITHIN: Duration = Duration::from_secs(5);

const KEYS: [&str; 13] = [
    "five_vs_one",
    "bare_five_vs_one",
    "one_frozen_vs_healthy",
    "rslock_vs_ours",
    "redlock_vs_ours",
    "keys_left_after_failure",
    "one_frozen_p99_vs_node_timeout",
    "in_turn_vs_ours",
    "p50_us",
    "p99_us",
    "requests_per_node",
    "connections_per_node",
    "cpu_us_vs_one",
];

/// How much is measured, and where.
struct Plan {
    turns: usize,
    turn: Duration,
    nodes: Vec<Node>,
    roads: Proxies,
}

fn main() {
    if let Some((part, args)) = Part::of_this_process() {
        return match &*part {
            "roads" => delay_proxy::keep(&args),
            "peers" => peers::become_workers(&args),
            other => panic!("no such part: {other}"),
        };
    }
    let peers = peers::build();
    let nodes: Vec<Node> = (0..NODES).map(|_| Node::start()).collect();
    let ports: Vec<u16> = nodes.iter().map(Node::port).collect();
    let mut plan = Plan {
        turns: number("REDLATCH_BENCH_TURNS", 7),
        turn: Duration::from_millis(number("REDLATCH_BENCH_TURN_MS", 1000) as u64),
        nodes,
        roads: Proxies::to(&ports),
    };
    println!("redis-server {}", plan.nodes[0].version());
    let urls = plan.roads.urls().to_vec();
    let mut all = vec![
        ("redlatch, five nodes", Contender::five(&urls)),
        ("redlatch, one node", Contender::one(&urls[0])),
        ("one after the other", Contender::in_turn(&urls)),
        ("bare, five at once", Contender::at_once(&urls)),
        ("bare, one node", Contender::at_once(&urls[..1])),
    ];
    for name in ["rslock", "redlock"] {
        all.extend(
            peers
                .iter()
                .map(|program| (name, Contender::peer(program, name, &urls))),
        );
    }
    let mut report = Report::of(&KEYS);
    healthy(&plan, &mut all, &mut report);
    counted(&mut plan, &mut all[0].1, &mut report);
    frozen(&plan, &mut all, &mut report);
    failed(&mut plan, &mut all, &mut report);
    drop(all);
    report.print();
}

fn number(variable: &str, default: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => match text.parse() {
            Ok(number) if number > 0 => number,
            _ => panic!("{variable} is not a number above 0: {text}"),
        },
        Err(_) => default,
    }
}

/// The results of several turns of one contender.
#[derive(Default)]
struct Turns {
    p50s: Vec<f64>,
    pairs: Vec<u64>,
    cpu: u64,
    failed: u64,
    hangs: bool,
}

impl Turns {
    fn add(&mut self, mut turn: Turn) {
        if !turn.pairs.is_empty() {
            self.p50s.push(median(&mut turn.pairs) as f64);
        }
        self.pairs.append(&mut turn.pairs);
        self.cpu += turn.cpu;
        self.failed += turn.failed;
        self.hangs |= turn.hangs;
    }

    /// The duration, in µs, that this share of the pairs did not exceed; `None` without pairs.
    fn within(&self, per_mille: usize) -> Option<f64> {
        let mut pairs = self.pairs.clone();
        pairs.sort_unstable();
        let last = pairs.len().checked_sub(1)?;
        Some(pairs[last * per_mille / 1000] as f64 / 1000.0)
    }

    fn cpu_us(&self) -> f64 {
        self.cpu as f64 / 1000.0 / self.pairs.len().max(1) as f64
    }

    /// The median over the rounds, relative to the other contender.
    fn by(&self, base: &Turns) -> Option<f64> {
        let rounds = self.p50s.iter().zip(&base.p50s);
        let mut ratios: Vec<f64> = rounds.map(|(one, other)| one / other).collect();
        (!ratios.is_empty()).then(|| median(&mut ratios))
    }
}

fn us(time: Option<f64>) -> String {
    time.map_or("".to_owned(), |time| format!("{time:.0} µs"))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// With all nodes up.
fn healthy(plan: &Plan, all: &mut [(&'static str, Contender)], report: &mut Report) {
    let mut turns: Vec<Turns> = all.iter().map(|_| Turns::default()).collect();
    for (_, who) in all.iter_mut() {
        who.turn(plan.turn / 2);
    }
    for round in 0..plan.turns {
        for step in 0..all.len() {
            // The order rotates, so that no contender always follows the same one.
            let index = (round + step) % all.len();
            turns[index].add(all[index].1.turn(plan.turn));
        }
    }
    let mut table = Table::new(
        "lock and unlock, all nodes answer",
        &[
            "",
            "p50",
            "p99",
            "longest",
            "by the first",
            "CPU per pair",
            "failed",
        ],
    );
    for ((name, _), own) in all.iter().zip(&turns) {
        table.row(vec![
            (*name).to_owned(),
            us(own.within(500)),
            us(own.within(990)),
            us(own.within(1000)),
            ratio(own.by(&turns[0])),
            us(Some(own.cpu_us())),
            own.failed.to_string(),
        ]);
    }
    report.table(table);
    let [ours, one, in_turn, bare_five, bare_one, others @ ..] = &turns[..] else {
        panic!("three of ours and two of the bare");
    };
    let mut value = |key, value: Option<f64>| report.value(key, value.expect("it had turns"));
    value("five_vs_one", ours.by(one));
    value("bare_five_vs_one", bare_five.by(bare_one));
    value("in_turn_vs_ours", in_turn.by(ours));
    value("p50_us", ours.within(500));
    value("p99_us", ours.within(990));
    value("cpu_us_vs_one", Some(ours.cpu_us() / one.cpu_us()));
    for (key, other) in ["rslock_vs_ours", "redlock_vs_ours"]
        .into_iter()
        .zip(others)
    {
        value(key, other.by(ours));
    }
}

/// The requests at the nodes.
fn counted(plan: &mut Plan, ours: &mut Contender, report: &mut Report) {
    // The leftovers of the previous turn are resolved by then.
    std::thread::sleep(Duration::from_millis(500));
    let before: Vec<_> = plan.nodes.iter_mut().map(Node::counts).collect();
    let pairs = ours.turn(plan.turn * 2).pairs.len() as f64;
    std::thread::sleep(Duration::from_millis(100));
    let (mut requests, mut connections) = (0.0, 0);
    for (node, before) in plan.nodes.iter_mut().zip(before) {
        let counts = node.since(before);
        requests = f64::max(requests, counts.requests as f64 / pairs);
        connections = connections.max(counts.connections);
    }
    report.value("requests_per_node", requests);
    report.value("connections_per_node", connections as f64);
}

/// With one frozen node.
fn frozen(plan: &Plan, all: &mut [(&'static str, Contender)], report: &mut Report) {
    let mut table = Table::new(
        "lock and unlock, one of five nodes is frozen",
        &[
            "",
            "p50",
            "p99",
            "longest",
            "by itself, healthy",
            "failed",
            "",
        ],
    );
    for (name, who) in all.iter_mut() {
        let is_bare = matches!(who, Contender::InTurn(_) | Contender::AtOnce(_));
        if is_bare || *name == "redlatch, one node" {
            continue;
        }
        let is_ours = matches!(who, Contender::Redlatch(_));
        let (mut healthy, mut frozen) = (Turns::default(), Turns::default());
        for node in plan.nodes.iter().take(FREEZES) {
            healthy.add(who.turn(plan.turn));
            node.freeze();
            let settling = who.turn(SETTLE);
            frozen.hangs |= settling.hangs;
            if !frozen.hangs {
                frozen.add(who.turn(plan.turn * 3));
            }
            node.thaw();
            if frozen.hangs {
                break;
            }
            who.turn(SETTLE);
        }
        let slower = frozen.by(&healthy);
        table.row(vec![
            (*name).to_owned(),
            us(frozen.within(500)),
            us(frozen.within(990)),
            us(frozen.within(1000)),
            ratio(slower),
            frozen.failed.to_string(),
            if frozen.hangs { "hangs" } else { "" }.to_owned(),
        ]);
        if is_ours {
            let p99 = frozen.within(990).expect("it had turns");
            let timeout = NODE_TIMEOUT.as_secs_f64() * 1e6;
            report.value("one_frozen_vs_healthy", slower.expect("it had turns"));
            report.value("one_frozen_p99_vs_node_timeout", p99 / timeout);
        }
    }
    report.table(table);
}

/// With three frozen nodes, which then recover.
fn failed(plan: &mut Plan, all: &mut [(&'static str, Contender)], report: &mut Report) {
    let mut table = Table::new(
        "keys left after acquisitions without a majority",
        &["", "acquisitions", "keys left", "looked at for"],
    );
    let redlock = contender::quorum(plan.roads.urls(), DOOMED_LEASE);
    let mut row = |name: &str, tried: u64, (keys, looked): (usize, Duration)| {
        table.row(vec![
            name.to_owned(),
            tried.to_string(),
            keys.to_string(),
            format!("{:.1} s", looked.as_secs_f64()),
        ]);
    };
    freeze_majority(plan);
    for number in 0..DOOMED {
        let lock = redlock.lock(&format!("doomed-{number}"));
        assert!(!matches!(lock.try_lock(), Ok(true)), "two are no quorum");
    }
    let left = thaw_and_look(plan, "doomed");
    report.value("keys_left_after_failure", left.0 as f64);
    row("redlatch", DOOMED as u64, left);
    for (name, who) in all.iter_mut() {
        if *name != "rslock" {
            continue;
        }
        freeze_majority(plan);
        let turn = who.turn(plan.turn * 2);
        row(name, turn.failed, thaw_and_look(plan, name));
    }
    report.table(table);
}

fn freeze_majority(plan: &Plan) {
    plan.nodes[NODES / 2..].iter().for_each(Node::freeze);
}

/// The number of keys left at the end, and the time until then.
fn thaw_and_look(plan: &mut Plan, prefix: &str) -> (usize, Duration) {
    plan.nodes.iter().for_each(Node::thaw);
    let thawed = Instant::now();
    // First the server handles the requests that the kernel kept for it while it was frozen.
    std::thread::sleep(Duration::from_millis(200));
    loop {
        let keys = plan.nodes.iter_mut().map(|node| node.keys(prefix)).sum();
        let looked = thawed.elapsed();
        if keys == 0 || looked > CLEARED_WITHIN {
            return (keys, looked);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
