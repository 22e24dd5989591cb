//! The other processes of a benchmark.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

/// Another process of this benchmark: the same program in another role. It executes commands line by line.
pub(crate) struct Part {
    process: Child,
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

const PART: &str = "--part";

impl Part {
    /// The role and the arguments of this process, if it was started by [`Part::start`].
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

    /// Runs a role to its end under another program. Returns whether that succeeded.
    pub(crate) fn run_under(command: &[&str], part: &str, args: &[&str]) -> bool {
        let program = std::env::current_exe().expect("the path of this program");
        let [tool, options @ ..] = command else {
            panic!("a program")
        };
        let ran = Command::new(tool)
            .args(options)
            .arg(program)
            .args([PART, part])
            .args(args)
            .stdin(Stdio::null())
            .status();
        ran.is_ok_and(|status| status.success())
    }

    pub(crate) fn send(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("a pipe");
        orders
            .write_all(format!("{order}\n").as_bytes())
            .expect("it listens");
    }

    /// Reads the next line of numbers.
    pub(crate) fn receive(&mut self) -> Vec<u64> {
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
        // Closing its input ends it; after a failure here it may be busy, so it is killed.
        self.orders = None;
        if thread::panicking() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// The commands of the parent, until it closes the pipe.
pub(crate) fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(Result::ok)
}

pub(crate) fn say(numbers: &[u64]) {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    println!("{}", words.join(" "));
}
