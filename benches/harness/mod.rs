//! Shared by the benchmarks: cores, other processes, server counters, tables.
#![allow(dead_code, unused_imports, reason = "no benchmark uses all of it")]

pub(crate) mod bare;
mod cores;
pub(crate) mod peers;
mod process;
pub(crate) mod report;

use std::fs;

use redis::Connection;
use rustix::time::{ClockId, clock_gettime};

pub(crate) use cores::{Cores, Stalls};
pub(crate) use process::{Part, orders, say};

use crate::support::RedisServer;

pub(crate) fn version(server: &RedisServer) -> String {
    server
        .info("redis_version")
        .unwrap_or_else(|| "?".to_owned())
}

/// Reads the server's counters, on its own connection.
pub(crate) struct Counter {
    connection: Connection,
}

/// The server's counters since its start.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Reads from sockets; equal to the number of requests if every client waits for each reply.
    pub(crate) reads: u64,
    pub(crate) pings: u64,
    /// Microseconds spent in scripts.
    pub(crate) script_us: u64,
}

impl Counter {
    pub(crate) fn of(server: &RedisServer) -> Counter {
        Counter {
            connection: bare::connect(&server.url()),
        }
    }

    pub(crate) fn counts(&mut self) -> Counts {
        let info: String = redis::cmd("INFO")
            .arg("everything")
            .query(&mut self.connection)
            .expect("INFO");
        let number =
            |name: &str| -> Option<u64> { field(&info, name)?.split(',').next()?.parse().ok() };
        let time = |command: &str| -> Option<u64> {
            let statistics = field(&info, &format!("cmdstat_{command}:"))?;
            let time = statistics
                .split(',')
                .find_map(|it| it.strip_prefix("usec="))?;
            time.parse().ok()
        };
        Counts {
            reads: number("total_reads_processed:").expect("a Redis of 6.0 or newer counts reads"),
            pings: number("cmdstat_ping:calls=").unwrap_or(0),
            script_us: time("eval").unwrap_or(0) + time("evalsha").unwrap_or(0),
        }
    }

    /// The difference, without this query.
    pub(crate) fn since(&mut self, before: Counts) -> Counts {
        let now = self.counts();
        Counts {
            reads: now.reads - before.reads - 1,
            pings: now.pings - before.pings,
            script_us: now.script_us - before.script_us,
        }
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name))
}

/// Nanoseconds on a clock shared by all processes.
pub(crate) fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of CPU time of this process.
pub(crate) fn cpu_time() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}

/// Resident memory of this process in bytes; 0 if unknown.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "VmRSS:")
        .and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map_or(0, |size| size * 1024)
}

pub(crate) fn threads_named(name: &str) -> usize {
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter(|thread| {
            fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        })
        .count()
}

pub(crate) fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}
