//! A proxy that leads each request to one of two servers by its first key.

use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::support::{Frames, free_listener};

/// Starts the proxy, whose threads end with their connections. Names that end with an odd digit are on the second server.
fn route(servers: [SocketAddr; 2]) -> SocketAddr {
    let listener: TcpListener = free_listener();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || pass(&client, servers));
        }
    });
    addr
}

/// Passes requests on one by one, until the client hangs up.
fn pass(client: &TcpStream, servers: [SocketAddr; 2]) {
    let servers = servers.map(|addr| TcpStream::connect(addr).unwrap());
    let mut replies = servers.each_ref().map(Frames::of);
    let mut requests = Frames::of(client);
    while let Some(request) = requests.next(|_| ()) {
        let at = target(&words(&request));
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

/// The words of a request, each of which stands behind a line with its length.
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
    let key = words.get(3).filter(|_| is_script);
    let digit = key.and_then(|key| key.chars().rev().find(char::is_ascii_digit));
    digit.and_then(|digit| digit.to_digit(10)).unwrap_or(0) as usize % 2
}

#[test]
fn holds_at_a_proxy_that_routes_by_the_first_key_are_kept() {
    let lease = LEASE * 2;
    let servers = [RedisServer::start(), RedisServer::start()];
    let addr = route(servers.each_ref().map(RedisServer::addr));
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
    // One that is really gone is told all the same.
    let lost = guards[3].lost();
    servers[1].cmd(&["DEL", "n3"]);
    assert!(matches!(told(&lost, lease).cause, LossCause::Gone));
    thread::sleep(lease);
    let valid = guards.iter().filter(|guard| guard.is_valid()).count();
    assert_eq!(valid, 9);
    // The server was found to answer for one name at a time.
    let before = servers[1].eval_count();
    thread::sleep(lease);
    let more = servers[1].eval_count() - before;
    assert!(more >= 4 * 2, "{more} renewals of four holds");
}
