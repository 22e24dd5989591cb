//! If nobody reads stderr, nothing is delayed.

use std::io::{PipeReader, Write};

use rustix::fs::{OFlags, fcntl_setfl};

use super::*;

const LEASE: Duration = ms(6000);

/// Returns a full stderr pipe. The pipe stays full until the reader is dropped.
fn unread() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    for bytes in [&[b'x'; 4096][..], b"x"] {
        while writer.write(bytes).is_ok() {}
    }
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer.into())
}

fn spawn_unread(server: &RedisServer, args: &[&str]) -> (PipeReader, Child) {
    let (reader, writer) = unread();
    let args = [&["--lease", "6s", "--command-timeout", "2s"], args].concat();
    let mut command = run_at(&server.url(), &args);
    (reader, command.stderr(writer).spawn().unwrap())
}

/// Returns the exit code. Panics after a time limit.
fn code_of(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + LEASE * 4;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        thread::sleep(ms(20));
    }
    child.kill().unwrap();
    panic!("redlatch does not exit");
}

const SLEEPER: [&str; 5] = ["demo", "--", "sh", "-c", "echo $$; exec sleep 1000"];

#[test]
fn a_loss_ends_the_command_with_stderr_blocked() {
    let server = RedisServer::start();
    let (_reader, mut child) = spawn_unread(&server, &SLEEPER);
    let command = command_pid(&mut child);
    let begun = Instant::now();
    server.kill();
    eventually(LEASE * 4, "the command has ended", || !is_alive(command));
    assert!(begun.elapsed() < LEASE + SLACK, "{:?}", begun.elapsed());
    assert_eq!(code_of(&mut child), Some(121));
}

#[test]
fn a_stop_ends_the_command_with_stderr_blocked() {
    let server = RedisServer::start();
    let (_reader, mut child) = spawn_unread(&server, &SLEEPER);
    let command = command_pid(&mut child);
    kill_process(pid_of(&child), Signal::STOP).unwrap();
    let other = client_of(&server.url()).lock("demo");
    assert!(other.try_lock_for(LEASE * 3).unwrap());
    let is_left = is_alive(command);
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    assert!(!is_left, "two commands run under one lock");
    assert_eq!(code_of(&mut child), Some(121));
}

#[test]
fn a_wait_ends_with_stderr_blocked() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("demo");
    lock.lock().unwrap();
    let args = ["demo", "--", "echo", "in"];
    let ((_a, mut obtains), (_b, mut interrupted)) =
        (spawn_unread(&server, &args), spawn_unread(&server, &args));
    eventually(SLACK, "both wait", || {
        lock.describe().unwrap().listening == Some(2)
    });
    thread::sleep(ms(1500));
    kill_process(pid_of(&interrupted), Signal::TERM).unwrap();
    assert_eq!(code_of(&mut interrupted), Some(128 + 15));
    lock.unlock().unwrap();
    assert_eq!(code_of(&mut obtains), Some(0));
}

#[test]
fn a_failed_start_keeps_no_lock_with_stderr_blocked() {
    let server = RedisServer::start();
    let (_reader, mut child) = spawn_unread(&server, &["demo", "--", "/no/such/command"]);
    assert_eq!(code_of(&mut child), Some(127));
    assert_eq!(server.int(&["EXISTS", "demo"]), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn the_switch_exits_with_stderr_blocked() {
    let server = RedisServer::start();
    let (_reader, mut child) = spawn_unread(&server, &SLEEPER);
    let command = command_pid(&mut child);
    let switch = super::switch::switch_of(&child).unwrap();
    kill_process(pid_of(&child), Signal::STOP).unwrap();
    eventually(LEASE * 4, "the command has ended", || !is_alive(command));
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    assert_eq!(code_of(&mut child), Some(121));
    eventually(LEASE * 4, "the switch has ended", || !is_alive(switch));
}
