//! The scripts that run a command with a server of its own: what they hand on, and that nothing of them is left.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{eventually, hears_no_hangup, hears_signals, keeper, ms, runs};

/// A script at work, and what its command says.
struct Script {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Script {
    /// The script `name`, running `command` in a shell.
    fn start(name: &str, command: &str) -> Script {
        Script::start_as(hears_signals(script(name)), command)
    }

    fn start_as(mut script: Command, command: &str) -> Script {
        let mut process = script
            .args(["sh", "-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the script can be started");
        keeper::keep(&process);
        let said = BufReader::new(process.stdout.take().expect("a piped stdout"));
        Script { process, said }
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it can be read");
        line.trim_end().to_owned()
    }

    /// Tells the command a line, and returns the script's exit code.
    fn end(mut self, line: &str) -> Option<i32> {
        let mut stdin = self.process.stdin.take().expect("a piped stdin");
        writeln!(stdin, "{line}").expect("the command listens");
        self.code()
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("the script runs");
    }

    /// Sends the script a signal, and returns its exit code; it has ten seconds.
    fn signal(mut self, signal: Signal) -> Option<i32> {
        self.send(signal);
        let mut code = None;
        eventually(ms(10_000), "the script ends", || {
            let status = self.process.try_wait().expect("a child");
            code = status.map(|status| status.code());
            code.is_some()
        });
        code.flatten()
    }

    fn code(&mut self) -> Option<i32> {
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
        keeper::drop(self.process.id());
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// The host and the port of a URL.
fn address(url: &str) -> String {
    let address = url.rsplit(['/', '@']).find(|part| part.contains(':'));
    address.expect("an address").to_owned()
}

fn leave_nothing_behind(name: &str) {
    // The command has the script's stdin, and its exit code is that of the script.
    let mut script = Script::start(name, "echo $REDIS_URL$MYSQL_URL; read -r code; exit $code");
    let served = address(&script.next_line());
    assert!(TcpStream::connect(&served).is_ok());
    assert_eq!(script.end("7"), Some(7));
    assert!(TcpStream::connect(&served).is_err(), "{name}");
    for (signal, code) in [
        (Signal::TERM, Some(143)),
        (Signal::INT, Some(130)),
        (Signal::HUP, Some(129)),
        (Signal::KILL, None),
    ] {
        let (script, served, command) = start_to_sleep(hears_signals(self::script(name)));
        assert_eq!(script.signal(signal), code, "{signal:?}");
        end(&served, command);
    }
    // As behind `nohup`, or in the background of a script: those who told it to ignore them want it to go on.
    for (signal, code) in [(Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let (script, served, command) = start_to_sleep(hears_no_hangup(self::script(name)));
        script.send(Signal::INT);
        script.send(Signal::HUP);
        thread::sleep(ms(300));
        assert!(TcpStream::connect(&served).is_ok() && runs(command));
        assert_eq!(script.signal(signal), code, "{signal:?}");
        end(&served, command);
    }
}

/// A script whose command sleeps, the address of its server, and the process of the command.
fn start_to_sleep(script: Command) -> (Script, String, u32) {
    let mut script = Script::start_as(script, "echo $REDIS_URL$MYSQL_URL; echo $$; exec sleep 60");
    let served = address(&script.next_line());
    let command = script.next_line().parse().expect("a process id");
    (script, served, command)
}

#[track_caller]
fn end(served: &str, command: u32) {
    eventually(ms(10_000), "the server ends", || {
        TcpStream::connect(served).is_err()
    });
    eventually(ms(10_000), "the command ends", || !runs(command));
}

#[test]
fn with_redis_leaves_nothing_behind() {
    leave_nothing_behind("with-redis");
}

#[cfg(feature = "mysql")]
mod database {

    use super::leave_nothing_behind;

    #[test]
    fn with_mariadb_leaves_nothing_behind() {
        leave_nothing_behind("with-mariadb");
    }
}
