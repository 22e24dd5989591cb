//! A proxy that routes each request to one of two servers by its first key.

use std::net::{SocketAddr, TcpStream};

use redlatch::MultiLock;

use super::*;
use crate::support::{Frames, free_listener};

pub(super) type ProxyFilter = fn(&[String]) -> Result<Vec<String>, String>;

/// Starts the proxy; its threads end with their connections. Names that end with an odd digit are on the second
/// server. `passes` returns the words to send instead of the request, or the words of the refusal.
pub(super) fn route(servers: [SocketAddr; 2], passes: ProxyFilter) -> SocketAddr {
    let listener: TcpListener = free_listener();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || pass(&client, servers, passes));
        }
    });
    addr
}

/// Forwards requests one by one, until the client disconnects.
fn pass(client: &TcpStream, servers: [SocketAddr; 2], passes: ProxyFilter) {
    let servers = servers.map(|addr| TcpStream::connect(addr).unwrap());
    let mut replies = servers.each_ref().map(Frames::of);
    let mut requests = Frames::of(client);
    while let Some(request) = requests.next(|_| ()) {
        let words = words(&request);
        let words = match passes(&words) {
            Ok(words) => words,
            Err(refusal) => {
                let mut client = client;
                if write!(client, "-{refusal}\r\n").is_err() {
                    return;
                }
                continue;
            }
        };
        let at = target(&words);
        let request = redis::Cmd::new().arg(&words).get_packed_command();
        if (&servers[at]).write_all(&request).is_err() {
            return;
        }
        let Some(reply) = replies[at].next(|_| ()) else {
            return;
        };
        let mut client = client;
        if client.write_all(&reply).is_err() {
            return;
        }
    }
}

/// The words of a request; each follows a line with its length.
fn words(request: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(request);
    text.split("\r\n")
        .skip(2)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn target(words: &[String]) -> usize {
    let is_script = words[0].starts_with("EVAL") && words[2] != "0";
    let key = words.get(if is_script { 3 } else { 1 });
    let digit = key.and_then(|key| key.chars().rev().find(char::is_ascii_digit));
    digit.and_then(|digit| digit.to_digit(10)).unwrap_or(0) as usize % 2
}

#[test]
#[ignore = "takes long: make test-all"]
fn holds_at_a_proxy_that_routes_by_the_first_key_are_kept() {
    let lease = LEASE * 2;
    let servers = [RedisServer::start(), RedisServer::start()];
    let addr = route(servers.each_ref().map(RedisServer::addr), |words| {
        Ok(words.to_vec())
    });
    let client = quick()
        .watchdog_timeout(lease)
        .open(&format!("redis://{addr}"))
        .unwrap();
    let locks: Vec<_> = (0..10).map(|n| client.lock(&format!("n{n}"))).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.guard().unwrap()).collect();
    let holds = servers.each_ref().map(|server| keys(server).len());
    assert_eq!(holds, [5, 5]);
    thread::sleep(lease * 2);
    assert!(guards.iter().all(Guard::is_valid));
    // A hold that is really gone is still reported as lost.
    let lost = guards[3].lost();
    servers[1].cmd(&["DEL", "n3"]);
    assert!(matches!(next_loss(&lost, lease).cause, LossCause::Gone));
    thread::sleep(lease);
    let valid = guards.iter().filter(|guard| guard.is_valid()).count();
    assert_eq!(valid, 9);
}

/// The error reply for an unknown command.
pub(super) fn unknown(command: &str) -> String {
    format!("ERR unknown command '{command}', with args beginning with: ")
}

/// Forwards like Envoy and twemproxy: only commands and scripts with a key.
fn of_no_key(words: &[String]) -> Result<Vec<String>, String> {
    const KNOWN: [&str; 14] = [
        "EVAL", "PING", "GET", "SET", "TYPE", "HLEN", "HKEYS", "HGETALL", "HGET", "PTTL", "EXISTS",
        "STRLEN", "SCAN", "ECHO",
    ];
    let command = words[0].to_ascii_uppercase();
    if command == "EVAL" && words[2] == "0" {
        return Err("ERR wrong number of arguments for 'eval' command".to_owned());
    }
    let is_known = KNOWN.contains(&&*command);
    match is_known {
        true => Ok(words.to_vec()),
        false => Err(unknown(&command)),
    }
}

#[test]
#[ignore = "takes long: make test-all"]
fn locks_work_where_a_proxy_passes_only_requests_with_a_key() {
    let lease = LEASE * 2;
    let servers = [RedisServer::start(), RedisServer::start()];
    let addr = route(servers.each_ref().map(RedisServer::addr), of_no_key);
    let open = || {
        let builder = quick().watchdog_timeout(lease);
        builder.open(&format!("redis://{addr}")).unwrap()
    };
    let (client, other) = (open(), open());
    for lock in [
        client.lock("n0"),
        client.lock("n1"),
        client.fenced_lock("f1"),
        client.fair_lock("q1"),
        client.read_write_lock("r1").write(),
    ] {
        all_works(&lock, &|| {});
    }
    let [semaphore, free] = [&client, &other].map(|client| client.semaphore("s1"));
    assert!(semaphore.try_set(3).unwrap());
    let permits = semaphore.try_acquire(3).unwrap();
    assert!(permits.is_some());
    // They are renewed beside locks of both servers, alone and together.
    let token = client.token_lock("t1").guard().unwrap();
    let names: Vec<String> = (2..12).map(|n| format!("n{n}")).collect();
    let parts: Vec<_> = names.iter().map(|name| client.lock(name)).collect();
    let together = MultiLock::of(&parts).unwrap();
    let guard = together.guard().unwrap();
    let single = client.lock("n1").guard().unwrap();
    thread::sleep(lease * 2);
    assert!(guard.is_valid() && single.is_valid() && token.is_valid());
    assert!(!other.lock("n7").try_lock().unwrap());
    assert_eq!(free.available().unwrap(), 0);
    assert_eq!(other.lock("n1").describe().unwrap().holders.len(), 1);
    // The unlock message does not arrive, so the waiter polls.
    let got = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let lock = other.lock("n1");
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            let now = Instant::now();
            lock.unlock().unwrap();
            now
        });
        thread::sleep(ms(200));
        let freed = Instant::now();
        single.unlock().unwrap();
        waiting.join().unwrap().duration_since(freed)
    });
    assert!(got < ms(1100) + SLACK, "{got:?}");
    guard.unlock().unwrap();
    drop(permits);
    let found = client.check().unwrap();
    let said = format!("{found:?}");
    for word in ["+subscribe", "INFO", "EVALSHA is refused"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("could not be tested"), "{said}");
}
