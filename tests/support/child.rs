//! This test binary as another process, which can be frozen and killed.
//!
//! The parent calls [`Child::spawn`] with a role. The child runs only the test `child_roles::entry`, which reads its
//! [`role`], and is an empty test in a normal run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

const ROLE: &str = "REDLATCH_CHILD";
const ENTRY: &str = "child_roles::entry";

/// A child process, killed by drop.
pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    /// Whether it has ended by itself: then only output in the pipe is still to come.
    has_ended: bool,
}

/// How long the output of an ended child may take to arrive.
const REST: Duration = Duration::from_secs(10);

impl Child {
    /// Starts a child in `role`, with environment variables, which it reads with [`arg`].
    pub fn spawn(role: &str, env: &[(&str, &str)]) -> Self {
        Self::spawn_at(ENTRY, role, env)
    }

    /// Starts a child whose entry is another test than `child_roles::entry`.
    pub fn spawn_at(entry: &str, role: &str, env: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this binary has a path"))
            .args(["--exact", entry, "--nocapture", "--test-threads=1"])
            .envs(env.iter().copied())
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary can be started again");
        super::reaper::register(&process);
        let stdout = process.stdout.take().expect("a piped stdout");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Some(said) = line.strip_prefix('@') else {
                    continue;
                };
                if sender.send(said.to_string()).is_err() {
                    return;
                }
            }
        });
        Self {
            process,
            lines,
            has_ended: false,
        }
    }

    /// Returns the next line of the child that starts with `prefix`, and drops the lines before it; panics after
    /// `limit` or at the end of the child.
    #[track_caller]
    pub fn expect_line(&self, prefix: &str, limit: Duration) -> String {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.starts_with(prefix) => return line,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the child does not say {prefix:?} within {limit:?}")
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the child has ended without saying {prefix:?}")
                }
            }
        }
    }

    /// The lines of the child that were not read yet; all remaining ones after [`Child::wait`].
    #[track_caller]
    pub fn lines(&self) -> Vec<String> {
        if !self.has_ended {
            return self.lines.try_iter().collect();
        }
        // The thread that reads them may lag.
        let end = Instant::now() + REST;
        let mut said = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Disconnected) => return said,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("somebody still has the output of a child that has ended: {said:?}")
                }
            }
        }
    }

    /// Sends a line to the child, which gets it from [`listen`].
    pub fn send_line(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut().expect("a piped stdin");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .expect("the child listens");
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops all threads of the child.
    pub fn freeze(&self) {
        super::freeze(&self.process);
    }

    /// Resumes a frozen child.
    pub fn thaw(&self) {
        super::thaw(&self.process);
    }

    /// Kills the child, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        super::reaper::unregister(self.process.id());
    }

    /// Closes the child's stdin and waits until it ends; panics after `limit`.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        drop(self.process.stdin.take());
        let mut status = None;
        super::eventually(limit, "the child ends", || {
            status = self
                .process
                .try_wait()
                .expect("the state of the child is known");
            status.is_some()
        });
        self.has_ended = true;
        status.expect("set when the wait is over")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In the child: its role, `None` in a normal test run.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// In the child: a variable set by the parent.
pub fn arg(key: &str) -> String {
    std::env::var(key).unwrap_or_else(|_| panic!("the parent has given no {key}"))
}

/// In the child: sends a line to the parent.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // The test harness may have left an unfinished line.
    let _ = out.write_all(format!("\n@{text}\n").as_bytes());
    let _ = out.flush();
}

/// In the child: the next line of the parent, `None` at the end.
pub fn listen() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin()
        .read_line(&mut line)
        .expect("stdin can be read");
    (read > 0).then(|| line.trim_end_matches('\n').to_string())
}
