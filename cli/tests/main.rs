//! Tests of the command with real servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]
#![allow(
    clippy::print_stdout,
    reason = "shown by the harness for a failed test"
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

use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Once};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};
use support::RedisServer;

/// Child processes inherit ignored signals, but no handlers. So this registers handlers for signals that this process
/// ignores, as under `nohup`.
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

/// A command without REDLATCH variables of the environment.
fn redlatch() -> Command {
    reset_ignored_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlatch"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLATCH")) {
        command.env_remove(name);
    }
    // A busy machine may need far more than the default.
    command.env("REDLATCH_COMMAND_TIMEOUT", "20s");
    command.stdin(Stdio::null());
    command
}

fn client_of(url: &str) -> redlatch::Client {
    slow_builder().open(url).unwrap()
}

fn redlock_of(urls: &[String]) -> redlatch::Redlock {
    let clients = urls.iter().map(|url| client_of(url));
    let redlock = redlatch::Redlock::builder().nodes(clients);
    redlock.trust_new_nodes().build().unwrap()
}

fn slow_builder() -> redlatch::Builder {
    let builder = redlatch::Client::builder();
    builder
        .command_timeout(support::ms(20_000))
        .connect_timeout(support::ms(10_000))
}

/// Opens a pseudo terminal. Returns its controlling end, which child processes do not inherit, and the terminal's path.
fn pseudo_terminal() -> (OwnedFd, String) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    (controller, name.into_string().unwrap())
}

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
