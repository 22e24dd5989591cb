//! redlatch and its switch, if redlatch is stopped between two steps.

use rustix::process::{WaitId, WaitIdOptions, getpgid, waitid};

use super::*;

/// Stops redlatch before the first write to its switch that matches CONDITION. The writer is the last thread to continue.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int file, const void *bytes, size_t length) {
    uint64_t first = 0;
    if (length >= 8) memcpy(&first, bytes, sizeof first);
    static int stops = 1;
    if (stops && (CONDITION)) stops = 0, raise(SIGSTOP), usleep(300000);
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return next(file, bytes, length);
}
"#;

/// A C condition: the write that arms the switch.
const ARMS_SWITCH: &str = "length == 24 && first != 0 && first < (1 << 24)";
/// A C condition: the write of a deadline.
const SETS_DEADLINE: &str = "length == 8 && first > 1 && first >> 63 == 0";
/// A C condition: the write that reports the end of the command.
const REPORTS_END: &str = "length == 8 && first < 2";

/// Runs redlatch until it stops before the write that matches `condition`.
fn stopped_before(condition: &str, server: &RedisServer, folder: &Path, args: &[&str]) -> Child {
    let (source, library) = (folder.join("stop.c"), folder.join("stop.so"));
    fs::write(&source, SHIM.replace("CONDITION", condition)).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    assert!(compiler.arg(&source).status().unwrap().success());
    let mut command = run_at(&server.url(), args);
    command.current_dir(folder).env("LD_PRELOAD", &library);
    let child = command.spawn().unwrap();
    waitid(WaitId::Pid(pid_of(&child)), WaitIdOptions::STOPPED).unwrap();
    child
}

fn parent_of(pid: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    Pid::from_raw(line.unwrap().trim().parse().unwrap()).unwrap()
}

/// Returns the running switch of this redlatch.
pub(super) fn switch_of(redlatch: &Child) -> Option<Pid> {
    let parent = format!("PPid:\t{}\n", redlatch.id());
    let mut all = fs::read_dir("/proc").unwrap().flatten();
    let entry = all.find(|it| {
        let read = |file| fs::read_to_string(it.path().join(file)).unwrap_or_default();
        // A zombie has an empty command line.
        read("status").contains(&parent) && read("cmdline").contains("__switch")
    });
    Pid::from_raw(entry?.file_name().to_str()?.parse().ok()?)
}

#[test]
fn no_command_starts_before_its_switch_is_armed() {
    const LEASE: Duration = ms(3000);
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start();
    let args = ["--lease", "3s", "demo", "--", "touch", "ran"];
    let child = stopped_before(ARMS_SWITCH, &server, folder.path(), &args);
    let other = client_of(&server.url()).lock("demo");
    assert!(other.try_lock_for(LEASE * 10).unwrap());
    let ran = folder.path().join("ran");
    assert!(!ran.exists(), "the command ran without a switch");
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    ends_with(&child.wait_with_output().unwrap(), 121);
    assert!(!ran.exists(), "the command ran without a lock");
}

/// The lock is renewed in time, but too late for the command.
#[test]
fn a_command_that_the_switch_has_killed_lost_its_lock() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start();
    let args = "--lease 12s demo -- sh -c"
        .split(' ')
        .chain(["echo $$; exec sleep 1000"]);
    let args: Vec<_> = args.collect();
    let mut child = stopped_before(SETS_DEADLINE, &server, folder.path(), &args);
    let command = command_pid(&mut child);
    eventually(SLACK, "the switch has killed the command", || {
        !is_alive(command)
    });
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    ends_with(&child.wait_with_output().unwrap(), 121);
}

/// The id of a process cannot be reused before the process is reaped.
#[test]
fn a_command_is_reaped_after_its_switch_is_informed() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start();
    let args = ["demo", "--", "sh", "-c", "echo $$; exit 3"];
    let mut child = stopped_before(REPORTS_END, &server, folder.path(), &args);
    let command = command_pid(&mut child);
    let path = format!("/proc/{}/stat", command.as_raw_nonzero());
    let stat = fs::read_to_string(&path).unwrap_or_default();
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    assert!(stat.contains(") Z"), "{stat:?}");
    ends_with(&child.wait_with_output().unwrap(), 3);
}

/// When a group is gone, its id may be reused. So the switch exits together with the group, long before the lease ends.
#[test]
fn the_switch_exits_with_the_group() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    // The shell ends on TERM. Its worker ignores TERM. The worker's parent has left the group.
    let script = r#"(sh -c 'trap "" TERM; echo $$; until [ -e go ]; do sleep 0.05; done' &
            exec setsid sh -c 'until [ -e end ]; do sleep 0.05; done') & wait"#;
    let args = ["--lease", "600s", "--kill-after", "600s"];
    let args = [&args[..], &["demo", "--", "sh", "-c", script]].concat();
    let mut command = run_at(&server.url(), &args);
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    let worker = command_pid(&mut child);
    let group = getpgid(Some(worker)).unwrap();
    let files = |name: &str| fs::write(folder.path().join(name), "").unwrap();
    let is_there = |pid: Pid| Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists();
    let parent = parent_of(worker);
    eventually(SLACK, "the parent has left the group", || {
        getpgid(Some(parent)) == Ok(parent)
    });
    kill_process(pid_of(&child), Signal::TERM).unwrap();
    eventually(SLACK, "the shell is reaped", || !is_there(group));
    kill_process(pid_of(&child), Signal::STOP).unwrap();
    assert!(is_alive(worker) && switch_of(&child).is_some());
    files("go");
    eventually(SLACK, "the worker is reaped", || !is_there(worker));
    eventually(SLACK, "the switch has ended", || {
        switch_of(&child).is_none()
    });
    files("end");
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    ends_with(&child.wait_with_output().unwrap(), 128 + 15);
}

/// The lock is released when the group is gone. If the group survives KILL, the lock is released after some time, with a
/// message.
#[test]
fn processes_that_survive_kill_are_reported() {
    let server = RedisServer::start();
    // A zombie stays in its group until it is reaped.
    let script = "(sleep 1000 & echo $!; exec setsid sleep 1001) & wait";
    let args = ["--kill-after", "100ms", "demo", "--", "sh", "-c", script];
    let mut child = spawn(&server, &args);
    let parent = parent_of(command_pid(&mut child));
    eventually(SLACK, "the parent has left the group", || {
        getpgid(Some(parent)) == Ok(parent)
    });
    let begun = Instant::now();
    kill_process(pid_of(&child), Signal::TERM).unwrap();
    // The sleeping process keeps stdout open, so only the exit is awaited.
    let status = child.wait().unwrap();
    let took = begun.elapsed();
    kill_process(parent, Signal::KILL).unwrap();
    let mut message = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut message)
        .unwrap();
    assert_eq!(status.code(), Some(128 + 15), "{message}");
    assert!(message.contains("still exist"), "{message}");
    assert!(took > ms(5000), "{took:?}");
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

/// An orphan that is not reaped would stay in the group as a zombie.
#[test]
fn orphans_of_the_command_are_reaped() {
    let server = RedisServer::start();
    // The inner shell ends at once.
    let script = "sh -c 'sleep 1000 & echo $!'; exec sleep 1000";
    let mut child = spawn(&server, &["demo", "--", "sh", "-c", script]);
    let orphan = command_pid(&mut child);
    eventually(SLACK, "the orphan is a child of redlatch", || {
        parent_of(orphan) == pid_of(&child)
    });
    kill_process(orphan, Signal::KILL).unwrap();
    let path = format!("/proc/{}", orphan.as_raw_nonzero());
    eventually(SLACK, "the orphan is reaped", || !Path::new(&path).exists());
    assert!(child.try_wait().unwrap().is_none());
    kill_process(pid_of(&child), Signal::TERM).unwrap();
    ends_with(&child.wait_with_output().unwrap(), 128 + 15);
}

/// The switch has read nothing for longer than the lease. Then a signal wakes it.
#[test]
fn a_stopped_switch_kills_no_command_with_a_valid_lock() {
    let server = RedisServer::start();
    let args = ["--lease", "6s", "demo", "--", "sh", "-c"];
    let script = "echo $$; until [ -e go ]; do sleep 0.05; done";
    let folder = tempfile::tempdir().unwrap();
    let mut command = run_at(&server.url(), &[&args[..], &[script]].concat());
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    let command = command_pid(&mut child);
    let switch = switch_of(&child).unwrap();
    kill_process(switch, Signal::STOP).unwrap();
    thread::sleep(ms(9000));
    for signal in [Signal::TERM, Signal::USR1, Signal::CONT] {
        kill_process(switch, signal).unwrap();
    }
    thread::sleep(ms(300));
    assert!(
        is_alive(command),
        "the command was killed under a valid lock"
    );
    assert_eq!(switch_of(&child), Some(switch));
    fs::write(folder.path().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 0);
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_foreground_command_ends_without_messages() {
    let server = RedisServer::start();
    for _ in 0..5 {
        let output = at(&server, &["run", "--foreground", "demo", "--", "true"]);
        ends_with(&output, 0);
        assert_eq!(stderr(&output), "");
    }
}
