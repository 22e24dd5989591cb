//! Signals to a command and its group, and how long their end may take.

use super::*;

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
fn other_signals_are_forwarded() {
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
    let message = stderr(&output);
    for word in ["--max-run", "300ms", "TERM", "KILL"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert!(begun.elapsed() >= ms(600) && begun.elapsed() < ms(600) + SLACK);
}

/// Returns a script that ignores these signals. Its sleeps are short, so that no child remains.
fn ignoring(signals: &str) -> String {
    format!("trap '' {signals}; echo $$; while :; do sleep 0.05; done")
}

#[test]
fn a_second_int_ends_a_command_that_ignores_the_first() {
    let server = RedisServer::start();
    let script = ignoring("INT");
    let mut child = spawn(&server, &["demo", "--", "sh", "-c", &script]);
    let command = command_pid(&mut child);
    let begun = Instant::now();
    kill_process(pid_of(&child), Signal::INT).unwrap();
    thread::sleep(ms(300));
    assert!(is_alive(command));
    kill_process(pid_of(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < ms(9_000), "{:?}", begun.elapsed());
    ends_with(&output, 128 + 15);
    let message = stderr(&output);
    assert!(
        message.contains("INT") && message.contains("TERM"),
        "{message}"
    );
}

#[test]
fn an_int_ignored_for_ten_seconds_ends_the_command() {
    let server = RedisServer::start();
    let script = ignoring("INT TERM");
    let args = ["--kill-after", "300ms", "demo", "--", "sh", "-c", &script];
    let mut child = spawn(&server, &args);
    command_pid(&mut child);
    let begun = Instant::now();
    kill_process(pid_of(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() >= ms(10_000), "{:?}", begun.elapsed());
    assert!(
        begun.elapsed() < ms(10_300) + SLACK,
        "{:?}",
        begun.elapsed()
    );
    ends_with(&output, 128 + 9);
    let message = stderr(&output);
    assert!(
        message.contains("TERM") && message.contains("KILL"),
        "{message}"
    );
}
