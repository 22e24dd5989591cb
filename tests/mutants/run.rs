//! Runs tests in a process of their own, with one change or with none.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How tests run here.
pub(crate) struct Runner {
    tree: PathBuf,
    /// What a test program is started with, so that its servers clash with no others and end with it.
    apart: &'static [&'static str],
    /// How many tests of a program run at a time.
    threads: usize,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Passed,
    /// The first test that failed.
    Failed(String),
    /// The program died before it had told of all tests; those without an answer.
    Died(Vec<String>),
    /// Tests without an answer when the time was over.
    Endless(Vec<String>),
}

/// What one run does.
pub(crate) struct Run<'a> {
    pub(crate) program: &'a Path,
    pub(crate) tests: &'a [&'a str],
    /// 0 for none.
    pub(crate) change: u32,
    pub(crate) limit: Duration,
}

const PLAIN: &[&str] = &[];
/// In a world of processes and ports of its own, which ends with its first process, and with this one.
const APART: &[&str] = &[
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
    // The shell stays, and buries those whom nobody waits for.
    "ip link set lo up && \"$@\"; exit $?",
    "sh",
];

impl Runner {
    pub(crate) fn new(tree: &Path, threads: usize) -> Runner {
        let probe = Command::new(APART[0])
            .args(&APART[1..])
            .arg("true")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let apart = match probe.is_ok_and(|status| status.success()) {
            true => APART,
            false => PLAIN,
        };
        Runner {
            tree: tree.to_owned(),
            apart,
            threads,
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = match self.apart {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command
            .current_dir(&self.tree)
            .env("CARGO_MANIFEST_DIR", &self.tree)
            .env("RUST_TEST_THREADS", self.threads.to_string())
            .env("REDLATCH_SEEDS_TIMES", "10")
            .env_remove("REDLATCH_CHANGE")
            .env_remove("REDLATCH_REACHED")
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// The tests of a program that the filters choose, but those that are left to long runs.
    pub(crate) fn tests(&self, program: &Path, filters: &[&str]) -> Result<Vec<String>, String> {
        let listed = |ignored: &[&str]| {
            let output = self
                .command(program)
                .args(filters)
                .args(["--list", "--format", "terse"])
                .args(ignored)
                .output();
            let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
            Ok::<_, String>(names.map(str::to_owned).collect::<BTreeSet<_>>())
        };
        let ignored = listed(&["--ignored"])?;
        Ok(listed(&[])?.difference(&ignored).cloned().collect())
    }

    /// Runs one test without a change, and returns the changes that it reaches and how long it took. `None` if it fails.
    pub(crate) fn record(&self, run: &Run<'_>, file: &Path) -> Option<(BTreeSet<u32>, Duration)> {
        let _ = fs::remove_file(file);
        let start = Instant::now();
        let mut command = self.command(run.program);
        command.env("REDLATCH_REACHED", file);
        let end = follow(command, run);
        let took = start.elapsed();
        let reached = fs::read_to_string(file).unwrap_or_default();
        let _ = fs::remove_file(file);
        let numbers = reached
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        (end == End::Passed).then_some((numbers, took))
    }

    /// Runs tests until the first one fails.
    pub(crate) fn run(&self, run: &Run<'_>) -> End {
        let mut command = self.command(run.program);
        if run.change > 0 {
            command.env("REDLATCH_CHANGE", run.change.to_string());
        }
        follow(command, run)
    }
}

fn follow(mut command: Command, run: &Run<'_>) -> End {
    command
        .arg("--exact")
        .args(run.tests)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        return End::Died(vec![format!("{} does not start", run.program.display())]);
    };
    let (tell, told) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || read(output, &tell));
    }
    let deadline = Instant::now() + run.limit;
    let mut open: BTreeSet<&str> = run.tests.iter().copied().collect();
    let end = loop {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((test, Some(false))) => break Some(End::Failed(test)),
            Ok((test, Some(true))) => {
                open.remove(&*test);
            }
            // The last line of a program: those it has started may still have its output.
            Ok((_, None)) | Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {
                break Some(End::Endless(
                    open.iter().map(|test| (*test).to_owned()).collect(),
                ));
            }
        }
    };
    let end = end.or_else(|| ended(&mut child, deadline, &open));
    kill(&mut child);
    end.unwrap_or(End::Passed)
}

/// The end of a program that has told of all, or has closed its output: `None` if all is well.
fn ended(child: &mut Child, deadline: Instant, open: &BTreeSet<&str>) -> Option<End> {
    let open = || open.iter().map(|test| (*test).to_owned()).collect();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(_)) | Err(_) => return Some(End::Died(open())),
            Ok(None) if Instant::now() >= deadline => return Some(End::Endless(open())),
            Ok(None) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends the result of each test, and `None` behind the last.
fn read(output: impl Read, tell: &mpsc::Sender<(String, Option<bool>)>) {
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let result = match line.rsplit_once(" ... ") {
            _ if line.starts_with("test result: ") => Some((String::new(), None)),
            Some((name, "ok" | "ignored")) => {
                Some((name, Some(true))).map(|(name, it)| (named(name), it))
            }
            Some((name, "FAILED")) => Some((named(name), Some(false))),
            _ => None,
        };
        if result.is_some_and(|result| tell.send(result).is_err()) {
            return;
        }
    }
}

/// The name of a test, without what another one wrote before it on the line.
fn named(line: &str) -> String {
    let name = line.rsplit_once("test ").map_or(line, |(_, name)| name);
    // A test that has to panic says so.
    name.split(" - ").next().unwrap_or(name).to_owned()
}

fn kill(child: &mut Child) {
    // The group too, where no world of its own ends with its first process.
    let _ = Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", child.id())])
        .stderr(Stdio::null())
        .status();
    let _ = child.kill();
    let _ = child.wait();
}

/// How many processors there are.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The number that a variable has.
pub(crate) fn number(variable: &str) -> Option<usize> {
    env::var(variable).ok()?.parse().ok()
}
