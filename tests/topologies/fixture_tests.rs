//! The topology fixtures tested on themselves: a failover that does not happen would make every test that relies on it pass.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::topology_fixtures::certificates::Pair;
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{
    AGREEMENT, Access, Certificates, Cluster, FakeSentinel, Replicas, Sentinels,
};
use crate::support::{Monitor, RedisServer, eventually, ms, product};

#[test]
#[ignore = "needs several servers: make topologies"]
fn sentinels_choose_another_master() {
    let start = Instant::now();
    let set = Sentinels::start();
    let started = start.elapsed();
    assert_eq!(set.master(), 0);
    set.nodes[0].cmd(&["SET", "key", "1"]);
    assert_eq!(set.nodes[0].ask::<usize>(&["WAIT", "2", "5000"]), 2);

    let start = Instant::now();
    let (old, new) = set.lose_master();
    let lost = start.elapsed();
    assert_eq!(old, 0);
    assert!(lost > ms(900), "they need to miss it first: {lost:?}");
    assert_eq!(set.nodes[new].ask::<String>(&["GET", "key"]), "1");
    let third = 3 - new;
    eventually(AGREEMENT, "the third follows the new one", || {
        set.nodes[third].follows(set.nodes[new].port())
    });

    // It takes itself for the master, and is empty, until a sentinel tells it otherwise or we do.
    set.nodes[0].restart();
    assert!(set.nodes[0].is_master());
    assert_eq!(set.nodes[0].ask::<Option<String>>(&["GET", "key"]), None);
    assert_eq!(set.master(), new);
    set.rejoin(0);
    assert_eq!(set.nodes[0].ask::<String>(&["GET", "key"]), "1");
    set.wait_until_settled();

    let start = Instant::now();
    let (old, newest) = set.failover();
    let switched = start.elapsed();
    // On a busy machine the sentinels may have changed their mind once more in between.
    assert_ne!(newest, old);
    crate::report(&format!(
        "sentinels: started in {started:.1?}, master lost {lost:.1?}, switched {switched:.1?}"
    ));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_sentinel_freezes_and_dies() {
    let set = Sentinels::start();
    set.sentinels[0].freeze();
    assert!(!set.sentinels[0].runs());
    set.sentinels[1].kill();
    assert!(set.sentinels[1].named().is_none());
    assert_eq!(set.named(), Some(0));
    // One of three may not choose.
    set.nodes[0].kill();
    std::thread::sleep(ms(3000));
    assert_eq!(set.named(), Some(0));
    set.sentinels[1].restart();
    set.wait_for_master_after(0);
    set.sentinels[0].thaw();
    eventually(AGREEMENT, "the thawed one learns", || {
        set.sentinels[0].named() == Some(set.nodes[set.master()].port())
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn sentinels_and_servers_have_passwords_of_their_own() {
    let set = Sentinels::options()
        .password("canary-data")
        .sentinel_password("canary-sentinel")
        .start();
    let connect = |url: String| {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        redis::cmd("PING").query::<String>(&mut connection)
    };
    assert!(connect(set.nodes[0].url()).is_ok());
    assert!(connect(format!("redis://{}", set.nodes[0].addr())).is_err());
    assert!(connect(set.urls().remove(0)).is_ok());
    assert!(connect(format!("redis://{}", set.sentinels[0].addr())).is_err());
    set.failover();
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_master_is_cut_off_from_all_but_clients() {
    let set = Sentinels::options().watcher().start();
    set.nodes[0].replicate(2, "orders");
    set.cut_off(0);
    let new = set.wait_for_master_after(0);
    std::thread::sleep(ms(500));
    assert!(set.nodes[0].is_master(), "nobody can tell it");
    set.nodes[0].cmd(&["SET", "key", "old"]);
    assert_eq!(set.nodes[new].ask::<Option<String>>(&["GET", "key"]), None);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_liar_says_what_it_was_told() {
    let fake = FakeSentinel::naming("127.0.0.1:4711".parse().expect("an address"));
    let mut connection = redis::Client::open(fake.url())
        .and_then(|client| client.get_connection())
        .expect("it answers");
    let answer: (String, u16) = redis::cmd("SENTINEL")
        .arg("get-master-addr-by-name")
        .arg(NAME)
        .query(&mut connection)
        .expect("an address");
    assert_eq!(answer, ("127.0.0.1".to_owned(), 4711));
    assert_eq!(fake.asked(), 1);
    let mut connection = connection.as_pubsub();
    connection
        .subscribe("+switch-master")
        .expect("it acknowledges");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn replicas_are_promoted_by_hand() {
    let set = Replicas::start(2);
    set.nodes[0].cmd(&["SET", "key", "1"]);
    assert_eq!(set.nodes[0].ask::<usize>(&["WAIT", "2", "5000"]), 2);
    assert!(set.nodes[1].try_cmd(&["SET", "key", "2"]).is_err());
    set.nodes[2].freeze();
    set.nodes[0].cmd(&["SET", "key", "2"]);
    assert_eq!(set.nodes[0].ask::<usize>(&["WAIT", "2", "300"]), 1);
    set.nodes[2].thaw();
    set.switch_to(1);
    set.nodes[1].cmd(&["SET", "key", "3"]);
    assert!(set.nodes[0].try_cmd(&["SET", "key", "4"]).is_err());
    for node in [0, 2] {
        set.follow(node, 1);
        assert_eq!(set.nodes[node].ask::<String>(&["GET", "key"]), "3");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_cluster_fails_over_and_moves_slots() {
    let start = Instant::now();
    let cluster = Cluster::start();
    let started = start.elapsed();
    let key = cluster.name_at(1, "orders");
    let owner = &cluster.nodes[1];
    owner.cmd(&["SET", &key, "1", "PX", "600000"]);
    let code = |node: usize, words: &[&str]| {
        let error = cluster.nodes[node].try_cmd(words).expect_err("a refusal");
        error.code().map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(code(0, &["GET", &key]), "MOVED");

    // In the middle of a migration: what is not there is asked for elsewhere, half of it is a TRYAGAIN.
    let migration = cluster.begin_migration(&key, 0);
    let other = format!("{{{key}}}other");
    assert_eq!(owner.ask::<String>(&["GET", &key]), "1");
    assert_eq!(code(1, &["GET", &other]), "ASK");
    let half = match product().is_before_7() {
        true => "ASK",
        false => "TRYAGAIN",
    };
    assert_eq!(code(1, &["MGET", &key, &other]), half);
    assert_eq!(code(0, &["GET", &key]), "MOVED");
    migration.abandon();
    assert_eq!(owner.ask::<Option<String>>(&["GET", &other]), None);
    cluster.migrate(&key, 0);
    assert_eq!(cluster.owner_of(&key), 0);
    assert_eq!(cluster.nodes[0].ask::<String>(&["GET", &key]), "1");
    assert!(cluster.nodes[0].int(&["PTTL", &key]) > 500_000);
    assert_eq!(code(1, &["GET", &key]), "MOVED");

    let start = Instant::now();
    let (old, new) = cluster.failover(&key);
    let switched = start.elapsed();
    assert_eq!((old, new), (0, 3));
    assert!(!cluster.nodes[0].is_master());
    cluster.wait_until_healthy();
    assert_eq!(cluster.nodes[3].ask::<usize>(&["WAIT", "1", "5000"]), 1);
    let start = Instant::now();
    let (old, new) = cluster.lose_owner(&key);
    let lost = start.elapsed();
    assert_eq!((old, new), (3, 0));
    assert_eq!(cluster.nodes[0].ask::<String>(&["GET", &key]), "1");
    cluster.rejoin(3);
    assert!(!cluster.nodes[3].is_master());
    crate::report(&format!(
        "cluster: started in {started:.1?}, master lost {lost:.1?}, switched {switched:.1?}"
    ));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_cluster_of_masters_notices_a_dead_one() {
    let cluster = Cluster::masters();
    let key = cluster.name_at(0, "orders");
    cluster.nodes[2].kill();
    eventually(AGREEMENT, "the others refuse", || {
        cluster.nodes[0]
            .try_cmd(&["SET", &key, "1"])
            .is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
    });
    cluster.rejoin(2);
    cluster.nodes[0].cmd(&["SET", &key, "1"]);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn certificates_are_what_they_say() {
    let certificates = Certificates::new();
    let verdict = |pair: &Pair, host: &str| {
        let output = Command::new("openssl")
            .args([
                "verify",
                "-x509_strict",
                "-verify_hostname",
                host,
                "-CAfile",
            ])
            .args([&certificates.authority(), &pair.certificate])
            .output()
            .expect("openssl");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let good = verdict(&certificates.server(), "localhost");
    assert!(good.ends_with("OK\n"), "{good}");
    let other = verdict(&certificates.elsewhere(), "localhost");
    assert!(other.contains("hostname mismatch"), "{other}");
    let expired = verdict(&certificates.expired(), "localhost");
    assert!(expired.contains("has expired"), "{expired}");

    let (args, port) = certificates.server_args(&certificates.server(), true);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let server = RedisServer::with(&args);
    assert_eq!(server.text(&["PING"]).as_deref(), Some("PONG"));
    let ping = |pair: Option<Pair>| {
        let mut command = Command::new("redis-cli");
        command
            .args(["--tls", "-h", "localhost", "-p", &port.to_string()])
            .arg("--cacert")
            .arg(certificates.authority());
        if let Some(pair) = pair {
            command.arg("--cert").arg(pair.certificate);
            command.arg("--key").arg(pair.key);
        }
        let output = command.arg("PING").output().expect("redis-cli");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(ping(Some(certificates.client())), "PONG");
    assert_ne!(ping(None), "PONG");
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn sets_may_talk_tls() {
    let certificates = Certificates::new();
    let cluster = Cluster::with(
        true,
        Access {
            certificates: Some(&certificates),
            ..Access::default()
        },
        &[],
    );
    let key = cluster.name_at(1, "orders");
    cluster.nodes[1].cmd(&["SET", &key, "1"]);
    cluster.migrate(&key, 2);
    assert_eq!(cluster.nodes[2].ask::<String>(&["GET", &key]), "1");
    cluster.nodes[2].replicate(1, &key);
    assert_eq!(cluster.lose_owner(&key), (2, 5));
    assert_eq!(cluster.nodes[5].ask::<String>(&["GET", &key]), "1");
    assert!(
        cluster
            .urls()
            .iter()
            .all(|url| url.starts_with("rediss://"))
    );
    drop(cluster);

    let set = Sentinels::options().certificates(certificates).start();
    assert!(set.urls().iter().all(|url| url.starts_with("rediss://")));
    set.nodes[0].replicate(2, "orders");
    let (old, new) = set.lose_master();
    assert_eq!(set.nodes[new].keys("*"), ["support-mark:{orders}"]);
    set.rejoin(old);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_node_can_be_watched() {
    let set = Replicas::start(1);
    let monitor = Monitor::start(&set.nodes[1]);
    set.nodes[0].cmd(&["SET", "key", "canary"]);
    eventually(Duration::from_secs(10), "the replica gets it", || {
        !monitor.lines_containing("canary").is_empty()
    });
}
