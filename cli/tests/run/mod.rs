//! `run`: the laws of a command under a lock.

mod faults;
#[cfg(target_os = "linux")]
mod first_process;
#[cfg(target_os = "linux")]
mod gate;
mod machines;
mod places;
#[cfg(target_os = "linux")]
mod terminal;
mod unread;
mod validity;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::{RedisServer, eventually, is_long, ms};
use crate::{at, client_of, ends_with, redlatch, stderr, stdout};

/// What a busy machine may add to any time.
const SLACK: Duration = ms(2500);

fn run_at(url: &str, args: &[&str]) -> Command {
    let mut command = redlatch();
    command.env("REDLATCH_URL", url).arg("run").args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn spawn(server: &RedisServer, args: &[&str]) -> Child {
    run_at(&server.url(), args).spawn().unwrap()
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The first line that the command prints, which is its process.
fn command_pid(child: &mut Child) -> Pid {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    Pid::from_raw(line.trim().parse().unwrap_or_else(|_| panic!("{line:?}"))).unwrap()
}

fn is_alive(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = fs::read_to_string(path).unwrap_or_default();
    // One that nobody has reaped yet runs no more.
    test_kill_process(pid).is_ok() && !stat.contains(") Z")
}

#[test]
fn the_code_of_the_command_is_ours() {
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
    assert_eq!(server.int(&["DBSIZE"]), 0, "all is unlocked");
}

/// A parent may ignore the ends of its children, and those inherit that.
#[test]
#[cfg(target_os = "linux")]
fn an_end_is_noticed_also_below_a_parent_that_ignores_such() {
    let server = RedisServer::start();
    let mut command = Command::new("env");
    command
        .arg("--ignore-signal=CHLD")
        .arg(env!("CARGO_BIN_EXE_redlatch"))
        .args(["run", "demo", "--", "sh", "-c", "exit 7"])
        .env("REDLATCH_URL", server.url())
        .stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually(SLACK * 10, "it ends", || {
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn standard_input_and_output_are_those_of_the_command() {
    let server = RedisServer::start();
    let mut command = run_at(&server.url(), &["demo", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 0);
    assert_eq!(stdout(&output), "hello");
}

#[test]
fn a_lock_that_somebody_has_is_waited_for_or_not() {
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
    let said = format!("waiting for demo, held by {host}/{}", std::process::id());
    assert!(stderr(&output).contains(&said), "{}", stderr(&output));
}

#[test]
fn several_names_are_taken_all_or_none() {
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
fn bad_input_and_a_server_that_is_gone_never_run_anything() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let touch = ran.to_str().unwrap();
    let gone = format!("redis://127.0.0.1:{}", crate::support::free_port());
    for args in [
        &["demo"][..],
        &["--", "touch", touch],
        &["--try", "--wait", "5s", "demo", "--", "touch", touch],
        &["--grace", "20s", "demo", "--", "touch", touch],
        &["--grace", "599ms", "demo", "--", "touch", touch],
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

/// L3: a signal ends a wait soon, and nothing is started after it.
#[test]
fn a_signal_ends_a_wait_and_nothing_is_started() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("demo");
    lock.lock().unwrap();
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let child = spawn(&server, &["--quiet", "demo", "--", "echo", "in"]);
        eventually(SLACK * 4, "it waits", || {
            lock.describe().unwrap().listening == Some(1)
        });
        let begun = Instant::now();
        kill_process(pid_of(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(begun.elapsed() < ms(250) + SLACK);
        ends_with(&output, 128 + number);
        assert_eq!(stdout(&output), "");
        // Subscriptions linger.
        eventually(SLACK * 4, "nobody listens", || {
            lock.describe().unwrap().listening == Some(0)
        });
    }
    lock.unlock().unwrap();
}

/// L4: a signal reaches every process of the group.
#[test]
fn a_signal_reaches_the_whole_group() {
    let server = RedisServer::start();
    let script = "sleep 1000 & echo $!; wait";
    let mut child = spawn(&server, &["demo", "--", "sh", "-c", script]);
    let sleeper = command_pid(&mut child);
    assert!(is_alive(sleeper));
    kill_process(pid_of(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 128 + 15);
    eventually(SLACK, "the sleeper has ended", || !is_alive(sleeper));
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn other_signals_go_on_to_the_command() {
    let server = RedisServer::start();
    let script = "trap 'echo one; exit 3' USR1; echo $$; while :; do sleep 0.05; done";
    let mut child = spawn(&server, &["demo", "--", "sh", "-c", script]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    kill_process(pid_of(&child), Signal::USR1).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_command_that_ignores_term_is_killed_in_time() {
    let server = RedisServer::start();
    let script = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
    let args = [
        "--kill-after",
        "300ms",
        "--max-run",
        "300ms",
        "demo",
        "--",
        "sh",
        "-c",
        script,
    ];
    let begun = Instant::now();
    let output = at(&server, &[&["run"], &args[..]].concat());
    ends_with(&output, 124);
    assert!(begun.elapsed() >= ms(600) && begun.elapsed() < ms(600) + SLACK);
}

/// L7: a nested run of the same name does not wait for its parent.
#[test]
fn a_nested_run_of_the_same_name_does_not_wait() {
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
    // A stale variable harms nobody.
    let mut command = run_at(&server.url(), &["demo", "--", "true"]);
    command.env(
        "REDLATCH_VISITOR",
        "9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:1:1",
    );
    ends_with(&command.output().unwrap(), 0);
}

/// L9: the command gets no secret and no descriptor of ours.
#[test]
fn the_command_gets_its_lock_and_no_secret() {
    const CANARY: &str = "canary-4b7c";
    let server = RedisServer::with(&["--requirepass", CANARY]);
    let url = format!("redis://:{CANARY}@127.0.0.1:{}", server.port());
    let script =
        "env; ls -l /proc/self/fd; cat /proc/$PPID/cmdline; cat /proc/$PPID/environ >/dev/null";
    let mut command = run_at(&url, &["demo", "--", "sh", "-c", script]);
    command.env("REDLATCH_PASSWORD", CANARY);
    let output = command.output().unwrap();
    ends_with(&output, 0);
    let told = stdout(&output);
    assert!(
        !told.contains(CANARY) && !stderr(&output).contains(CANARY),
        "{told}"
    );
    for name in [
        "REDLATCH_LOCK=demo",
        "REDLATCH_VISITOR=",
        "REDLATCH_LEASE_MS=30000",
    ] {
        assert!(told.contains(name), "{name}: {told}");
    }
    assert!(
        !told.contains("socket:") && !told.contains("anon_inode"),
        "{told}"
    );
    let mut command = run_at(&url, &["--keep-credentials", "demo", "--", "env"]);
    let output = command.env("REDLATCH_PASSWORD", CANARY).output().unwrap();
    assert!(stdout(&output).contains(CANARY), "{}", stdout(&output));
}

#[test]
fn a_run_in_a_period_is_the_only_one() {
    let server = RedisServer::start();
    let job = |args: &[&str]| {
        let all = [
            &["run", "--once-per", "1h"],
            args,
            &["job", "--", "echo", "in"],
        ]
        .concat();
        at(&server, &all)
    };
    ends_with(&job(&[]), 0);
    let again = job(&[]);
    ends_with(&again, 120);
    assert_eq!(stdout(&again), "");
    ends_with(&job(&["-E", "0"]), 0);
    ends_with(&job(&["--once-key", "today"]), 0);
    ends_with(&job(&["--once-key", "today"]), 120);
    let life = Duration::from_millis(server.int(&["PTTL", "job:once"]).try_into().unwrap());
    // A tenth, but at most five minutes, is left out.
    assert!(
        life <= Duration::from_secs(3300) && life > Duration::from_secs(3200),
        "{life:?}"
    );
}

#[test]
fn a_command_that_could_not_be_started_does_not_count() {
    let server = RedisServer::start();
    let job = |command: &[&str]| {
        let args = ["run", "--once-per", "1h", "job", "--"];
        at(&server, &[&args[..], command].concat())
    };
    ends_with(&job(&["/nowhere/at/all"]), 127);
    ends_with(&job(&["/etc/passwd"]), 126);
    // A command may say the same of itself.
    ends_with(&job(&["sh", "-c", "exit 127"]), 127);
    ends_with(&job(&["true"]), 120);
}

#[test]
fn only_an_end_with_0_counts_if_that_is_asked_for() {
    let server = RedisServer::start();
    let job = |script: &str| {
        let args = [
            "run",
            "--once-per",
            "1h",
            "--mark",
            "success",
            "job",
            "--",
            "sh",
            "-c",
            script,
        ];
        at(&server, &args)
    };
    ends_with(&job("exit 3"), 3);
    ends_with(&job("exit 0"), 0);
    ends_with(&job("exit 0"), 120);
}

#[test]
fn a_report_tells_what_became_of_a_run() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let read = |path: &Path| -> serde_json::Value {
        let value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        crate::schema::holds("report", &value);
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
    let told = read(&file);
    assert_eq!(
        (&told["obtained"], &told["command_code"]),
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
    let told = read(&file);
    assert_eq!(
        (&told["obtained"], &told["code"]),
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

/// Of two commands of one name one runs at a time.
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

#[test]
fn an_orphan_of_others_is_reaped() {
    let server = RedisServer::start();
    // The command starts a process that is left to us, as process 1 of a container has it; here it goes elsewhere.
    let output = at(
        &server,
        &["run", "demo", "--", "sh", "-c", "(sleep 0.2 &) ; echo done"],
    );
    ends_with(&output, 0);
    assert_eq!(output.status.signal(), None);
    let mut rest = String::new();
    (&output.stdout[..]).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
}

/// The draws of a test; `REDLATCH_SEED` repeats those of a run.
fn drawn() -> fastrand::Rng {
    let seed = std::env::var("REDLATCH_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("REDLATCH_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
