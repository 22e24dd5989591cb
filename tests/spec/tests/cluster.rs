//! Simulated servers of a cluster, and sentinels.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{NOW, acquire, script, send, texts};
use redlatch_spec::{Address, Config, Entry, Server, SlotRange, Value, scripts, slot};

fn address(number: u16) -> Address {
    ("10.0.0.1".to_owned(), 7000 + number)
}

fn ranges(parts: &[(u16, u16, u16)]) -> Vec<SlotRange> {
    let range = |(first, last, master): &(u16, u16, u16)| SlotRange {
        first: *first,
        last: *last,
        master: address(*master),
        replicas: vec![address(master + 10)],
    };
    parts.iter().map(range).collect()
}

/// Two servers that have half of the slots each.
fn pair() -> (Server, Server) {
    let [mut one, mut two] = [1, 2].map(|number| {
        let mut server = Server::new(
            Config {
                seed: number,
                ..Config::default()
            },
            NOW,
        );
        server.connect(1);
        server.connect(2);
        server
    });
    let parts = ranges(&[(0, 8191, 1), (8192, 16383, 2)]);
    one.set_slots(address(1), parts.clone());
    two.set_slots(address(2), parts);
    (one, two)
}

#[test]
fn slots_are_those_of_redis() {
    // As CLUSTER KEYSLOT of redis-server 7.0.15 has them.
    for (key, expected) in [("foo", 12182), ("x{y", 2740), ("a{foo}b", 12182)] {
        assert_eq!(slot(key.as_bytes()), expected, "{key}");
    }
}

#[test]
fn a_request_goes_to_the_server_of_its_slot() {
    let (mut one, mut two) = pair();
    let moved = format!("-MOVED {} 10.0.0.1:", slot(b"orders"));
    let is_first = slot(b"orders") < 8192;
    let (here, there) = if is_first {
        (&mut one, &mut two)
    } else {
        (&mut two, &mut one)
    };
    assert!(acquire(here, NOW, "a:1:1").starts_with(':'));
    assert!(acquire(there, NOW, "a:1:1").starts_with(&moved));
    let refused = send(there, NOW, 2, "SSUBSCRIBE c:{orders}")[0].1.clone();
    assert!(refused.starts_with(&moved));
    let told = send(here, NOW, 2, "CLUSTER SLOTS")[0].1.clone();
    assert!(
        told.starts_with("*2 *4 :0 :8191 *4 $8 10.0.0.1 :7001"),
        "{told}"
    );
    here.set_cluster_down(true);
    assert!(acquire(here, NOW, "a:1:1").starts_with("-CLUSTERDOWN"));
}

#[test]
fn a_slot_moves_with_its_keys_and_its_listeners() {
    let (mut one, mut two) = pair();
    let wanted = slot(b"orders");
    let is_first = wanted < 8192;
    let (from, to) = if is_first {
        (&mut one, &mut two)
    } else {
        (&mut two, &mut one)
    };
    acquire(from, NOW, "a:1:1");
    send(from, NOW, 2, "SSUBSCRIBE c:{orders}");
    to.begin_to_come(wanted);
    from.begin_to_leave(wanted, address(if is_first { 2 } else { 1 }));
    // As long as the key is here it is answered for here.
    assert!(acquire(from, NOW, "b:1:1").starts_with("*2 :7 *4 :0"));
    assert_eq!(from.hand_keys(NOW, wanted, 1, to), 1);
    assert!(acquire(from, NOW, "b:1:1").starts_with(&format!("-ASK {wanted}")));
    assert!(acquire(to, NOW, "b:1:1").starts_with("-MOVED"));
    let text = scripts::named("reentrant/inspect").unwrap().text;
    let inspect = ["EVAL", text, "1", "orders", "a:1:1", "7"].map(|word| word.as_bytes().to_vec());
    send(to, NOW, 1, "ASKING");
    let told = texts(to.command(NOW, 1, &inspect));
    assert_eq!(told[0].1, "*2 :7 *3 :1 $1 1 :30000");
    assert!(
        texts(to.command(NOW, 1, &inspect))[0]
            .1
            .starts_with("-MOVED")
    );
    let parts = ranges(&[(0, 16383, if is_first { 2 } else { 1 })]);
    let told = texts(from.set_slots(address(if is_first { 1 } else { 2 }), parts.clone()));
    assert_eq!(
        told,
        [(2, "*3 $12 sunsubscribe $10 c:{orders} :0".to_owned())]
    );
    to.set_slots(address(if is_first { 2 } else { 1 }), parts);
    assert!(acquire(to, NOW, "b:1:1").starts_with("*2 :7 *4 :0"));
}

#[test]
fn a_key_that_has_expired_does_not_move() {
    let (mut one, mut two) = pair();
    let wanted = slot(b"orders");
    let is_first = wanted < 8192;
    let (from, to) = if is_first {
        (&mut one, &mut two)
    } else {
        (&mut two, &mut one)
    };
    acquire(from, NOW, "a:1:1");
    to.begin_to_come(wanted);
    from.begin_to_leave(wanted, address(if is_first { 2 } else { 1 }));
    let later = NOW + 31_000_000;
    let taken = Entry {
        value: Value::String(Vec::new()),
        expires: None,
    };
    to.keys().put((0, b"orders".to_vec()), Some(taken), later);
    assert_eq!(from.hand_keys(later, wanted, 9, to), 0);
    assert!(to.look(later, "orders").is_some());
}

#[test]
fn a_release_under_a_slot_on_the_move_is_heard() {
    let (mut one, mut two) = pair();
    let wanted = slot(b"orders");
    let here = if wanted < 8192 { &mut one } else { &mut two };
    acquire(here, NOW, "a:1:1");
    send(here, NOW, 2, "SUBSCRIBE c");
    here.begin_to_leave(wanted, address(3));
    // The key is gone then, for which this server does not answer any more.
    let released = script(
        here,
        NOW,
        1,
        "reentrant/release",
        &["orders", "a:1:1", "c", "8"],
    );
    assert_eq!(released, format!(":{}", 8 * 4_194_304 + 1));
    assert_eq!(here.take_broadcasts(), [(b"c".to_vec(), b"0".to_vec())]);
}

#[test]
fn a_sentinel_names_a_master_and_tells_of_another_one() {
    let mut sentinel = Server::sentinel(Config::default(), NOW);
    sentinel.connect(1);
    sentinel.connect(2);
    let ask = "SENTINEL GET-MASTER-ADDR-BY-NAME locks";
    assert_eq!(send(&mut sentinel, NOW, 1, ask)[0].1, "$-1");
    sentinel.name_master("locks", "10.0.0.1", 6379, 0);
    assert_eq!(
        send(&mut sentinel, NOW, 1, ask)[0].1,
        "*2 $8 10.0.0.1 $4 6379"
    );
    send(&mut sentinel, NOW, 2, "SUBSCRIBE +switch-master");
    let told = texts(sentinel.name_master("locks", "10.0.0.2", 6379, 4));
    let text = "*3 $7 message $14 +switch-master $33 locks 10.0.0.1 6379 10.0.0.2 6379";
    assert_eq!(told, [(2, text.to_owned())]);
    let details = send(&mut sentinel, NOW, 1, "SENTINEL MASTER locks")[0]
        .1
        .clone();
    assert!(details.contains("config-epoch $1 4"), "{details}");
    assert!(
        send(&mut sentinel, NOW, 1, "TIME")[0]
            .1
            .starts_with("-ERR unknown command")
    );
}
