//! Acquiring the lock before the command starts.

use super::*;

#[test]
fn run_waits_for_a_held_lock_unless_told_not_to() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("demo");
    lock.lock().unwrap();
    let refused = at(&server, &["run", "--try", "demo", "--", "echo", "in"]);
    ends_with(&refused, 120);
    assert_eq!(stdout(&refused), "");
    ends_with(
        &at(&server, &["run", "--try", "-E", "0", "demo", "--", "echo"]),
        0,
    );
    let begun = Instant::now();
    ends_with(
        &at(&server, &["run", "--wait", "600ms", "demo", "--", "echo"]),
        120,
    );
    assert!(begun.elapsed() >= ms(600));
    let child = spawn(&server, &["demo", "--", "echo", "in"]);
    thread::sleep(ms(1500));
    lock.unlock().unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 0);
    assert_eq!(stdout(&output), "in\n");
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let message = format!("waiting for demo, held by {host}/{}", std::process::id());
    assert!(stderr(&output).contains(&message), "{}", stderr(&output));
}

#[test]
fn several_locks_are_acquired_all_or_none() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("b");
    lock.lock().unwrap();
    ends_with(&at(&server, &["run", "--try", "a", "b", "--", "true"]), 120);
    assert_eq!(server.int(&["EXISTS", "a"]), 0);
    lock.unlock().unwrap();
    let output = at(
        &server,
        &["run", "a", "b", "--", "sh", "-c", "echo $REDLATCH_LOCK"],
    );
    ends_with(&output, 0);
    assert_eq!(stdout(&output), "a + b\n");
}

#[test]
fn invalid_input_or_an_unreachable_server_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let touch = ran.to_str().unwrap();
    let gone = format!("redis://127.0.0.1:{}", crate::support::free_port());
    for args in [
        &["demo"][..],
        &["--", "touch", touch],
        &["--try", "--wait", "5s", "demo", "--", "touch", touch],
        &["--once-per", "1h", "a", "b", "--", "touch", touch],
        &[
            "--once-per",
            "1h",
            "--redlock",
            "--node",
            &gone,
            "a",
            "--",
            "touch",
            touch,
        ],
        &["--try", "demo", "--", "touch", touch],
        &["--wait", "300ms", "demo", "--", "touch", touch],
        &["demo", "--", ""],
    ] {
        let output = run_at(&gone, args).output().unwrap();
        ends_with(&output, 125);
        assert_eq!(
            stderr(&output).lines().count(),
            1,
            "{args:?}: {}",
            stderr(&output)
        );
    }
    assert!(!ran.exists());
}

#[test]
fn grace_has_limits() {
    let server = RedisServer::start();
    let run = |grace: &str| {
        let args = ["run", "--lease", "30s", "--grace", grace];
        at(
            &server,
            &[&args[..], &["demo", "--", "echo", "in"]].concat(),
        )
    };
    for (grace, expected) in [("10001ms", "a third of the lease"), ("599ms", "600ms")] {
        let output = run(grace);
        ends_with(&output, 125);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
    for grace in ["10s", "600ms"] {
        ends_with(&run(grace), 0);
    }
}

/// Returns how often the signal thread has blocked.
#[cfg(target_os = "linux")]
fn context_switches_of_the_signal_thread(redlatch: &Child) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", redlatch.id())).ok()?;
    let read =
        |it: std::io::Result<fs::DirEntry>| fs::read_to_string(it.ok()?.path().join("status")).ok();
    let mut statuses = tasks.filter_map(read);
    let status = statuses.find(|status| status.starts_with("Name:\tredlatch-signal"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// A signal during the wait is dropped.
#[test]
#[cfg(target_os = "linux")]
fn signals_during_the_wait_are_not_forwarded() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("demo");
    lock.lock().unwrap();
    let child = spawn(&server, &["demo", "--", "sh", "-c", "sleep 0.3; echo in"]);
    eventually(SLACK, "redlatch waits", || {
        lock.describe().unwrap().listening == Some(1)
    });
    let before = context_switches_of_the_signal_thread(&child).unwrap();
    kill_process(pid_of(&child), Signal::USR1).unwrap();
    eventually(SLACK, "redlatch has received the signal", || {
        context_switches_of_the_signal_thread(&child).unwrap() > before
    });
    lock.unlock().unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 0);
    assert_eq!(stdout(&output), "in\n");
}

/// L3: a signal ends the wait soon, and no command is started after it.
#[test]
fn a_signal_ends_the_wait_and_nothing_is_started() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("demo");
    lock.lock().unwrap();
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let child = spawn(&server, &["--quiet", "demo", "--", "echo", "in"]);
        eventually(SLACK, "redlatch waits", || {
            lock.describe().unwrap().listening == Some(1)
        });
        let begun = Instant::now();
        kill_process(pid_of(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(begun.elapsed() < ms(250) + SLACK);
        ends_with(&output, 128 + number);
        assert_eq!(stdout(&output), "");
        // The library keeps a subscription for a while after the wait.
        eventually(SLACK, "no client is subscribed", || {
            lock.describe().unwrap().listening == Some(0)
        });
    }
    lock.unlock().unwrap();
}

/// L7: a nested run of the same lock does not wait for the outer run.
#[test]
fn a_nested_run_of_the_same_lock_does_not_wait() {
    let server = RedisServer::start();
    let itself = env!("CARGO_BIN_EXE_redlatch");
    let nested = |name: &str| {
        at(
            &server,
            &["run", "demo", "--", itself, "run", name, "--", "echo", "in"],
        )
    };
    ends_with(&nested("demo"), 122);
    let other = nested("other");
    ends_with(&other, 0);
    assert_eq!(stdout(&other), "in\n");
    // A stale variable has no effect.
    let mut command = run_at(&server.url(), &["demo", "--", "true"]);
    command.env(
        "REDLATCH_VISITOR",
        "9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:1:1",
    );
    ends_with(&command.output().unwrap(), 0);
}

#[test]
fn two_commands_of_one_name_do_not_overlap() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "mkdir {0}/in || exit 9; sleep 0.05; rmdir {0}/in",
        folder.path().display()
    );
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    ends_with(&at(&server, &["run", "demo", "--", "sh", "-c", &script]), 0);
                }
            });
        }
    });
}
