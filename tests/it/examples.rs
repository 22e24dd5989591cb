//! Every example runs, and its last lines show what its head promises.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

#[cfg(feature = "mysql")]
use crate::support::MariaDb;
use crate::support::RedisServer;

/// Far longer than any example runs.
const LIMIT: Duration = Duration::from_secs(120);

/// The latest modification time of a file or of a folder's content.
fn changed(path: &Path) -> SystemTime {
    let within = fs::read_dir(path).into_iter().flatten();
    let within = within.map(|entry| changed(&entry.unwrap().path()));
    let own = fs::metadata(path).unwrap().modified().unwrap();
    within.fold(own, SystemTime::max)
}

/// Whether an example is newer than its sources: `cargo test` builds examples, `cargo test --test it` does not.
fn is_new(example: &Path) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["Cargo.toml", "Cargo.lock", "src", "examples"];
    let changed = sources.map(|source| changed(&root.join(source)));
    let built = fs::metadata(example).and_then(|it| it.modified());
    built.is_ok_and(|built| changed.iter().all(|it| *it < built))
}

/// The program of an example, built with this test's features unless it is up to date.
fn program_of(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    // …/target/debug/deps/it-…
    let test = env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let program = profile.join("examples").join(name);
    if !is_new(&program) {
        BUILT.call_once(|| build(profile));
    }
    program
}

fn build(profile: &Path) {
    let features = [
        cfg!(feature = "tracing").then_some("tracing"),
        cfg!(feature = "test-util").then_some("test-util"),
        cfg!(feature = "mysql").then_some("mysql"),
        cfg!(feature = "tls").then_some("tls"),
    ];
    let features: Vec<_> = features.into_iter().flatten().collect();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--examples"])
        .args(["--features", &features.join(",")])
        .arg("--target-dir")
        .arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "the examples are built");
}

/// Runs an example, which must succeed, and returns its output.
#[track_caller]
fn run(name: &str, args: &[&str], env: &[(&str, &str)]) -> String {
    let mut example = Command::new(program_of(name))
        .args(args)
        .env_remove("REDIS_URL")
        .env_remove("MYSQL_URL")
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + LIMIT;
    // The output fits into a pipe.
    while example.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            example.kill().unwrap();
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = example.wait_with_output().unwrap();
    let said = String::from_utf8(stdout).unwrap();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{name}: {status}\n{said}\n{errors}");
    said
}

#[track_caller]
fn says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

/// Runs an example with and without a server.
fn run_everywhere(name: &str, parts: &[&str]) {
    says(&run(name, &[], &[]), parts);
    let server = RedisServer::start();
    says(&run(name, &[], &[("REDIS_URL", &server.url())]), parts);
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn quickstart() {
    let parts = [
        "hold count 2",
        "try_guard None",
        "there: holds the lock",
        "is_locked false",
    ];
    run_everywhere("quickstart", &parts);
}

#[test]
fn guard() {
    let parts = [
        "in the scope:       locked true",
        "hold count 2",
        "after the scope:    locked false",
        "after an early `?`: locked false",
        "after a panic:      locked false",
        "was lost",
    ];
    run_everywhere("guard", &parts);
}

#[test]
fn guarded() {
    let server = RedisServer::start();
    let said = run("guarded", &[], &[("REDIS_URL", &server.url())]);
    let parts = [
        "without Guard::write: 2 sold of 1",
        "with Guard::write:    1 sold of 1",
        "was lost",
    ];
    says(&said, &parts);
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn interrupt() {
    let parts = [
        "the wait was interrupted",
        "once more:     lock \"lock:orders:42\"",
    ];
    run_everywhere("interrupt", &parts);
}

#[test]
fn lost() {
    let said = run("lost", &[], &[]);
    says(
        &said,
        &["is_valid true", "lost():", "is_valid: false", "unlock():"],
    );
}

#[test]
fn nightly() {
    let server = RedisServer::start();
    let said = run("nightly", &[], &[("REDIS_URL", &server.url())]);
    says(&said, &["1 of 4 processes ran the job"]);
}

#[test]
fn owned() {
    let parts = [
        "its thread has ended: is_valid true",
        "this thread holds it: false",
        "try_owned: free false",
        "try_guard: free false",
        "part 3: is_valid true",
        "the next owner: is_valid true",
        "is_locked false",
    ];
    run_everywhere("owned", &parts);
}

#[test]
fn redlock() {
    let said = run("redlock", &[], &[]);
    says(&said, &["no quorum", "notified of the loss", "unlock():"]);
}

#[test]
fn stock() {
    let server = RedisServer::start();
    let url = server.url();
    let some = ["--processes", "2", "--threads", "3"];
    let with_lock = [&some[..], &["--items", "60"]].concat();
    run("stock", &with_lock, &[("REDIS_URL", &url)]);
    let without = [&some[..], &["--items", "300", "--without-lock"]].concat();
    run("stock", &without, &[("REDIS_URL", &url)]);
}

#[test]
#[cfg(feature = "mysql")]
fn tasks() {
    for how in ["table", "optimistic", "pessimistic", "none"] {
        let database = MariaDb::shared().database();
        let said = run("tasks", &[how, "40"], &[("MYSQL_URL", &database.url())]);
        if how != "none" {
            says(&said, &["0 left over, 0 assigned twice"]);
        }
    }
}
