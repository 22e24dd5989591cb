//! The allocations and system calls of a pair, as external tools count them, without changes of the library.

use std::fs;

use redlatch::Client;
use tempfile::NamedTempFile;

use crate::harness::Part;
use crate::harness::bare::Bare;
use crate::report::Report;
use crate::support::RedisServer;

/// The difference of two runs is counted, so that one-time costs cancel out.
const FEW: u32 = 100;
const MANY: u32 = 1100;

/// How a tool counts: its command without the output file, and the parser of that file.
type Count = (
    &'static [&'static str],
    &'static str,
    fn(&str) -> Option<u64>,
);

const ALLOCATIONS: Count = (
    &["valgrind", "--child-silent-after-fork=yes"],
    "--log-file=",
    |report| {
        let (_, rest) = report.split_once("total heap usage: ")?;
        rest.split(' ').next()?.replace(',', "").parse().ok()
    },
);

const SYSTEM_CALLS: Count = (&["strace", "-f", "-c"], "--output=", |report| {
    let total = report.lines().find(|line| line.ends_with(" total"))?;
    total.split_whitespace().nth(3)?.parse().ok()
});

pub(crate) fn measure(server: &RedisServer, report: &mut Report) {
    let figures = [
        ("allocations_per_pair", "allocations per pair", ALLOCATIONS),
        ("syscalls_per_pair", "system calls per pair", SYSTEM_CALLS),
    ];
    for (key, what, count) in figures {
        let per_pair = |who| {
            let few = counted(server, who, FEW, count)?;
            let many = counted(server, who, MANY, count)?;
            Some((many as f64 - few as f64) / f64::from(MANY - FEW))
        };
        let (Some(ours), Some(bare)) = (per_pair("redlatch"), per_pair("bare")) else {
            eprintln!("!! {key} is LEFT OUT: {} does not run here", count.0[0]);
            continue;
        };
        report.value(key, ours);
        let ratio = format!("{:.2}", ours / bare);
        report.row(what, format!("{ours:.2}"), format!("{bare:.2}"), ratio);
    }
}

/// The count of a process that does this many pairs; `None` if it fails.
fn counted(
    server: &RedisServer,
    who: &str,
    pairs: u32,
    (command, output, read): Count,
) -> Option<u64> {
    let file = NamedTempFile::new().expect("a temporary file");
    let output = format!("{output}{}", file.path().to_str().expect("a path of UTF-8"));
    let command = [command, &[&*output]].concat();
    let args = [who, &server.url(), &pairs.to_string()];
    if !Part::run_under(&command, "pairs", &args) {
        return None;
    }
    read(&fs::read_to_string(file.path()).ok()?)
}

/// Runs this many pairs. Arguments: contender, server, number of pairs.
pub(crate) fn run(args: &[String]) {
    let [who, url, pairs] = args else {
        panic!("three arguments")
    };
    let pairs: u32 = pairs.parse().expect("a number");
    if who == "bare" {
        let mut bare = Bare::new(url, "counted-bare", 1);
        for _ in 0..pairs {
            bare.lock();
            bare.unlock();
        }
    } else {
        let client = Client::open(url).expect("a client");
        let lock = client.lock("counted-ours");
        for _ in 0..pairs {
            lock.lock().expect("the lock is free");
            lock.unlock().expect("the lock is held");
        }
    }
}
