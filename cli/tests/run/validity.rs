//! Exit code 0 means that the lock was held from before the start of the command until after its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::SystemTime;

use super::*;
use crate::support::{End, Fault, Proxy};

const LEASE: Duration = ms(3000);

/// Faults that are applied to runs of each lock.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RunFault {
    None,
    /// No data passes for a random time, which may exceed the lease.
    Silence,
    Cut,
    /// The hold is released by force.
    Forced,
    Deleted,
}

const RUN_FAULTS: [RunFault; 5] = [
    RunFault::None,
    RunFault::Silence,
    RunFault::Cut,
    RunFault::Forced,
    RunFault::Deleted,
];

/// The time between two instants, in ns since 1970.
#[derive(Debug, PartialEq)]
struct Interval(u128, u128);

fn nanos() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_nanos()
}

/// The scope joins the rival, so the rival must stop even if the test panics.
struct StopRival<'a>(&'a AtomicBool);

impl Drop for StopRival<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A rival tries the lock all the time, and records when it acquired the lock.
fn rival(url: &str, name: &str, ends: &AtomicBool) -> Vec<Interval> {
    let lock = client_of(url).lock(name);
    let mut got = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let asked = nanos();
        if lock.try_lock().unwrap() {
            got.push(Interval(asked, nanos()));
            // The fault of a run may come after the end of this run. The rival's hold is then lost.
            drop(lock.unlock());
        }
        thread::sleep(ms(5));
    }
    got
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|reason| {
        let text = reason.downcast_ref::<String>().map(String::as_str);
        let text = text.or(reason.downcast_ref::<&str>().copied());
        panic!("a thread panicked: {}", text.unwrap_or("no message"))
    })
}

/// Runs a command, and applies the fault at a random instant. Returns the command's running time if the exit code is 0.
fn one_run(
    server: &RedisServer,
    name: &str,
    fault: RunFault,
    draw: &mut fastrand::Rng,
) -> Option<Interval> {
    let proxy = Proxy::to(server.addr());
    let folder = tempfile::tempdir().unwrap();
    let (at, lasts) = (ms(draw.u64(0..1500)), ms(draw.u64(0..4500)));
    let works = draw.u64(200..2500);
    let script = format!(
        "date +%s%N > begun; echo $REDLATCH_VISITOR; sleep {}.{:03}; date +%s%N > ended",
        works / 1000,
        works % 1000
    );
    let args = ["--quiet", "--lease", "3s", "--command-timeout", "1s"];
    let args = [&args[..], &[name, "--", "sh", "-c", &script]].concat();
    let mut command = run_at(&proxy.url(), &args);
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    // The run may wait for the rival. It may also find no server within its timeout.
    let mut printed = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut printed)
        .unwrap();
    let visitor = printed.trim();
    let mut is_surely_lost = false;
    thread::sleep(at);
    let lock = client_of(&server.url()).lock(name);
    match fault {
        RunFault::None => {}
        RunFault::Silence => {
            proxy.black_hole();
            thread::sleep(lasts);
            proxy.heal();
        }
        RunFault::Cut => proxy.cut(),
        RunFault::Forced if visitor.is_empty() => {}
        RunFault::Forced => is_surely_lost = lock.force_unlock_of(visitor).unwrap(),
        RunFault::Deleted => drop(server.cmd(&["DEL", name])),
    }
    let output = child.wait_with_output().unwrap();
    let code = output.status.code().unwrap();
    let message = stderr(&output);
    // On a busy machine, the reply to the unlock may come too late, or redlatch may check too late. redlatch prints this.
    let is_unconfirmed = code == 0 && !message.is_empty();
    let is_late = message.contains("so the command was killed");
    assert!(
        !is_surely_lost || code == 121 || is_unconfirmed || is_late,
        "{code}: {message}"
    );
    let time_in = |file: &str| -> Option<u128> {
        let text = fs::read_to_string(folder.path().join(file)).ok()?;
        text.trim().parse().ok()
    };
    if code != 0 {
        assert!(
            [121, 125].contains(&code) || is_late,
            "{fault:?}: {code}: {message}"
        );
        return None;
    }
    // If no reply reported that the hold was removed, the exit code cannot show it.
    if is_unconfirmed && matches!(fault, RunFault::Forced | RunFault::Deleted) {
        return None;
    }
    Some(Interval(
        time_in("begun").unwrap(),
        time_in("ended").expect("the end was recorded"),
    ))
}

#[test]
fn exit_code_0_means_the_lock_was_held_throughout() {
    let server = RedisServer::start();
    let rounds = if is_long() { 80 } else { 2 };
    let mut draw = drawn();
    let ended_well: usize = thread::scope(|scope| {
        let names: Vec<_> = (0..RUN_FAULTS.len())
            .map(|place| {
                let (server, mut draw) = (&server, draw.fork());
                scope.spawn(move || {
                    let name = format!("validity-{place}");
                    let ends = AtomicBool::new(false);
                    thread::scope(|scope| {
                        let rival = scope.spawn(|| rival(&server.url(), &name, &ends));
                        let stop_rival = StopRival(&ends);
                        let spans: Vec<Interval> = (place..place + rounds)
                            .filter_map(|at| {
                                let fault = RUN_FAULTS[at % RUN_FAULTS.len()];
                                one_run(server, &name, fault, &mut draw)
                            })
                            .collect();
                        drop(stop_rival);
                        let got = joined(rival);
                        assert!(!got.is_empty(), "the rival never acquired the lock");
                        for span in &spans {
                            let is_inside = |it: &&Interval| span.0 < it.0 && it.1 < span.1;
                            let inside = got.iter().find(is_inside);
                            assert_eq!(inside, None, "{name} ran in {span:?} with code 0");
                        }
                        spans.len()
                    })
                })
            })
            .collect();
        names.into_iter().map(joined).sum()
    });
    assert!(ended_well > 0, "at least one run must succeed");
}

/// Setting the mark takes longer than the lease.
#[test]
fn nothing_starts_after_the_lock_was_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let rule = proxy.next(1, Some(b"job:once"), Fault::Hold);
    let args = [
        "--lease",
        "2s",
        "--command-timeout",
        "30s",
        "--once-per",
        "1h",
    ];
    let args = [&args[..], &["job", "--", "echo", "in"]].concat();
    let child = run_at(&proxy.url(), &args).spawn().unwrap();
    eventually(SLACK, "redlatch has requested the mark", || {
        rule.hits() == 1
    });
    // After a forced release, redlatch stops renewing the hold.
    let lock = client_of(&server.url()).lock("job");
    lock.force_unlock().unwrap();
    thread::sleep(LEASE);
    rule.release();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 121);
    assert_eq!(stdout(&output), "");
    // No command was started, so another machine may run the job in this period.
    ends_with(
        &at(&server, &["run", "--once-per", "1h", "job", "--", "true"]),
        0,
    );
}

/// Runs a job whose mark is set through a proxy. The proxy holds the request back until `signal` was sent. Without a
/// signal, it drops the reply.
fn run_with_unanswered_mark(
    server: &RedisServer,
    timeout: &str,
    signal: Option<Signal>,
) -> std::process::Output {
    let proxy = Proxy::to(server.addr());
    let fault = match signal {
        Some(_) => Fault::Hold,
        None => Fault::SwallowReply(End::Silent),
    };
    let rule = proxy.next(1, Some(b"job:once"), fault);
    let args = [
        "--command-timeout",
        timeout,
        "--once-per",
        "1h",
        "job",
        "--",
        "echo",
        "in",
    ];
    let child = run_at(&proxy.url(), &args).spawn().unwrap();
    eventually(SLACK, "redlatch has requested the mark", || {
        rule.hits() == 1
    });
    if let Some(signal) = signal {
        kill_process(pid_of(&child), signal).unwrap();
        // The signal handler needs a moment to run.
        thread::sleep(ms(500));
        rule.release();
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_job_prevented_by_a_signal_does_not_count() {
    let server = RedisServer::start();
    let output = run_with_unanswered_mark(&server, "30s", Some(Signal::TERM));
    ends_with(&output, 128 + 15);
    assert_eq!(stdout(&output), "");
    assert_eq!(server.int(&["EXISTS", "job:once"]), 0);
}

#[test]
fn a_job_with_an_in_doubt_mark_does_not_count() {
    let server = RedisServer::start();
    let output = run_with_unanswered_mark(&server, "1s", None);
    ends_with(&output, 125);
    assert_eq!(stdout(&output), "");
    assert_eq!(server.int(&["EXISTS", "job:once"]), 0);
}

/// The command succeeded, but the mark could not be set. Exit code 0 would claim the contrary.
#[test]
fn an_unrecorded_success_is_reported() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    // `is_locked` accepts a value of another type, so only the attempt to lock detects it.
    let script = format!("redis-cli -p {} set job:once x", server.port());
    let args = ["run", "--once-per", "1h", "--mark", "success", "--report"];
    let rest = ["job", "--", "sh", "-c", &script];
    let output = at(
        &server,
        &[&args[..], &[report.to_str().unwrap()], &rest].concat(),
    );
    ends_with(&output, 125);
    assert!(stderr(&output).contains("job:once"), "{}", stderr(&output));
    let report = fs::read_to_string(report).unwrap();
    assert!(report.contains("\"command_code\":0"), "{report}");
    assert_eq!(server.int(&["EXISTS", "job"]), 0);
}

/// After the end of the command, the release takes at most one command timeout.
#[test]
fn a_server_frozen_at_the_end_costs_one_request() {
    let server = RedisServer::start();
    let script = "echo $$; while [ ! -e go ]; do sleep 0.05; done";
    let args = ["--command-timeout", "1s", "demo", "--", "sh", "-c", script];
    let folder = tempfile::tempdir().unwrap();
    let mut command = run_at(&server.url(), &args);
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    command_pid(&mut child);
    server.freeze();
    fs::write(folder.path().join("go"), "").unwrap();
    let begun = Instant::now();
    let output = child.wait_with_output().unwrap();
    let took = begun.elapsed();
    server.thaw();
    // The lock was valid until the command ended.
    ends_with(&output, 0);
    assert!(took < ms(1000) + SLACK, "{took:?}");
    assert!(stderr(&output).contains("demo"), "{}", stderr(&output));
}
