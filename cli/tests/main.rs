//! The command with real servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what cannot go on fails the test"
)]
#![allow(
    clippy::print_stdout,
    reason = "the harness shows it where a test fails"
)]

mod bench;
mod doctor;
mod failures;
mod list_inspect_unlock;
mod run;
mod schema;
#[path = "../../tests/support/mod.rs"]
mod support;
mod watch;

use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Once};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};
use support::RedisServer;

/// Has the commands get the signals that a shell's background or `nohup` ignores: programs inherit that, and no handler.
fn reset_ignored_signals() {
    static HEARS: Once = Once::new();
    HEARS.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
        for signal in [SIGHUP, SIGINT, SIGQUIT] {
            if ignored.is_some_and(|it| it >> (signal - 1) & 1 == 1) {
                signal_hook::flag::register(signal, Arc::default()).unwrap();
            }
        }
    });
}

/// The command without any variable that it reads.
fn redlatch() -> Command {
    reset_ignored_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlatch"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLATCH")) {
        command.env_remove(name);
    }
    // A machine may be so busy that a second is nothing.
    command.env("REDLATCH_COMMAND_TIMEOUT", "20s");
    command.stdin(Stdio::null());
    command
}

/// A client with as much patience.
fn client_of(url: &str) -> redlatch::Client {
    slow_builder().open(url).unwrap()
}

fn slow_builder() -> redlatch::Builder {
    let builder = redlatch::Client::builder();
    builder
        .command_timeout(support::ms(20_000))
        .connect_timeout(support::ms(10_000))
}

/// Runs the command at a server.
fn at(server: &RedisServer, args: &[&str]) -> Output {
    let mut command = redlatch();
    command.env("REDLATCH_URL", server.url()).args(args);
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn ends_with(output: &Output, code: i32) {
    let (out, err) = (stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
}
