//! The exit code, streams and variables of the command.

use super::*;

#[test]
fn run_exits_with_the_code_of_the_command() {
    let server = RedisServer::start();
    for (script, code) in [
        ("true", 0),
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        ends_with(
            &at(&server, &["run", "demo", "--", "sh", "-c", script]),
            code,
        );
    }
    ends_with(&at(&server, &["run", "demo", "--", "/nowhere/at/all"]), 127);
    ends_with(&at(&server, &["run", "demo", "--", "/etc/passwd"]), 126);
    assert_eq!(server.int(&["DBSIZE"]), 0, "all locks are released");
}

/// Child processes inherit that their parent ignores SIGCHLD.
#[test]
#[cfg(target_os = "linux")]
fn an_ignored_sigchld_does_not_hide_the_end() {
    let server = RedisServer::start();
    let mut command = Command::new("env");
    command
        .arg("--ignore-signal=CHLD")
        .arg(env!("CARGO_BIN_EXE_redlatch"))
        .args(["run", "demo", "--", "sh", "-c", "exit 7"])
        .env("REDLATCH_URL", server.url())
        .stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually(SLACK, "redlatch exits", || {
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn the_command_inherits_stdin_and_stdout() {
    let server = RedisServer::start();
    let mut command = run_at(&server.url(), &["demo", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 0);
    assert_eq!(stdout(&output), "hello");
}

/// L9: the command gets no secret and no file descriptor of redlatch.
#[test]
fn the_command_gets_its_lock_but_no_secret() {
    const CANARY: &str = "canary-4b7c";
    let server = RedisServer::with(&["--requirepass", CANARY]);
    let url = format!("redis://:{CANARY}@127.0.0.1:{}", server.port());
    let script =
        "env; ls -l /proc/self/fd; cat /proc/$PPID/cmdline; cat /proc/$PPID/environ >/dev/null";
    let mut command = run_at(&url, &["demo", "--", "sh", "-c", script]);
    command.env("REDLATCH_PASSWORD", CANARY);
    let output = command.output().unwrap();
    ends_with(&output, 0);
    let printed = stdout(&output);
    assert!(
        !printed.contains(CANARY) && !stderr(&output).contains(CANARY),
        "{printed}"
    );
    for name in [
        "REDLATCH_LOCK=demo",
        "REDLATCH_VISITOR=",
        "REDLATCH_LEASE_MS=30000",
    ] {
        assert!(printed.contains(name), "{name}: {printed}");
    }
    assert!(
        !printed.contains("socket:") && !printed.contains("anon_inode"),
        "{printed}"
    );
    let mut command = run_at(&url, &["--keep-credentials", "demo", "--", "env"]);
    let output = command.env("REDLATCH_PASSWORD", CANARY).output().unwrap();
    assert!(stdout(&output).contains(CANARY), "{}", stdout(&output));
}

#[test]
fn the_report_describes_the_run() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let read = |path: &Path| -> serde_json::Value {
        let value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        crate::schema::assert_matches("report", &value);
        value
    };
    let name = file.to_str().unwrap();
    ends_with(
        &at(
            &server,
            &["run", "--report", name, "demo", "--", "sh", "-c", "exit 4"],
        ),
        4,
    );
    let printed = read(&file);
    assert_eq!(
        (&printed["obtained"], &printed["command_code"]),
        (&true.into(), &4.into())
    );
    let lock = client_of(&server.url()).lock("demo");
    lock.lock().unwrap();
    ends_with(
        &at(
            &server,
            &["run", "--try", "--report", name, "demo", "--", "true"],
        ),
        120,
    );
    let printed = read(&file);
    assert_eq!(
        (&printed["obtained"], &printed["code"]),
        (&false.into(), &120.into())
    );
    let gone = format!("redis://127.0.0.1:{}", crate::support::free_port());
    let output = run_at(&gone, &["--try", "--report", name, "demo", "--", "true"])
        .output()
        .unwrap();
    ends_with(&output, 125);
    assert!(
        read(&file)["error"]
            .as_str()
            .unwrap()
            .contains("cannot be reached")
    );
}

#[test]
fn the_report_does_not_wait_for_a_reader() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("report");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let args = ["run", "--report", pipe.to_str().unwrap(), "demo", "--"];
    let output = at(&server, &[&args[..], &["sh", "-c", "exit 3"]].concat());
    ends_with(&output, 3);
    assert!(
        stderr(&output).contains("cannot write the report"),
        "{}",
        stderr(&output)
    );
    let both = "redlatch run --report >(cat >read) demo -- true; until [ -s read ]; do sleep 0.05; done; cat read";
    let mut shell = Command::new("bash");
    let path = Path::new(env!("CARGO_BIN_EXE_redlatch")).parent().unwrap();
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    shell
        .current_dir(folder.path())
        .env("PATH", path)
        .env("REDLATCH_URL", server.url());
    let output = shell.args(["-c", both]).output().unwrap();
    assert!(stdout(&output).contains("\"obtained\":true"), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn run_without_proc_fails_before_locking() {
    let server = RedisServer::start();
    let hidden = "mount -t tmpfs none /proc && exec \"$@\"";
    let hide = ["--mount", "sh", "-c", hidden, "sh"];
    let mut unshare = Command::new("unshare");
    let is_permitted = unshare.args(hide).arg("true").output();
    if !is_permitted.is_ok_and(|output| output.status.success()) {
        let mut stderr = std::io::stderr().lock();
        let message = "skipped: cannot mount file systems here (unshare --mount)";
        let _ = std::io::Write::write_all(&mut stderr, message.as_bytes());
        return;
    }
    let mut command = Command::new("unshare");
    command.args(hide).arg(env!("CARGO_BIN_EXE_redlatch"));
    command.args(["run", "--once-per", "1h", "demo", "--", "true"]);
    let output = command.env("REDLATCH_URL", server.url()).output().unwrap();
    ends_with(&output, 125);
    let message = stderr(&output);
    assert!(
        message.contains("/proc/self/exe") && message.contains("mount"),
        "{message}"
    );
    assert_eq!(server.int(&["DBSIZE"]), 0);
}
