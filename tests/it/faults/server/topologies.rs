//! Servers of another kind than configured: the first contact reports the kind and how to open it.

use redlatch::Redlock;

use super::*;
use crate::support::program::program;

const MASTER: &str = "shop";

/// A sentinel that watches over a server, killed by drop.
struct Sentinel {
    process: std::process::Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn of(server: &RedisServer) -> Sentinel {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let port = crate::support::free_port();
        let settings = format!(
            "port {port}\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {} 1\n",
            folder.path().display(),
            server.port()
        );
        fs::write(&file, settings).unwrap();
        let process = std::process::Command::new(program())
            .arg(&file)
            .arg("--sentinel")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        crate::support::reaper::register(&process);
        eventually(ms(10_000), "the sentinel answers", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Sentinel {
            process,
            url: format!("redis://127.0.0.1:{port}"),
            _folder: folder,
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The first contact fails at once, in a wait also, with an error that names the server and contains each of these
/// words.
#[track_caller]
fn is_refused(client: redlatch::Result<Client>, url: &str, words: &[&str]) {
    let lock = client.unwrap().lock("orders");
    for result in [
        ends_within(TIMEOUT, || lock.try_lock().map(drop)),
        ends_within(TIMEOUT, || lock.lock()),
    ] {
        let text = fails(result, Class::Config).to_string();
        let at = url.strip_prefix("redis://").unwrap();
        for word in words.iter().chain([&at]) {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn a_server_of_another_kind_is_refused_with_a_hint() {
    let single = RedisServer::start();
    let sentinel = Sentinel::of(&single);
    let node = RedisServer::with(&["--cluster-enabled", "yes"]);
    let (single, node, sentinel) = (single.url(), node.url(), &sentinel.url);
    is_refused(
        quick().cluster([&single]),
        &single,
        &["Client::open", "--url"],
    );
    for server in [&single, &node] {
        let words = ["not a sentinel", "Builder::sentinel", "--sentinel"];
        is_refused(quick().sentinel(MASTER, [server]), server, &words);
    }
    let words = ["is a sentinel", "Builder::sentinel", "--sentinel"];
    is_refused(quick().open(sentinel), sentinel, &words);
    is_refused(quick().master_replicas([sentinel]), sentinel, &words);
    is_refused(quick().cluster([sentinel]), sentinel, &words);
    let words = ["cluster node", "Builder::cluster", "--cluster"];
    is_refused(quick().open(&node), &node, &words);
    is_refused(quick().master_replicas([&node]), &node, &words);

    // As nodes of a quorum.
    for (url, words) in [(&node, "cluster node"), (sentinel, "is a sentinel")] {
        let nodes = [&single, url, "redis://127.0.0.1:1"];
        let nodes = nodes.map(|url| quick().open(url).unwrap());
        let built = ends_within(TIMEOUT * 2, || Redlock::builder().nodes(nodes).build());
        let text = fails(built.map(drop), Class::Config).to_string();
        assert!(text.contains(words), "{text}");
    }
    quick()
        .sentinel(MASTER, [sentinel])
        .unwrap()
        .lock("orders")
        .run(|_| ())
        .unwrap();
}

#[test]
fn a_replica_says_that_its_master_has_the_locks() {
    let master = RedisServer::start();
    let port = master.port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    eventually(ms(10_000), "the replica is linked", || {
        replica.info("master_link_status").as_deref() == Some("up")
    });
    let lock = client(&replica).lock("orders");
    // It may be promoted at any time, so a wait continues.
    let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unavailable));
    for word in ["READONLY", "a replica", "master_replicas", "--replicas"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}
