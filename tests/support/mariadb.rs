//! A private MariaDB server, which can be frozen, killed and started again, and databases on it.
//!
//! A shell stands between: it ends the server, and removes its directory, as soon as this process has ended or lets go,
//! however it ended. So one server can serve all tests of a process.
//!
//! Others on the machine get nothing from it: it does not run as root, its administrator comes by the socket alone, and
//! who comes by TCP needs a password of this process and has the databases of the tests, no files.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::{FromRow, Queryable};
use mysql::{Conn, Opts, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};

use super::topology_fixtures::certificates::{Certificates, Pair};
use super::{free_port, ms};

const START_LIMIT: Duration = Duration::from_secs(60);

/// The user of clients, by TCP, with all rights to the databases of tests and few others.
pub const USER: &str = "redlatch";

/// The administrator, by the socket.
const ADMIN: &str = "admin";

/// The password of both, random per process.
pub fn password() -> &'static str {
    static PASSWORD: OnceLock<String> = OnceLock::new();
    PASSWORD.get_or_init(|| format!("canary-{}", uuid::Uuid::new_v4().simple()))
}

/// A server of its own directory, port and socket, ended by drop.
pub struct MariaDb {
    dir: PathBuf,
    port: u16,
    args: Vec<String>,
    state: Mutex<Option<Running>>,
}

struct Running {
    shell: Child,
    /// The server ends when this is closed.
    stdin: Option<ChildStdin>,
    pid: Pid,
}

impl MariaDb {
    pub fn start() -> MariaDb {
        MariaDb::with(&[])
    }

    /// Starts a server with arguments added, such as `["--max-connections=5"]`.
    pub fn with(args: &[&str]) -> MariaDb {
        let dir = tempfile::Builder::new()
            .prefix("redlatch-mariadb-")
            .tempdir()
            .expect("a temporary directory")
            .keep();
        let server = MariaDb {
            dir,
            port: free_port(),
            args: args.iter().map(ToString::to_string).collect(),
            state: Mutex::new(None),
        };
        server.install();
        server.launch();
        server
    }

    /// Starts a server that also supports TLS, with this certificate, for clients of this authority.
    pub fn encrypted(certificates: &Certificates, pair: &Pair, more: &[&str]) -> MariaDb {
        // The server runs as another user than the test; these keys are not secret.
        for (path, mode) in [
            (pair.key.parent().expect("a folder"), 0o755),
            (&pair.key, 0o644),
        ] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner may");
        }
        let file = |name: &str, path: &Path| format!("--ssl-{name}={}", path.display());
        let mut args = vec![
            file("ca", &certificates.authority()),
            file("cert", &pair.certificate),
            file("key", &pair.key),
        ];
        args.extend(more.iter().map(ToString::to_string));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        MariaDb::with(&args)
    }

    /// Starts another server with the same arguments.
    pub fn another(&self) -> MariaDb {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        MariaDb::with(&args)
    }

    /// The server shared by tests that only need a database of their own.
    pub fn shared() -> &'static MariaDb {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        SHARED.get_or_init(MariaDb::start)
    }

    fn install(&self) {
        for name in ["files", "tmp"] {
            fs::create_dir(self.dir.join(name)).expect("the temporary directory can be written");
        }
        fs::write(
            self.dir.join("init.sql"),
            format!(
                "CREATE USER IF NOT EXISTS '{ADMIN}'@'localhost' IDENTIFIED BY '{password}';\n\
                 GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'localhost' WITH GRANT OPTION;\n\
                 CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{password}';\n\
                 GRANT ALL PRIVILEGES ON `t%`.* TO '{USER}'@'127.0.0.1';\n\
                 GRANT PROCESS ON *.* TO '{USER}'@'127.0.0.1';\n",
                password = password()
            ),
        )
        .expect("the temporary directory can be written");
        if let Some(owner) = owner() {
            for name in ["", "files", "tmp", "init.sql"] {
                chown(self.dir.join(name), Some(id(owner)), None).expect("root may do so");
            }
        }
        let output = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=socket"])
            .args(["--skip-test-db", "--skip-name-resolve"])
            .arg(format!("--datadir={}", self.data().display()))
            .args(user_argument())
            // A starting server removes the temporary tables of other servers in this directory.
            .env("TMPDIR", self.dir.join("tmp"))
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| {
                panic!("mariadb-install-db: {error}; `make test` installs mariadb-server")
            });
        assert!(
            output.status.success(),
            "mariadb-install-db: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn launch(&self) {
        let server = std::env::var("MARIADBD").unwrap_or_else(|_| {
            ["/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd"]
                .into_iter()
                .find(|path| Path::new(path).exists())
                .unwrap_or("mariadbd")
                .to_owned()
        });
        // The shell kills its child when its stdin closes, which happens when the test process ends.
        let script = r#"
            dir=$1; shift
            "$@" >>"$dir/log" 2>&1 </dev/null &
            pid=$!
            echo "$pid"
            read -r _
            kill -KILL "$pid" 2>/dev/null
            wait "$pid" 2>/dev/null
            read -r keep && [ "$keep" = keep ] || rm -rf "$dir"
        "#;
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&self.dir)
            .arg(server)
            .arg("--no-defaults")
            .arg(format!("--datadir={}", self.data().display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--tmpdir={}", self.dir.join("tmp").display()))
            .arg(format!("--pid-file={}", self.dir.join("pid").display()))
            .arg(format!(
                "--init-file={}",
                self.dir.join("init.sql").display()
            ))
            .arg(format!(
                "--secure-file-priv={}",
                self.dir.join("files").display()
            ))
            .arg(format!("--port={}", self.port))
            .args([
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--skip-log-bin",
                "--skip-slave-start",
                "--innodb-buffer-pool-size=48M",
                "--innodb-log-file-size=16M",
                // Committed data has to survive a kill, but not a power loss.
                "--innodb-flush-log-at-trx-commit=2",
                "--innodb-doublewrite=0",
                // A server was once gone after SIGSTOP and SIGCONT; asynchronous I/O is suspected, not proved.
                "--innodb-use-native-aio=0",
                "--innodb-fast-shutdown=2",
                "--performance-schema=OFF",
                "--max-connections=500",
                "--character-set-server=utf8mb4",
            ])
            .args(user_argument())
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("a piped stdout"))
            .read_line(&mut line)
            .expect("the shell tells the process id");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let stdin = shell.stdin.take();
        *self.state() = Some(Running {
            shell,
            stdin,
            pid: pid.expect("a process id"),
        });
        let start = Instant::now();
        while self.try_root().is_err() {
            assert!(
                start.elapsed() < START_LIMIT,
                "mariadbd does not start; its log:\n{}",
                self.log()
            );
            thread::sleep(ms(20));
        }
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// A connection with all rights, without a database.
    pub fn root(&self) -> Conn {
        self.try_root()
            .expect("the server accepts an administrator")
    }

    fn try_root(&self) -> mysql::Result<Conn> {
        Conn::new(self.options(None))
    }

    fn options(&self, database: Option<&str>) -> OptsBuilder {
        OptsBuilder::new()
            .socket(Some(self.socket().display().to_string()))
            .user(Some(ADMIN))
            .pass(Some(password()))
            .db_name(database)
            .tcp_connect_timeout(Some(ms(5000)))
            .read_timeout(Some(ms(60_000)))
    }

    pub fn database(&self) -> Database<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.root()
            .query_drop(format!("CREATE DATABASE {name}"))
            .expect("a database can be made");
        Database { server: self, name }
    }

    /// Stops the process, and returns when all its threads have stopped: the signal is asynchronous.
    pub fn freeze(&self) {
        let pid = self.pid();
        kill_process(pid, Signal::STOP).expect("the server can be signalled");
        if cfg!(target_os = "linux") {
            let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
            super::eventually(ms(5000), "the server stops", || {
                let mut tasks = fs::read_dir(&tasks).expect("the server lives");
                tasks.all(|task| {
                    let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
                    // The state follows the name, which is in parentheses.
                    stat.is_ok_and(|stat| {
                        stat.rsplit(") ")
                            .next()
                            .is_some_and(|rest| rest.starts_with('T'))
                    })
                })
            });
        } else {
            thread::sleep(ms(100));
        }
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).expect("the server can be signalled");
    }

    /// Kills the process, and starts it again on the same port and data.
    pub fn restart(&self) {
        self.kill();
        self.launch();
    }

    /// Kills the process; its data stay.
    pub fn kill(&self) {
        if let Some(mut running) = self.state().take() {
            if let Some(mut stdin) = running.stdin.take() {
                // The first line ends the server, the second one keeps its data.
                let _ = stdin.write_all(b"end\nkeep\n");
            }
            let _ = running.shell.wait();
        }
    }

    fn pid(&self) -> Pid {
        self.state().as_ref().expect("the server is down").pid
    }

    fn state(&self) -> MutexGuard<'_, Option<Running>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MariaDb {
    #[allow(
        clippy::print_stderr,
        reason = "what a failed test leaves behind is gone otherwise"
    )]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the log of mariadbd:\n{}", self.log());
        }
        if let Some(mut running) = self.state().take() {
            let _ = kill_process(running.pid, Signal::CONT);
            drop(running.stdin.take());
            let _ = running.shell.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The user of the server if this process is root.
fn owner() -> Option<&'static str> {
    let is_there = |user: &&str| {
        Command::new("id")
            .arg(user)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    rustix::process::geteuid()
        .is_root()
        .then(|| ["mysql"].into_iter().find(is_there).unwrap_or("nobody"))
}

fn id(user: &str) -> u32 {
    let output = Command::new("id").args(["-u", user]).output();
    let output = output.expect("the program `id`").stdout;
    let number = String::from_utf8_lossy(&output);
    number.trim().parse().expect("a user of this machine")
}

fn user_argument() -> Option<String> {
    owner().map(|owner| format!("--user={owner}"))
}

/// One database, dropped with its last test.
pub struct Database<'a> {
    server: &'a MariaDb,
    pub name: String,
}

impl Database<'_> {
    /// The URL to give to a client.
    pub fn url(&self) -> String {
        self.url_of(USER, password())
    }

    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!(
            "mysql://{user}:{password}@{}/{}",
            self.server.addr(),
            self.name
        )
    }

    /// A connection of the test.
    pub fn conn(&self) -> Conn {
        Conn::new(self.server.options(Some(&self.name))).expect("a connection")
    }

    /// A connection like a client's, by TCP.
    pub fn tcp_conn(&self) -> Conn {
        let options = Opts::from_url(&self.url()).expect("a URL");
        Conn::new(OptsBuilder::from_opts(options).prefer_socket(false)).expect("a connection")
    }

    /// A connection with these settings.
    pub fn conn_with(&self, change: impl FnOnce(OptsBuilder) -> OptsBuilder) -> Conn {
        Conn::new(change(self.server.options(Some(&self.name)))).expect("a connection")
    }

    /// Runs statements, one per line.
    #[track_caller]
    pub fn run(&self, statements: &str) {
        let mut conn = self.conn();
        for statement in statements
            .split(";\n")
            .filter(|text| !text.trim().is_empty())
        {
            conn.query_drop(statement)
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }

    #[track_caller]
    pub fn first<T: FromRow>(&self, query: &str) -> T {
        self.conn()
            .query_first(query)
            .unwrap_or_else(|error| panic!("{query}: {error}"))
            .unwrap_or_else(|| panic!("{query}: no row"))
    }

    /// The connection ids of the clients of this database, without this connection.
    pub fn connections(&self) -> Vec<u64> {
        self.conn()
            .query(format!(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND ID <> CONNECTION_ID()",
                self.name
            ))
            .expect("the list of connections")
    }

    /// Kills every connection to this database but the test's, and returns when they have ended.
    pub fn kill_connections(&self) -> usize {
        let ids = self.connections();
        let mut conn = self.server.root();
        let killed = ids
            .iter()
            .filter(|id| conn.query_drop(format!("KILL {id}")).is_ok())
            .count();
        // KILL is asynchronous.
        super::eventually(ms(5000), "the connections end", || {
            self.connections().iter().all(|id| !ids.contains(id))
        });
        killed
    }
}
