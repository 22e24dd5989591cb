//! A master, its replicas, and the sentinels that promote another master.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use super::node::Access;
use super::replicas::SWIFT;
use super::{AGREEMENT, Certificates, Node, at_once};
use crate::support::program::program;
use crate::support::{eventually, free_port, reaper};

/// The name of the master in the sentinels.
pub const NAME: &str = "shop";

/// After this much silence a sentinel considers a server down.
///
/// A sentinel pings once a second, and a new master for the first time after one second. With one second here it would
/// consider each new master down until its reply, and two sentinels that agree in that moment would start another
/// failover.
const DOWN_AFTER: Duration = Duration::from_millis(1500);

const TIMEOUT: Duration = Duration::from_secs(5);

/// How a set is to be started.
#[derive(Default)]
pub struct Options {
    args: Vec<String>,
    password: Option<String>,
    sentinel_password: Option<String>,
    has_watcher: bool,
    certificates: Option<Certificates>,
}

/// The user of sentinels and replicas, if it is not the default one.
const WATCHER: &str = "watcher";
const WATCHER_PASSWORD: &str = "canary-watcher";

impl Options {
    /// Adds arguments for the data servers, such as `["--min-replicas-to-write", "1"]`.
    pub fn args(mut self, args: &[&str]) -> Options {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Sets the password of the data servers.
    pub fn password(mut self, password: &str) -> Options {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets the password of the sentinels.
    pub fn sentinel_password(mut self, password: &str) -> Options {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Lets all servers and sentinels talk TLS, with certificates of this authority.
    pub fn certificates(mut self, certificates: Certificates) -> Options {
        self.certificates = Some(certificates);
        self
    }

    /// Gives sentinels and replicas a separate user, so that [`Sentinels::cut_off`] can distinguish them from clients.
    /// The data servers then have a password.
    pub fn watcher(mut self) -> Options {
        self.has_watcher = true;
        self.password("canary-data").args(&[
            "--user",
            WATCHER,
            "on",
            &format!(">{WATCHER_PASSWORD}"),
            "~*",
            "&*",
            "+@all",
            "--masteruser",
            WATCHER,
            "--masterauth",
            WATCHER_PASSWORD,
        ])
    }

    /// Starts one master, two replicas and three sentinels, and waits until all know each other.
    pub fn start(self) -> Sentinels {
        let password = self.password.as_deref();
        let access = Access {
            password,
            certificates: self.certificates.as_ref(),
        };
        let args: Vec<&str> = SWIFT
            .into_iter()
            .chain(self.args.iter().map(String::as_str))
            .collect();
        let master = Node::start(&args, access);
        let port = master.port().to_string();
        let (replicas, sentinels) = std::thread::scope(|scope| {
            // They discover replicas through the master, and query a new master more often.
            let replicas = scope.spawn(|| {
                at_once(2, |_| {
                    let follow = ["--replicaof", "127.0.0.1", &port];
                    Node::start(&[&args[..], &follow].concat(), access)
                })
            });
            let replicas = replicas.join().expect("the replicas start");
            for replica in &replicas {
                eventually(AGREEMENT, "the replica follows", || {
                    replica.follows(master.port())
                });
            }
            eventually(AGREEMENT, "the master knows its replicas", || {
                master.replicas_online() == 2
            });
            let credentials = match password {
                Some(_) if self.has_watcher => Some((WATCHER, WATCHER_PASSWORD)),
                password => password.map(|password| ("default", password)),
            };
            let sentinels = at_once(3, |_| {
                Sentinel::start(
                    master.port(),
                    credentials,
                    self.sentinel_password.as_deref(),
                    access.certificates,
                )
            });
            (replicas, sentinels)
        });
        let set = Sentinels {
            nodes: std::iter::once(master).chain(replicas).collect(),
            sentinels,
            _certificates: self.certificates,
        };
        set.wait_until_settled();
        set
    }
}

/// One master, two replicas and three sentinels; node 0 is the master at first.
pub struct Sentinels {
    pub nodes: Vec<Node>,
    pub sentinels: Vec<Sentinel>,
    /// The servers read them again at a restart.
    _certificates: Option<Certificates>,
}

/// The logs of servers and sentinels are needed to understand a failed test.
#[allow(
    clippy::print_stdout,
    reason = "the harness shows what a failed test printed"
)]
impl Drop for Sentinels {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let sentinels = self.sentinels.iter().map(Sentinel::log);
            for log in self.nodes.iter().map(|node| node.log()).chain(sentinels) {
                println!("{log}");
            }
        }
    }
}

impl Sentinels {
    /// Starts a set without passwords.
    pub fn start() -> Sentinels {
        Sentinels::options().start()
    }

    /// The settings of a set that is not started yet.
    pub fn options() -> Options {
        Options::default()
    }

    /// The URLs of the sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Sentinel::url).collect()
    }

    /// The node that a majority of the running sentinels names as the master; `None` while they differ.
    pub fn named(&self) -> Option<usize> {
        let mut votes: HashMap<usize, usize> = HashMap::new();
        let running: Vec<_> = self.running().collect();
        for sentinel in &running {
            if let Some(node) = sentinel.named().and_then(|port| self.node_at(port)) {
                *votes.entry(node).or_default() += 1;
            }
        }
        votes
            .into_iter()
            .find(|(_, votes)| *votes * 2 > running.len())
            .map(|(node, _)| node)
    }

    /// The present master; waits while the sentinels differ or it refuses writes.
    pub fn master(&self) -> usize {
        let mut found = None;
        eventually(AGREEMENT, "there is a master", || {
            found = self.named().filter(|node| self.nodes[*node].is_master());
            found.is_some()
        });
        found.expect("set when the wait is over")
    }

    /// Waits until all running sentinels name another master than `old` that accepts writes, and returns it.
    pub fn wait_for_master_after(&self, old: usize) -> usize {
        let mut found = None;
        eventually(AGREEMENT, "there is another master", || {
            found = self
                .named()
                .filter(|node| *node != old && self.nodes[*node].is_master());
            found.is_some()
        });
        found.expect("set when the wait is over")
    }

    /// Kills the master, waits for a new one and returns both.
    pub fn lose_master(&self) -> (usize, usize) {
        let old = self.master();
        self.nodes[old].kill();
        (old, self.wait_for_master_after(old))
    }

    /// Partitions a node from the sentinels and from the other nodes, though not from clients.
    ///
    /// Needs [`Options::watcher`]. The node keeps its role.
    pub fn cut_off(&self, node: usize) {
        self.nodes[node].cmd(&["ACL", "SETUSER", WATCHER, "off"]);
        self.nodes[node].cmd(&["CLIENT", "KILL", "USER", WATCHER]);
    }

    /// Makes the sentinels fail over without a fault, and returns the old and the new master.
    ///
    /// The old master still accepts writes, which are lost, until the sentinels reconfigure it seconds later.
    pub fn failover(&self) -> (usize, usize) {
        let old = self.master();
        // Refused while the sentinel knows no suitable replica.
        eventually(AGREEMENT, "a sentinel starts the failover", || {
            self.running()
                .any(|sentinel| sentinel.ask::<()>(&["SENTINEL", "FAILOVER", NAME]).is_ok())
        });
        (old, self.wait_for_master_after(old))
    }

    /// Makes `node` a replica of the present master at once, before the sentinels do.
    pub fn demote(&self, node: usize) {
        let port = self.nodes[self.master()].port();
        self.nodes[node].cmd(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        eventually(AGREEMENT, "the node follows", || {
            self.nodes[node].follows(port)
        });
    }

    /// Starts a killed node and makes it a replica of the present master at once; sentinels take ten seconds for that.
    pub fn rejoin(&self, node: usize) {
        self.nodes[node].restart();
        self.demote(node);
    }

    /// Waits until every running sentinel knows a healthy master, all replicas and all sentinels.
    pub fn wait_until_settled(&self) {
        eventually(AGREEMENT, "the sentinels know the set", || {
            let others = (self.sentinels.len() - 1).to_string();
            self.running()
                .all(|sentinel| sentinel.is_content(&others, self.nodes.len() - 1))
        });
    }

    /// The index of the node at `port`.
    pub fn node_at(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port() == port)
    }

    fn running(&self) -> impl Iterator<Item = &Sentinel> {
        self.sentinels.iter().filter(|sentinel| sentinel.runs())
    }
}

/// One sentinel, ended by drop.
pub struct Sentinel {
    dir: TempDir,
    port: u16,
    tls_port: Option<u16>,
    password: Option<String>,
    state: Mutex<State>,
}

struct State {
    process: Option<Child>,
    is_frozen: bool,
}

impl Sentinel {
    fn start(
        master: u16,
        credentials: Option<(&str, &str)>,
        own_password: Option<&str>,
        certificates: Option<&Certificates>,
    ) -> Sentinel {
        let tls = certificates
            .map(|certificates| certificates.server_args(&certificates.server(), false));
        let sentinel = Sentinel {
            dir: tempfile::tempdir().expect("a temporary directory"),
            port: free_port(),
            password: own_password.map(str::to_owned),
            tls_port: tls.as_ref().map(|(_, port)| *port),
            state: Mutex::new(State {
                process: None,
                is_frozen: false,
            }),
        };
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", sentinel.port),
            format!("dir {}", sentinel.dir.path().display()),
            format!("sentinel monitor {NAME} 127.0.0.1 {master} 2"),
            format!(
                "sentinel down-after-milliseconds {NAME} {}",
                DOWN_AFTER.as_millis()
            ),
            // Retries, such as of an election without a winner, come after twice this time.
            format!("sentinel failover-timeout {NAME} 3000"),
            format!("sentinel parallel-syncs {NAME} 2"),
        ];
        if let Some((args, _)) = tls {
            let settings = args.chunks(2).map(|pair| pair.join(" "));
            lines.extend(settings.map(|setting| setting.trim_start_matches("--").to_owned()));
            lines.push("tls-replication yes".to_owned());
        }
        if let Some((user, password)) = credentials {
            lines.push(format!("sentinel auth-user {NAME} {user}"));
            lines.push(format!("sentinel auth-pass {NAME} {password}"));
        }
        if let Some(password) = own_password {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        fs::write(sentinel.config(), lines.join("\n") + "\n").expect("a configuration");
        sentinel.restart();
        sentinel
    }

    fn config(&self) -> std::path::PathBuf {
        self.dir.path().join("sentinel.conf")
    }

    /// The URL, with the password if there is one.
    pub fn url(&self) -> String {
        let (scheme, port) = match self.tls_port {
            Some(port) => ("rediss", port),
            None => ("redis", self.port),
        };
        let password = self.password.as_ref();
        let password = password.map_or(String::new(), |password| format!(":{password}@"));
        format!("{scheme}://{password}127.0.0.1:{port}")
    }

    /// The TCP address without TLS.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Starts the sentinel, after a kill with its saved state.
    pub fn restart(&self) {
        self.kill();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("a log file");
        let process = Command::new(program())
            .arg(self.config())
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a log file"))
            .stdout(log)
            .spawn()
            .expect("redis-server is in the PATH; `make topologies` installs it");
        reaper::register(&process);
        self.state().process = Some(process);
        eventually(AGREEMENT, "the sentinel answers", || {
            self.ask::<String>(&["PING"]).is_ok()
        });
    }

    /// Kills the process.
    pub fn kill(&self) {
        let mut state = self.state();
        state.is_frozen = false;
        if let Some(mut process) = state.process.take() {
            let _ = process.kill();
            let _ = process.wait();
            reaper::unregister(process.id());
        }
    }

    /// Stops the process.
    pub fn freeze(&self) {
        let mut state = self.state();
        let pid = Pid::from_child(state.process.as_ref().expect("the sentinel is down"));
        kill_process(pid, Signal::STOP).expect("a child can be signalled");
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("the child has not ended");
        state.is_frozen = true;
    }

    /// Resumes a frozen sentinel.
    pub fn thaw(&self) {
        let mut state = self.state();
        let pid = Pid::from_child(state.process.as_ref().expect("the sentinel is down"));
        kill_process(pid, Signal::CONT).expect("a child can be signalled");
        state.is_frozen = false;
    }

    /// Whether the sentinel is neither killed nor frozen.
    pub fn runs(&self) -> bool {
        let state = self.state();
        state.process.is_some() && !state.is_frozen
    }

    /// The port of the master that this sentinel names.
    pub fn named(&self) -> Option<u16> {
        let (_, port): (String, String) = self
            .ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])
            .ok()?;
        port.parse().ok()
    }

    /// Sends a command on a separate connection.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let info = ConnectionAddr::Tcp("127.0.0.1".into(), self.port)
            .into_connection_info()?
            .set_redis_settings(settings);
        let mut connection = redis::Client::open(info)?.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut connection)
    }

    /// The sentinel's log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// How many clients subscribe to this sentinel's events, such as `+switch-master`.
    pub fn listeners(&self) -> usize {
        self.ask(&["CLIENT", "LIST", "TYPE", "pubsub"])
            .map_or(0, |list: String| list.lines().count())
    }

    fn is_content(&self, other_sentinels: &str, replicas: usize) -> bool {
        let field = |name: &str| {
            self.ask::<HashMap<String, String>>(&["SENTINEL", "MASTER", NAME])
                .ok()
                .and_then(|mut fields| fields.remove(name))
        };
        let good = |replica: &HashMap<String, String>| {
            replica.get("flags").is_some_and(|flags| flags == "slave")
                && replica
                    .get("master-link-status")
                    .is_some_and(|status| status == "ok")
        };
        field("flags").as_deref() == Some("master")
            && field("num-other-sentinels").as_deref() == Some(other_sentinels)
            && self
                .ask::<Vec<HashMap<String, String>>>(&["SENTINEL", "REPLICAS", NAME])
                .is_ok_and(|known| known.iter().filter(|one| good(one)).count() == replicas)
            // Without links to the others it would not take part in an election.
            && self
                .ask::<Vec<HashMap<String, String>>>(&["SENTINEL", "SENTINELS", NAME])
                .is_ok_and(|known| {
                    known
                        .iter()
                        .all(|one| one.get("flags").is_some_and(|flags| is_linked(flags)))
                })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether these are the flags of another live sentinel; Valkey keeps old flags of a master.
fn is_linked(flags: &str) -> bool {
    ["sentinel", "sentinel,master_down"].contains(&flags)
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}
