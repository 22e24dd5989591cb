//! A command ends if its lock is in danger, or if redlatch is killed or stopped.

use super::*;
use crate::support::Proxy;

/// This lease is long enough for a busy machine.
const LEASE: Duration = ms(6000);

fn leased<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["--lease", "6s", "--command-timeout", "2s"], args].concat()
}

/// L5: if the hold is lost, the command ends soon.
#[test]
fn a_released_hold_ends_the_command() {
    let server = RedisServer::start();
    let mut child = spawn(
        &server,
        &leased(&["demo", "--", "sh", "-c", "echo $$; exec sleep 1000"]),
    );
    let command = command_pid(&mut child);
    let lock = client_of(&server.url()).lock("demo");
    let holder = lock.describe().unwrap().holders[0].visitor.clone();
    assert!(lock.force_unlock_of(&holder).unwrap());
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 121);
    assert!(!is_alive(command));
    // The message shows that a renewal reported the loss, before the validity ended.
    let message = stderr(&output);
    assert!(
        message.contains("lost: it is gone from the store"),
        "{message}"
    );
}

/// L1: the command ends before a renewal can detect the loss.
#[test]
fn a_loss_found_by_the_unlock_sets_the_exit_code() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let args = [
        "--lease",
        "60s",
        "--report",
        report.to_str().unwrap(),
        "demo",
        "--",
    ];
    let script = "echo $$; while [ ! -e go ]; do sleep 0.05; done";
    let mut command = run_at(&server.url(), &[&args[..], &["sh", "-c", script]].concat());
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    command_pid(&mut child);
    let lock = client_of(&server.url()).lock("demo");
    let holder = lock.describe().unwrap().holders[0].visitor.clone();
    assert!(lock.force_unlock_of(&holder).unwrap());
    fs::write(folder.path().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 121);
    assert!(
        stderr(&output).contains("the lock was lost"),
        "{}",
        stderr(&output)
    );
    let report = fs::read_to_string(report).unwrap();
    assert!(
        report.contains("\"lost\":true") && report.contains("\"command_code\":0"),
        "{report}"
    );
}

#[test]
fn on_lost_warn_lets_the_command_continue() {
    let server = RedisServer::start();
    let args = [
        "--on-lost",
        "warn",
        "--lost-exit-code",
        "0",
        "demo",
        "--",
        "sh",
        "-c",
    ];
    let script = "echo $$; while [ ! -e go ]; do sleep 0.05; done; exit 5";
    let folder = tempfile::tempdir().unwrap();
    let args = leased(&[&args[..], &[script]].concat());
    let mut command = run_at(&server.url(), &args);
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    let pid = command_pid(&mut child);
    server.cmd(&["DEL", "demo"]);
    let mut message = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    message.read_line(&mut line).unwrap();
    assert!(line.contains("lost"), "{line}");
    assert!(is_alive(pid));
    fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// L2 and L6: the network is cut. TERM, and KILL for a command that ignores TERM, come before the lease ends.
#[test]
fn a_command_ends_before_its_lease_can() {
    let server = RedisServer::start();
    for script in [
        "echo $$; exec sleep 1000",
        "trap '' TERM; echo $$; while :; do sleep 0.05; done",
    ] {
        let proxy = Proxy::to(server.addr());
        let mut child = run_at(&proxy.url(), &leased(&["demo", "--", "sh", "-c", script]));
        let mut child = child.spawn().unwrap();
        let command = command_pid(&mut child);
        proxy.black_hole();
        let other = client_of(&server.url()).lock("demo");
        assert!(
            other.try_lock_for(LEASE * 3).unwrap(),
            "the lock is free after a lease"
        );
        assert!(
            !is_alive(command),
            "{script}: two commands run under one lock"
        );
        other.unlock().unwrap();
        proxy.heal();
        let output = child.wait_with_output().unwrap();
        ends_with(&output, 121);
        assert!(
            stderr(&output).contains("before the lock can be lost"),
            "{}",
            stderr(&output)
        );
    }
}

/// L10: after redlatch is killed, no command remains, and no key remains after its lease.
#[test]
#[cfg(target_os = "linux")]
fn a_killed_redlatch_leaves_no_command() {
    let server = RedisServer::start();
    let mut draw = drawn();
    let rounds = if is_long() { 200 } else { 20 };
    for _ in 0..rounds {
        let mut child = spawn(
            &server,
            &[
                "--lease",
                "2s",
                "demo",
                "--",
                "sh",
                "-c",
                "echo $$; exec sleep 1000",
            ],
        );
        // Some runs are killed before they start anything, others later.
        thread::sleep(ms(draw.u64(0..300)));
        let _ = kill_process(pid_of(&child), Signal::KILL);
        child.wait().unwrap();
        let mut printed = String::new();
        // The output ends when no process has the pipe open.
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        if let Some(pid) = printed.lines().next().and_then(|line| line.parse().ok()) {
            let pid = Pid::from_raw(pid).unwrap();
            eventually(SLACK, "the command has ended", || !is_alive(pid));
        }
    }
    eventually(ms(2000) + SLACK, "the lock is free", || {
        server.int(&["DBSIZE"]) == 0
    });
}

const TWO: &str = "sleep 1000 & echo $$ $!; wait";

/// L2: the kernel would signal only the command itself.
#[test]
fn a_killed_redlatch_leaves_no_descendant() {
    let server = RedisServer::start();
    let mut child = spawn(&server, &["demo", "--", "sh", "-c", TWO]);
    let both = both_of(&mut child);
    assert!(both.iter().all(|pid| is_alive(*pid)));
    kill_process(pid_of(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    eventually(SLACK, "both have ended", || {
        both.iter().all(|pid| !is_alive(*pid))
    });
}

/// L2: a stopped redlatch renews no lease, and cannot end the command.
#[test]
fn a_stopped_redlatch_leaves_no_command_after_its_lease() {
    let server = RedisServer::start();
    let mut child = spawn(&server, &leased(&["demo", "--", "sh", "-c", TWO]));
    let both = both_of(&mut child);
    kill_process(pid_of(&child), Signal::STOP).unwrap();
    let other = client_of(&server.url()).lock("demo");
    assert!(other.try_lock_for(LEASE * 3).unwrap());
    assert!(
        both.iter().all(|pid| !is_alive(*pid)),
        "two commands run under one lock"
    );
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 121);
    let message = stderr(&output);
    assert!(message.contains("so the command was killed"), "{message}");
    other.unlock().unwrap();
}

/// If the hold is lost on the server, the command has the time from TERM to KILL.
#[test]
fn a_command_may_clean_up_after_a_loss() {
    let server = RedisServer::start();
    let script = "trap 'sleep 1; echo cleared; exit 0' TERM; echo $$; while :; do sleep 0.05; done";
    let args = ["--kill-after", "30s", "demo", "--", "sh", "-c", script];
    let mut child = spawn(&server, &leased(&args));
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    server.cmd(&["DEL", "demo"]);
    line.clear();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "cleared\n");
    ends_with(&child.wait_with_output().unwrap(), 121);
}

/// With `--on-lost warn`, the lease limits only an orphaned command.
#[test]
fn an_orphan_may_get_term_and_the_rest_of_the_lease() {
    let server = RedisServer::start();
    let script = "trap 'echo cleared' TERM; echo $$; while :; do sleep 0.05; done";
    for on_lost in ["term", "warn"] {
        let args = ["--orphan", "term", "--on-lost", on_lost];
        let args = [&args[..], &["demo", "--", "sh", "-c", script]].concat();
        let mut child = spawn(&server, &leased(&args));
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        let command = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        kill_process(pid_of(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        line.clear();
        printed.read_line(&mut line).unwrap();
        assert_eq!(line, "cleared\n");
        let other = client_of(&server.url()).lock("demo");
        assert!(other.try_lock_for(LEASE * 3).unwrap());
        let is_left = is_alive(command);
        other.unlock().unwrap();
        if is_left {
            kill_process(command, Signal::KILL).unwrap();
        }
        assert!(!is_left, "two commands run under one lock: {on_lost}");
    }
}

/// The shell ends at once. Its child cleans up, and the lock is held until the child ends.
#[test]
fn the_whole_group_may_clean_up() {
    let server = RedisServer::start();
    let worker = "trap 'until [ -e go ]; do sleep 0.05; done; echo cleared; exit' TERM HUP
        echo $PPID $$; while :; do sleep 0.05; done";
    let script = format!("sh -c \"{}\"; true", worker.replace('$', "\\$"));
    for signal in [Signal::TERM, Signal::HUP] {
        let folder = tempfile::tempdir().unwrap();
        let args = ["--kill-after", "60s", "demo", "--", "sh", "-c", &script];
        let mut command = run_at(&server.url(), &args);
        let mut child = command.current_dir(folder.path()).spawn().unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        let [shell, worker] = both_in(&mut printed);
        kill_process(pid_of(&child), signal).unwrap();
        eventually(SLACK, "the shell has ended", || !is_alive(shell));
        // Without waiting for the group, redlatch would exit within this time.
        thread::sleep(ms(500));
        assert!(is_alive(pid_of(&child)), "redlatch exited before the group");
        assert_eq!(server.int(&["EXISTS", "demo"]), 1);
        fs::write(folder.path().join("go"), "").unwrap();
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        assert_eq!(line, "cleared\n");
        ends_with(&child.wait_with_output().unwrap(), 128 + signal.as_raw());
        assert!(!is_alive(worker), "the worker outlived the lock");
    }
}

/// The id of an ended command may be reused. So the switch exits long before the lease ends.
#[test]
fn the_switch_of_an_orphan_sends_one_term_and_exits() {
    let server = RedisServer::start();
    let script = "n=0; i=0; trap 'echo term; n=1' TERM; echo $$
        while [ $i -lt 20 ]; do sleep 0.05; i=$((i + n)); done";
    let args = [
        "--lease", "120s", "--orphan", "term", "demo", "--", "sh", "-c", script,
    ];
    let mut child = spawn(&server, &args);
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut message = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    let begun = Instant::now();
    kill_process(pid_of(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "term\n");
    // The switch has stderr open, so the read ends when the switch exits.
    message.read_to_string(&mut rest).unwrap();
    assert!(begun.elapsed() < ms(50_000), "{:?}", begun.elapsed());
}

#[test]
fn the_switch_exits_with_its_command() {
    let server = RedisServer::start();
    let mut child = spawn(
        &server,
        &["demo", "--", "sh", "-c", "echo $$; exec sleep 1000"],
    );
    let command = command_pid(&mut child);
    let parent = format!("PPid:\t{}\n", pid_of(&child).as_raw_nonzero());
    let children = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let is_child = |status: &str| status.contains(&parent) && !status.contains("State:\tZ");
        let statuses = all.filter_map(|it| fs::read_to_string(it.path().join("status")).ok());
        statuses.filter(|status| is_child(status)).count()
    };
    eventually(SLACK, "the command and its switch run", || children() == 2);
    kill_process(command, Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 143);
    assert_eq!(stderr(&output), "");
}

#[test]
#[cfg(target_os = "linux")]
fn an_orphan_may_be_kept() {
    let server = RedisServer::start();
    let script = "echo $$; exec sleep 1000";
    let mut child = spawn(
        &server,
        &["--orphan", "keep", "demo", "--", "sh", "-c", script],
    );
    let command = command_pid(&mut child);
    kill_process(pid_of(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    thread::sleep(ms(300));
    assert!(is_alive(command));
    kill_process(command, Signal::KILL).unwrap();
}

#[test]
fn a_killed_server_ends_the_command_in_time() {
    let server = RedisServer::start();
    let mut child = spawn(
        &server,
        &leased(&["demo", "--", "sh", "-c", "echo $$; exec sleep 1000"]),
    );
    let command = command_pid(&mut child);
    server.kill();
    let begun = Instant::now();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 121);
    assert!(!is_alive(command));
    assert!(begun.elapsed() < LEASE + SLACK, "{:?}", begun.elapsed());
}
