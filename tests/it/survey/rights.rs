//! A user with no more rights than an operator needs, and one that lacks some of them.

use redlatch::Client;

use crate::acl::{PREFIX, for_looks, is_named, user};
use crate::support::{RedisServer, ms};

fn open(url: &str) -> Client {
    let builder = Client::builder().command_timeout(ms(10_000));
    builder.key_prefix(PREFIX).open(url).unwrap()
}

/// A server on which somebody holds locks.
fn held() -> (RedisServer, Client) {
    let server = RedisServer::start();
    let whole = Client::builder()
        .key_prefix(PREFIX)
        .open(&server.url())
        .unwrap();
    whole.lock("plain").lock().unwrap();
    whole.token_lock("token").lock().unwrap();
    whole.read_write_lock("sides").read().lock().unwrap();
    (server, whole)
}

#[test]
fn the_rights_for_a_look_are_enough() {
    let (server, _whole) = held();
    let client = open(&user(&server, &for_looks()));
    let locks = client.locks("").with_tokens().with_counters();
    let found: Vec<_> = locks.map(|info| info.unwrap().name).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    let info = client.lock("plain").describe().unwrap();
    assert_eq!((info.holders.len(), info.listening), (1, Some(0)));
    assert_eq!(info.holders[0].pid, Some(std::process::id()));
}

#[test]
fn each_right_for_a_look_is_needed_and_named() {
    let (server, whole) = held();
    // More than are read at once.
    for reader in 0..100 {
        let field = format!("9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:{reader}");
        server.cmd(&["HSET", "orders:sides", &field, "1"]);
    }
    for lacking in for_looks() {
        let mut rules = for_looks();
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let locks = client.locks("").with_tokens().with_counters();
        let errors: Vec<_> = locks.filter_map(Result::err).collect();
        // Without these something is not told.
        let is_spare = ["pubsub|numsub", "client|list", "exists"].contains(&&*lacking);
        is_named(&lacking, errors, !is_spare);
    }
    drop(whole);
}
