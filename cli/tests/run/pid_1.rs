//! `run` as process 1 of a process namespace, as in a container.

use std::io::Write;

use super::*;

/// Returns a command that runs redlatch as process 1. If this is not permitted, prints a message and returns `None`.
fn run_as_pid_1(server: &RedisServer, args: &[&str]) -> Option<Command> {
    let namespace = ["--pid", "--fork", "--mount-proc"];
    let is_permitted = Command::new("unshare")
        .args(namespace)
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_permitted {
        // The test harness hides the output of a test that passes, so this bypasses it.
        let _ = writeln!(
            std::io::stderr().lock(),
            "skipped: cannot create a process namespace here (unshare --pid)"
        );
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(namespace).arg(env!("CARGO_BIN_EXE_redlatch"));
    command.arg("run").args(args);
    command
        .env("REDLATCH_URL", server.url())
        .env("REDLATCH_COMMAND_TIMEOUT", "20s")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Some(command)
}

#[test]
fn pid_1_reaps_orphans() {
    let server = RedisServer::start();
    // An orphan becomes a child of process 1, and stays in /proc until it is reaped.
    let script = "sh -c 'sleep 0.2 & echo $! > orphan'; orphan=$(cat orphan)
        [ -e /proc/$orphan ] && echo left
        while [ -e /proc/$orphan ]; do sleep 0.05; done
        echo reaped by $PPID; exit 5";
    let args = ["--max-run", "60s", "demo", "--", "sh", "-c", script];
    let Some(mut command) = run_as_pid_1(&server, &args) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let output = command.current_dir(folder.path()).output().unwrap();
    ends_with(&output, 5);
    assert_eq!(stdout(&output), "left\nreaped by 1\n");
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn pid_1_forwards_signals() {
    let server = RedisServer::start();
    // The kernel delivers a signal to process 1 only if it has a handler.
    let script = "trap 'echo ended; exit 3' TERM; echo in; while :; do sleep 0.05; done";
    let args = ["demo", "--", "sh", "-c", script];
    let Some(mut command) = run_as_pid_1(&server, &args) else {
        return;
    };
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "in");
    let pid = child.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let first = children.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(first.unwrap(), Signal::TERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ended");
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(server.int(&["DBSIZE"]), 0);
}
