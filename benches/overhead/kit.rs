//! The server, the cores, the other processes and the table.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::Connection;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use crate::bare;

/// A Redis server of our own.
pub(crate) struct Server {
    process: Child,
    port: u16,
    _dir: TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        for _ in 0..20 {
            let server = Server::launch();
            if let Some(server) = server.once_it_answers() {
                return server;
            }
            // Somebody else took the port.
        }
        panic!("redis-server does not start");
    }

    fn launch() -> Server {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let log = File::create(dir.path().join("log")).expect("a log file");
        let process =
            Command::new(std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()))
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .args([
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--loglevel",
                    "warning",
                    "--dir",
                ])
                .arg(dir.path())
                .stdin(Stdio::null())
                .stderr(log.try_clone().expect("a log file"))
                .stdout(log)
                .spawn()
                .expect("redis-server is in the PATH, or named by REDIS_SERVER");
        Server {
            process,
            port,
            _dir: dir,
        }
    }

    fn once_it_answers(mut self) -> Option<Server> {
        let own = format!("process_id:{}", self.process.id());
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5)
            && matches!(self.process.try_wait(), Ok(None))
        {
            let info: Option<String> = redis::Client::open(self.url())
                .and_then(|client| client.get_connection())
                .and_then(|mut connection| redis::cmd("INFO").arg("server").query(&mut connection))
                .ok();
            if info.is_some_and(|info| info.lines().any(|line| line == own)) {
                return Some(self);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn version(&self) -> String {
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query(&mut bare::connect(&self.url()))
            .expect("INFO");
        field(&info, "redis_version:").unwrap_or("?").to_owned()
    }

    pub(crate) fn counter(&self) -> Counter {
        Counter {
            connection: bare::connect(&self.url()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads what the server has counted, on a connection of its own.
pub(crate) struct Counter {
    connection: Connection,
}

/// What a server has counted since its start.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Reads from sockets: as many as requests, if nobody sends two before the answer to the first.
    pub(crate) reads: u64,
    pub(crate) pings: u64,
}

impl Counter {
    pub(crate) fn counts(&mut self) -> Counts {
        let info: String = redis::cmd("INFO")
            .arg("everything")
            .query(&mut self.connection)
            .expect("INFO");
        let number =
            |name: &str| -> Option<u64> { field(&info, name)?.split(',').next()?.parse().ok() };
        Counts {
            reads: number("total_reads_processed:").expect("a Redis of 6.0 or newer counts reads"),
            pings: number("cmdstat_ping:calls=").unwrap_or(0),
        }
    }

    /// What was counted since, this question left out.
    pub(crate) fn since(&mut self, before: Counts) -> Counts {
        let now = self.counts();
        Counts {
            reads: now.reads - before.reads - 1,
            pings: now.pings - before.pings,
        }
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name))
}

/// The cores on which the server and the clients run.
pub(crate) struct Cores {
    server: usize,
    clients: usize,
}

impl Cores {
    /// Puts the server on the clients' core, and the calling thread and those it starts.
    pub(crate) fn join(&self, server: &Server) {
        pin_process(server.pid(), self.clients);
        pin_this_thread(self.clients);
    }

    /// Puts the server on its core, the calling thread and those it starts on the other one.
    pub(crate) fn split(&self, server: &Server) {
        pin_process(server.pid(), self.server);
        pin_this_thread(self.clients);
    }
}

#[cfg(target_os = "linux")]
mod pinning {
    use std::fs;

    use rustix::process::Pid;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::Cores;

    impl Cores {
        /// The first two cores that this process may use.
        pub(crate) fn choose() -> Cores {
            let allowed = sched_getaffinity(None).expect("the cores of this process");
            let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
            let server = cores.next().expect("a core");
            Cores {
                server,
                clients: cores.next().unwrap_or(server),
            }
        }
    }

    pub(super) fn pin_this_thread(core: usize) {
        sched_setaffinity(None, &only(core)).expect("this thread is pinned");
    }

    pub(super) fn pin_process(process: u32, core: usize) {
        let threads =
            fs::read_dir(format!("/proc/{process}/task")).expect("the threads of the server");
        for thread in threads.flatten() {
            let id = thread
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let id = id.and_then(Pid::from_raw).expect("a thread id");
            sched_setaffinity(Some(id), &only(core)).expect("a thread of the server is pinned");
        }
    }

    fn only(core: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(core);
        set
    }
}

/// Without pinning the ratios are what the scheduler makes of them.
#[cfg(not(target_os = "linux"))]
mod pinning {
    impl super::Cores {
        pub(crate) fn choose() -> super::Cores {
            super::Cores {
                server: 0,
                clients: 0,
            }
        }
    }

    pub(super) fn pin_this_thread(_: usize) {}

    pub(super) fn pin_process(_: u32, _: usize) {}
}

use pinning::{pin_process, pin_this_thread};

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if cfg!(not(target_os = "linux")) {
            f.write_str("not pinned")
        } else if self.server == self.clients {
            f.write_str("one core only, so nothing runs beside the server")
        } else {
            write!(
                f,
                "server on core {}, clients on core {}",
                self.server, self.clients
            )
        }
    }
}

/// Notices when a core has no time for anybody, which no lease can survive for long.
pub(crate) struct Stalls {
    ended: Arc<AtomicBool>,
    lookouts: Vec<JoinHandle<Duration>>,
}

impl Stalls {
    const LOOK: Duration = Duration::from_millis(20);

    pub(crate) fn watch(cores: &Cores) -> Stalls {
        let ended = Arc::new(AtomicBool::new(false));
        let lookouts = [cores.server, cores.clients].map(|core| {
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                pin_this_thread(core);
                let mut longest = Duration::ZERO;
                while !ended.load(Ordering::Relaxed) {
                    let asleep = Instant::now();
                    thread::sleep(Stalls::LOOK);
                    longest = longest.max(asleep.elapsed().saturating_sub(Stalls::LOOK));
                }
                longest
            })
        });
        Stalls {
            ended,
            lookouts: lookouts.into(),
        }
    }

    /// The longest that either core has stood still.
    pub(crate) fn longest(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        let stalls = self.lookouts.into_iter().map(|lookout| lookout.join());
        stalls.flatten().max().unwrap_or_default()
    }
}

/// Another process of this benchmark: the same program with a part to play, told line by line what to do.
pub(crate) struct Part {
    process: Child,
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

const PART: &str = "--part";

impl Part {
    /// What this process is to do, if it was started by [`Part::start`].
    pub(crate) fn of_this_process() -> Option<(String, Vec<String>)> {
        let mut args = std::env::args().skip(1);
        if args.next()? != PART {
            return None;
        }
        Some((args.next()?, args.collect()))
    }

    /// Starts a process on the caller's core.
    pub(crate) fn start(part: &str, args: &[&str]) -> Part {
        let program = std::env::current_exe().expect("the path of this program");
        let mut process = Command::new(program)
            .args([PART, part])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started once more");
        Part {
            orders: process.stdin.take(),
            words: BufReader::new(process.stdout.take().expect("a pipe")),
            process,
        }
    }

    pub(crate) fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("a pipe");
        orders
            .write_all(format!("{order}\n").as_bytes())
            .expect("it listens");
    }

    /// The numbers that it says next.
    pub(crate) fn hear(&mut self) -> Vec<u64> {
        let mut line = String::new();
        let length = self.words.read_line(&mut line).expect("it speaks");
        assert!(length > 0, "a process of the benchmark has failed");
        line.split_whitespace()
            .map(|word| word.parse().expect("a number"))
            .collect()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The end of its orders ends it; after a failure here it may be in the middle of something.
        self.orders = None;
        if thread::panicking() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// What a part is told, until its starter is done with it.
pub(crate) fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

pub(crate) fn say(numbers: &[u64]) {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    println!("{}", words.join(" "));
}

/// Nanoseconds on a clock that all processes share.
pub(crate) fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that this process has used.
pub(crate) fn cpu_time() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}

/// Bytes of this process that are in memory; 0 if it cannot be known.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "VmRSS:")
        .and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map_or(0, |size| size * 1024)
}

/// How many threads of this process have this name.
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

/// The value in the middle.
pub(crate) fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}

/// What is printed at the end.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 4]>,
    values: Vec<(&'static str, f64)>,
}

const KEYS: [&str; 8] = [
    "requests_per_pair",
    "pair_vs_bare",
    "parallel_vs_bare",
    "handoff_cold_rtts",
    "watchdog_lost",
    "watchdog_cpu_s",
    "bytes_per_hold",
    "idle_requests_per_s",
];

impl Report {
    /// Adds a row to the table; an empty text where there is nothing to say.
    pub(crate) fn row(&mut self, what: &str, redlatch: String, base: String, ratio: String) {
        self.rows.push([what.to_owned(), redlatch, base, ratio]);
    }

    /// Adds a value to the JSON object.
    pub(crate) fn value(&mut self, key: &'static str, value: f64) {
        assert!(KEYS.contains(&key), "a known key: {key}");
        self.values.push((key, value));
    }

    pub(crate) fn print(&self) {
        let head = ["", "redlatch", "bare", "redlatch / bare"].map(str::to_owned);
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .chain([&head])
                .map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2), width(3)];
        let line = |cells: &[String; 4]| {
            let [what, cells @ ..] = cells;
            print!("| {what:<0$} |", widths[0]);
            for (cell, width) in cells.iter().zip(&widths[1..]) {
                print!(" {cell:>width$} |");
            }
            println!();
        };
        line(&head);
        println!(
            "|{:-<w0$}|{:->w1$}:|{:->w2$}:|{:->w3$}:|",
            "",
            "",
            "",
            "",
            w0 = widths[0] + 2,
            w1 = widths[1] + 1,
            w2 = widths[2] + 1,
            w3 = widths[3] + 1
        );
        self.rows.iter().for_each(line);
        let json: Vec<String> = KEYS
            .iter()
            .map(
                |key| match self.values.iter().find(|(known, _)| known == key) {
                    Some((_, value)) => format!("\"{key}\":{}", (value * 1000.0).round() / 1000.0),
                    None => format!("\"{key}\":null"),
                },
            )
            .collect();
        println!();
        println!("{{{}}}", json.join(","));
    }
}
