//! Bad networks to the servers: F12 and F15 of the table in `tests/it/faults/README.md`.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use redlatch::Client;
use socket2::{Domain, Socket, Type};

use crate::backends::{SLACK, all_works, timed};
use crate::report;
use crate::support::child::{arg, say};
use crate::support::proxy::Fault;
use crate::support::{Proxy, RedisServer, ms};

/// Runs `role` in a child process; returns false for a role of other files.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "resolver" => {
            let client = Client::builder().connect_timeout(ms(1000));
            let client = client.open(&arg("URL")).unwrap();
            let lock = client.lock("orders");
            let (first, ()) = timed(|| all_works(&lock));
            let (next, ()) = timed(|| all_works(&lock));
            say(&format!(
                "locked {} {}",
                first.as_millis(),
                next.as_millis()
            ));
        }
        _ => return false,
    }
    true
}

// F12

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_bad_network_loses_no_hold() {
    const DELAY: Duration = ms(50);
    let lease = Duration::from_secs(6);
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..5000 {
        // TCP retransmits lost packets, after a fifth of a second at first, and after longer times later.
        let fault = match random.u32(..100) {
            0..30 => {
                let late = ms(200 << random.u32(..3)) + DELAY;
                if random.bool() {
                    Fault::DelayRequest(late)
                } else {
                    Fault::DelayReply(late)
                }
            }
            _ => Fault::DelayReply(DELAY),
        };
        proxy.next(1, None, fault);
    }
    let client = Client::builder().watchdog_timeout(lease);
    let client = client.open(&proxy.url()).unwrap();
    let lock = client.lock("orders");
    let guards: Vec<_> = (0..3)
        .map(|number| client.lock(&format!("kept{number}")).guard().unwrap())
        .collect();
    assert!(
        guards[2].remaining_validity() <= lease - DELAY,
        "the way back takes time"
    );
    let start = Instant::now();
    let mut pairs = 0;
    while start.elapsed() < lease * 2 {
        let guard = lock.guard().unwrap();
        assert!(guard.is_valid());
        if let Err(error) = guard.unlock() {
            assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
        }
        for guard in &guards {
            assert!(guard.is_valid(), "after {:?}, seed {seed}", start.elapsed());
        }
        pairs += 1;
    }
    report(&format!(
        "a bad line, seed {seed}: {pairs} locks in {:.1?}",
        start.elapsed()
    ));
    for guard in guards {
        guard.unlock().unwrap();
    }
}

// F15

/// The times of a child's first and second lock on the server `lock.example`, a name with the addresses `::1` and
/// `127.0.0.1`. `None` if the machine does not permit it.
fn lock_by_name(port: u16) -> Option<(Duration, Duration)> {
    let dir = tempfile::tempdir().unwrap();
    let hosts = dir.path().join("hosts");
    fs::write(
        &hosts,
        "::1 lock.example\n127.0.0.1 lock.example localhost\n",
    )
    .unwrap();
    // The file is visible to this child only; that needs root.
    let script = r#"mount --bind "$0" /etc/hosts || exit 42; exec "$@""#;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(&hosts)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_roles::entry", "--nocapture"])
        .env("REDLATCH_CHILD", "resolver")
        .env("URL", format!("redis://lock.example:{port}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let Some(line) = said.lines().find_map(|line| line.strip_prefix("@locked ")) else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let cannot = output.status.code() == Some(42) || complaint.starts_with("unshare");
        assert!(cannot, "{said}{complaint}");
        report(&format!(
            "SKIPPED: only root can give a name two addresses ({})",
            complaint.trim()
        ));
        return None;
    };
    let mut times = line.split(' ').map(|word| ms(word.parse().unwrap()));
    Some((times.next().unwrap(), times.next().unwrap()))
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn of_two_addresses_the_first_may_refuse() {
    let server = RedisServer::start();
    if let Some((first, next)) = lock_by_name(server.port()) {
        report(&format!(
            "the first of two addresses refuses: {first:.1?}, then {next:.1?}"
        ));
        assert!(first < SLACK, "{first:?}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn of_two_addresses_the_first_may_be_silent() {
    let server = RedisServer::start();
    let silent: SocketAddr = (Ipv6Addr::LOCALHOST, server.port()).into();
    // Once the backlog is full, further connections get no reply.
    let listener = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    listener.set_only_v6(true).unwrap();
    if listener.bind(&silent.into()).is_err() {
        report("SKIPPED: no IPv6 here");
        return;
    }
    listener.listen(0).unwrap();
    let mut waiting = Vec::new();
    let is_silent = (0..20).any(|_| match TcpStream::connect_timeout(&silent, ms(300)) {
        Ok(stream) => {
            waiting.push(stream);
            false
        }
        Err(error) => error.kind() == ErrorKind::TimedOut,
    });
    if !is_silent {
        report("SKIPPED: a full line of connections is not silent here");
        return;
    }
    if let Some((first, next)) = lock_by_name(server.port()) {
        report(&format!(
            "the first of two addresses is silent: {first:.1?}, then {next:.1?}"
        ));
        assert!(first < Duration::from_secs(1) + SLACK, "{first:?}");
        assert!(next < SLACK, "{next:?}");
    }
}
