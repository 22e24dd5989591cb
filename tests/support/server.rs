//! A private Redis server per test, which can be frozen, killed and restarted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{
    Client, Connection, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisResult, Value,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::program::{product, program};
use super::{free_port, ms, reaper};

const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);
const START_LIMIT: Duration = Duration::from_secs(10);

/// How a server is to be started.
#[derive(Default)]
pub struct Options {
    args: Vec<String>,
    env: Vec<(OsString, OsString)>,
}

impl Options {
    /// Adds arguments to the command line, such as `["--maxmemory", "1mb"]`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Loads the shared library `library` into the server, with the variables `env` set for it.
    pub fn preload(mut self, library: &Path, env: &[(&str, &str)]) -> Self {
        self.env.push(("LD_PRELOAD".into(), library.into()));
        self.env
            .extend(env.iter().map(|(key, value)| (key.into(), value.into())));
        self
    }

    /// Starts the server and waits until it replies.
    pub fn start(self) -> RedisServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for _ in 0..20 {
            let port = free_port();
            if let Ok(process) = launch(&self, dir.path(), port) {
                let state = State {
                    process: Some(process),
                    admin: None,
                };
                return RedisServer {
                    options: self,
                    dir,
                    port,
                    state: Mutex::new(state),
                };
            }
        }
        panic!("redis-server does not start; its log:\n{}", log(dir.path()));
    }
}

/// A Redis server with its own directory, port and socket, ended by drop.
///
/// Debug commands and protected settings are enabled, persistence is off.
pub struct RedisServer {
    options: Options,
    dir: TempDir,
    port: u16,
    state: Mutex<State>,
}

struct State {
    /// `None` while the server is killed or terminated.
    process: Option<Child>,
    /// The connection behind `cmd`; dropped whenever an I/O error or a signal could have left a reply in it.
    admin: Option<Connection>,
}

impl RedisServer {
    /// Starts a server with the settings of the tests.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// Starts a server with arguments added, such as `["--maxmemory", "1mb"]`.
    pub fn with(args: &[&str]) -> Self {
        Self::options().args(args).start()
    }

    /// Starts a server whose wall clock is controlled by `shim`.
    #[cfg(target_os = "linux")]
    pub fn with_clock(shim: &super::ClockShim) -> Self {
        Self::options()
            .preload(
                shim.library(),
                &[(super::clock::OFFSET_VARIABLE, shim.offset_path())],
            )
            .start()
    }

    /// The settings of a server that is not started yet.
    pub fn options() -> Options {
        Options::default()
    }

    /// The URL to give to a client.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// The URL of the same server over its Unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.unix_path().display())
    }

    pub fn unix_path(&self) -> PathBuf {
        socket(self.dir.path())
    }

    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.state()
            .process
            .as_ref()
            .expect("the server is down")
            .id()
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        log(self.dir.path())
    }

    /// Stops the process: connections stay open, and the kernel accepts new ones, but no request gets a reply.
    pub fn freeze(&self) {
        super::freeze(self.state().process.as_ref().expect("the server is down"));
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) {
        super::thaw(self.state().process.as_ref().expect("the server is down"));
    }

    /// Kills the process, and waits for its end.
    pub fn kill(&self) {
        self.end(Signal::KILL);
    }

    /// Starts the server again on the same port, in the same directory, with the same arguments; kills it first if it
    /// still runs.
    pub fn restart(&self) {
        self.kill();
        let start = Instant::now();
        loop {
            match launch(&self.options, self.dir.path(), self.port) {
                Ok(process) => {
                    self.state().process = Some(process);
                    return;
                }
                // Another process may hold the port for a moment.
                Err(_) if start.elapsed() < START_LIMIT => thread::sleep(ms(20)),
                Err(problem) => panic!("{problem}; its log:\n{}", self.log()),
            }
        }
    }

    /// A new connection for the test's own use.
    pub fn admin(&self) -> Connection {
        connect(self.port).expect("the server accepts an administrator")
    }

    /// Sets this password as the only one of a user with all rights.
    #[track_caller]
    pub fn set_password(&self, user: &str, password: &str) {
        let password = format!(">{password}");
        self.cmd(&[
            "ACL",
            "SETUSER",
            user,
            "on",
            "resetpass",
            &password,
            "~*",
            "&*",
            "+@all",
        ]);
    }

    /// Sends a command on the tests' own connection and returns the reply.
    #[track_caller]
    pub fn cmd(&self, words: &[&str]) -> Value {
        match self.try_cmd(words) {
            Ok(value) => value,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Sends a command on the tests' own connection; an error reply is returned.
    pub fn try_cmd(&self, words: &[&str]) -> RedisResult<Value> {
        let mut state = self.state();
        let mut connection = match state.admin.take() {
            Some(connection) => connection,
            None => connect(self.port)?,
        };
        let answer = send(&mut connection, words);
        if !answer.as_ref().is_err_and(redis::RedisError::is_io_error) {
            state.admin = Some(connection);
        }
        answer
    }

    /// Runs commands on a separate connection, atomically: a waiter or a renewal may send a request at any moment.
    #[track_caller]
    pub fn in_one_step(&self, commands: &[&[&str]]) {
        let mut all = redis::pipe();
        all.atomic();
        for words in commands {
            let (name, arguments) = words.split_first().expect("a command");
            all.cmd(name).arg(arguments);
        }
        let ran: RedisResult<Vec<Value>> = all.query(&mut self.admin());
        assert!(ran.is_ok(), "{commands:?}: {ran:?}");
    }

    /// Sends a command whose reply is an integer.
    #[track_caller]
    pub fn int(&self, words: &[&str]) -> i64 {
        let value = self.cmd(words);
        redis::from_redis_value(value).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends a command whose reply is a text or nil.
    #[track_caller]
    pub fn text(&self, words: &[&str]) -> Option<String> {
        let value = self.cmd(words);
        redis::from_redis_value(value).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// One field of `INFO`, such as `maxmemory_policy`.
    pub fn info(&self, field: &str) -> Option<String> {
        let info = self.text(&["INFO", "everything"]).unwrap_or_default();
        info.lines().find_map(|line| {
            line.strip_prefix(field)?
                .strip_prefix(':')
                .map(str::to_string)
        })
    }

    /// How many `EVAL` and `EVALSHA` calls the server has run since its start.
    ///
    /// An `EVALSHA` with the reply `NOSCRIPT` counts, a call refused before it ran (wrong arity, no permission, out of
    /// memory) does not.
    pub fn eval_count(&self) -> u64 {
        let info = self.text(&["INFO", "commandstats"]).unwrap_or_default();
        let calls = info.lines().filter_map(|line| {
            let line = line.strip_prefix("cmdstat_")?;
            let fields = line
                .strip_prefix("evalsha:")
                .or_else(|| line.strip_prefix("eval:"))?;
            let calls = fields.strip_prefix("calls=")?.split(',').next()?;
            calls.parse::<u64>().ok()
        });
        calls.sum()
    }

    fn end(&self, signal: Signal) {
        let mut state = self.state();
        state.admin = None;
        if let Some(mut process) = state.process.take() {
            let pid = Pid::from_child(&process);
            // A frozen process would handle SIGTERM later. Errors mean that it has gone already.
            let _ = kill_process(pid, signal);
            let _ = kill_process(pid, Signal::CONT);
            let _ = process.wait();
            reaper::unregister(process.id());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The arguments that enable debug commands and protected settings, which servers before Redis 7 do not have.
fn unlocking() -> &'static [&'static str] {
    match product().is_before_7() {
        true => &[],
        false => &[
            "--enable-debug-command",
            "yes",
            "--enable-protected-configs",
            "yes",
        ],
    }
}

/// Starts one process and waits until it replies itself, not another server on the same port.
fn launch(options: &Options, dir: &Path, port: u16) -> Result<Child, String> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .expect("a log file");
    let spawned = Command::new(program())
        .args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--daemonize",
            "no",
            "--loglevel",
            "warning",
        ])
        .args(["--save", "", "--appendonly", "no"])
        .args(unlocking())
        .args([
            Path::new("--dir"),
            dir,
            Path::new("--unixsocket"),
            &socket(dir),
        ])
        .args(&options.args)
        .envs(options.env.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stderr(log.try_clone().expect("a log file"))
        .stdout(log)
        .spawn();
    let mut process = match spawned {
        Ok(process) => process,
        Err(error) => panic!("redis-server cannot be started: {error}"),
    };
    reaper::register(&process);
    let start = Instant::now();
    while start.elapsed() < START_LIMIT {
        if let Some(status) = process.try_wait().expect("the state of the child is known") {
            reaper::unregister(process.id());
            return Err(format!("redis-server ended with {status}"));
        }
        if answers(port, process.id()) {
            return Ok(process);
        }
        thread::sleep(ms(2));
    }
    let _ = process.kill();
    let _ = process.wait();
    reaper::unregister(process.id());
    Err(format!(
        "redis-server does not answer within {START_LIMIT:?}"
    ))
}

/// Whether the process `pid` replies on `port` and has loaded its data; a reply that requires a password counts.
fn answers(port: u16, pid: u32) -> bool {
    let info = connect(port).and_then(|mut connection| send(&mut connection, &["INFO"]));
    match info.and_then(|value| Ok(redis::from_redis_value::<String>(value)?)) {
        Ok(info) => {
            let has = |line: &str| info.lines().any(|it| it == line);
            has(&format!("process_id:{pid}")) && has("loading:0")
        }
        Err(error) => error.code() == Some("NOAUTH"),
    }
}

fn connect(port: u16) -> RedisResult<Connection> {
    // Otherwise the client sends two commands with its name, which would show in the counts.
    let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    let info = ConnectionAddr::Tcp("127.0.0.1".into(), port)
        .into_connection_info()?
        .set_redis_settings(settings);
    let connection = Client::open(info)?.get_connection_with_timeout(ADMIN_TIMEOUT)?;
    connection.set_read_timeout(Some(ADMIN_TIMEOUT))?;
    connection.set_write_timeout(Some(ADMIN_TIMEOUT))?;
    Ok(connection)
}

fn send(connection: &mut Connection, words: &[&str]) -> RedisResult<Value> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query(connection)
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}
