#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use redis::Value;

use super::seeds::{Seed, in_order};
use super::slots_reply::slots_in;
use super::*;
use crate::stores::redis::random_replies::{ERRORS, altered, changed, draws};

#[test]
fn redirections_are_parsed() {
    let of = |text: &str| Redirection::of(&CallError::Server(text.to_owned()));
    let to = |is_ask, slot, host: &str, port| Redirection {
        is_ask,
        slot,
        host: host.to_owned(),
        port,
    };
    assert_eq!(
        of("MOVED 3999 127.0.0.1:6381"),
        Some(to(false, 3999, "127.0.0.1", 6381))
    );
    assert_eq!(of("ASK 0 ::1:6381"), Some(to(true, 0, "::1", 6381)));
    assert_eq!(of("MOVED 1 :6381"), Some(to(false, 1, "", 6381)));
    assert_eq!(of("MOVED 1 ?:6381"), Some(to(false, 1, "", 6381)));
    assert_eq!(of("ASK 1 ?:6381"), Some(to(true, 1, "", 6381)));
    assert_eq!(of("MOVED 99999 h:1"), None);
    assert_eq!(of("ERR no"), None);
    assert_eq!(
        Redirection::of(&CallError::NotSent("MOVED 1 h:1".into())),
        None
    );
}

#[test]
fn slot_maps_are_parsed() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
    let slots = Value::Array(vec![
        Value::Array(vec![
            Value::Int(0),
            Value::Int(8191),
            node(text("10.0.0.1"), 1),
            node(text("10.0.0.2"), 2),
        ]),
        Value::Array(vec![
            Value::Int(8192),
            Value::Int(16383),
            node(Value::Nil, 3),
            node(text("?"), 4),
            node(text(""), 5),
        ]),
    ]);
    let told = slots_in(&slots, "here");
    assert_eq!(
        told.ranges,
        [
            (0, 8191, ("10.0.0.1".to_owned(), 1)),
            (8192, 16383, ("here".to_owned(), 3))
        ]
    );
    let replicas = [("10.0.0.2", 2), ("here", 4), ("here", 5)];
    let replicas = replicas.map(|(host, port)| (host.to_owned(), port));
    assert_eq!(told.replicas, replicas);
}

/// `asked`: seconds since the last query, and whether that query failed; `None` if the node was never queried.
fn seed(port: u16, asked: Option<(u64, bool)>) -> Seed {
    let timeout = Duration::from_secs(1);
    let url = format!("redis://h:{port}");
    Seed {
        address: Address::parse(&url, timeout, &Default::default()).unwrap(),
        asked_at: asked.map(|(ago, _)| Instant::now() - Duration::from_secs(ago)),
        has_failed: asked.is_some_and(|(_, has_failed)| has_failed),
    }
}

fn ports(seeds: &[Address]) -> Vec<u16> {
    let ports = seeds.iter().map(|it| it.node.rsplit_once(':').unwrap().1);
    ports.map(|port| port.parse().unwrap()).collect()
}

#[test]
fn least_recently_queried_nodes_come_first_failed_ones_last() {
    let seeds = [
        seed(1, Some((9, true))),
        seed(2, Some((1, true))),
        seed(3, None),
        seed(4, Some((1, false))),
        seed(5, Some((9, false))),
        seed(6, None),
        seed(7, Some((3, false))),
    ];
    let is_doubtful = |node: &str| node == "h:7";
    let order = in_order(&seeds, is_doubtful);
    assert_eq!(ports(&order), [3, 6, 5, 4, 7, 1, 2]);
}

#[test]
fn removed_nodes_are_not_queried() {
    let known = [
        seed(1, Some((9, false))),
        seed(2, Some((1, true))),
        seed(3, None),
    ];
    // Port 2 is the seed. The other ports are the nodes of a new map, which contains the seed again.
    let present = [2, 1, 4, 2].map(|port| seed(port, None).address);
    let seeds = seeds_of(present.to_vec(), &known);
    let nodes: Vec<&str> = seeds.iter().map(|it| &*it.address.node).collect();
    assert_eq!(nodes, ["h:2", "h:1", "h:4"]);
    let failed: Vec<bool> = seeds.iter().map(|it| it.has_failed).collect();
    assert_eq!(failed, [true, false, false]);
    assert!(seeds[1].asked_at.is_some() && seeds[2].asked_at.is_none());
}

#[test]
fn random_maps_and_redirections_are_parsed() {
    let maps: [&[u8]; 2] = [
        b"*1\r\n*4\r\n:0\r\n:8191\r\n*4\r\n$8\r\n10.0.0.1\r\n:6379\r\n$2\r\nid\r\n*0\r\n\
          *3\r\n$8\r\n10.0.0.2\r\n:6380\r\n$2\r\nid\r\n",
        b"*2\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$1\r\n?\r\n:1\r\n$2\r\nid\r\n*3\r\n:7\r\n:7\r\n*3\r\n$-1\r\n:2\r\n$2\r\nid\r\n",
    ];
    let timeout = Duration::from_secs(1);
    let address = Address::parse("redis://h", timeout, &Default::default()).unwrap();
    draws("slots", |draw| {
        let map = slots_in(&altered(draw, &maps), "here");
        let masters = map.ranges.iter().map(|(.., master)| master);
        for (host, port) in masters.chain(&map.replicas) {
            assert!(!host.is_empty() && host != "?");
            // `at_host` must accept any host.
            drop(address.at_host(host, *port));
        }
        let text = changed(draw, &ERRORS);
        let text = String::from_utf8_lossy(&text)
            .trim_start_matches('-')
            .to_owned();
        let redirection = Redirection::of(&CallError::Server(text.clone()));
        if let Some(redirection) = redirection {
            let word = if redirection.is_ask { "ASK " } else { "MOVED " };
            assert!(text.starts_with(word), "{text}");
            drop(address.at_host(&redirection.host, redirection.port));
        }
    });
}
