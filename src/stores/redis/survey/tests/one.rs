//! The look at one lock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

#[test]
fn a_held_lock_is_told_with_its_holder_and_the_process_behind_it() {
    let holder = hold(7, 1);
    let keys = Keys::default().hash("orders", &[(&holder, "2")], 5000);
    let server = server(keys, |_| None);
    let info = describe(&server, Kind::Reentrant, "orders").unwrap();
    assert_eq!((&*info.name, info.kind), ("orders", LockKind::Reentrant));
    assert_eq!(*info.node, *server.address());
    assert_eq!(info.expires, Some(Duration::from_millis(5000)));
    assert_eq!(
        (info.listening, info.fence, info.available),
        (Some(3), None, None)
    );
    let [it] = &*info.holders else {
        panic!("{info:?}");
    };
    assert_eq!((&*it.visitor, it.count), (&*holder, 2));
    assert_eq!(it.address.as_deref(), Some("10.0.0.7:5112"));
    assert_eq!((it.host.as_deref(), it.pid), (Some("web-3"), Some(812)));
    assert_eq!(
        count(&server, "PUBSUB NUMSUB redisson_lock__channel:{orders}"),
        1
    );
}

#[test]
fn a_lock_that_nobody_holds_is_free_and_nobody_is_looked_for() {
    for kind in [Kind::Reentrant, Kind::Read, Kind::Token, Kind::Latch] {
        let server = server(Keys::default(), |_| None);
        let info = describe(&server, kind, "orders").unwrap();
        assert_eq!(info.kind, LockKind::of(kind));
        assert!(info.holders.is_empty() && info.expires.is_none());
        assert_eq!(*info.node, *server.address());
        assert_eq!(count(&server, "CLIENT LIST"), 0);
    }
}

#[test]
fn a_lock_without_an_end_is_told_and_one_that_has_ended_meanwhile_is_free() {
    let holder = hold(7, 1);
    let with = |life| Keys::default().hash("orders", &[(&holder, "1")], life);
    let info = described(with(-1), Kind::Reentrant, "orders").unwrap();
    assert_eq!((info.holders.len(), info.expires), (1, None));
    let info = described(with(-2), Kind::Reentrant, "orders").unwrap();
    assert!(info.holders.is_empty());
    // Its fields were gone, or its values.
    for gone in ["HKEYS", "HGETALL"] {
        let none = Says::reply(Value::Array(Vec::new()));
        let server = server(with(9), move |request| {
            request.is(gone).then(|| none.clone())
        });
        let info = describe(&server, Kind::Reentrant, "orders").unwrap();
        assert!(info.holders.is_empty(), "{gone}");
        let is_read = gone == "HGETALL";
        assert_eq!(count(&server, "HGETALL"), usize::from(is_read));
    }
}

#[test]
fn a_lock_of_another_kind_or_none_is_of_the_wrong_type() {
    let (holder, other) = (hold(7, 1), hold(8, 2));
    let plain = Keys::default().hash("orders", &[(&holder, "1")], 9);
    let side = Keys::default().hash("orders", &[("mode", "read"), (&holder, "1")], 9);
    let crowded = Keys::default().hash("orders", &[(&holder, "1"), (&other, "1")], 9);
    let strange = Keys::default().hash("orders", &[("name", "1")], 9);
    assert!(is_wrong_type(&described(
        plain.clone(),
        Kind::Read,
        "orders"
    )));
    assert!(is_wrong_type(&described(
        plain.clone(),
        Kind::Write,
        "orders"
    )));
    assert!(is_wrong_type(&described(
        side.clone(),
        Kind::Reentrant,
        "orders"
    )));
    assert!(is_wrong_type(&described(
        crowded,
        Kind::Reentrant,
        "orders"
    )));
    let strange = server(strange, |_| None);
    assert!(is_wrong_type(&describe(
        &strange,
        Kind::Reentrant,
        "orders"
    )));
    assert_eq!(
        count(&strange, "HGETALL"),
        0,
        "its values are nobody's business"
    );
    assert!(described(plain, Kind::Fair, "orders").is_ok());
    let info = described(side, Kind::Write, "orders").unwrap();
    assert_eq!(info.kind, LockKind::Read);
}

#[test]
fn a_hold_under_the_name_of_a_lock_need_not_look_like_one_of_a_library() {
    let keys = Keys::default().hash("orders", &[("foreign:7", "1")], 9);
    let info = described(keys, Kind::Reentrant, "orders").unwrap();
    assert_eq!(info.holders[0].visitor, "foreign:7");
}

#[test]
fn the_kind_of_a_lock_follows_from_the_keys_beside_it() {
    let holder = hold(7, 1);
    let plain = || Keys::default().hash("orders", &[(&holder, "1")], 9);
    let counter = "redisson_lock_token:{orders}";
    let queue = "redisson_lock_queue:{orders}";
    let told = |keys| {
        let info = described(keys, Kind::Reentrant, "orders").unwrap();
        (info.kind, info.fence, info.listening)
    };
    assert_eq!(told(plain()), (LockKind::Reentrant, None, Some(3)));
    let fenced = plain().text(counter, "41", -1);
    assert_eq!(told(fenced.clone()), (LockKind::Fenced, Some(41), Some(3)));
    // Each of those who wait listens to a channel of its own.
    assert_eq!(told(plain().list(queue)), (LockKind::Fair, None, None));
    assert_eq!(told(fenced.list(queue)), (LockKind::Fair, Some(41), None));
}

#[test]
fn a_reader_of_ours_whose_end_is_past_is_none_any_more() {
    let (stays, gone, writes) = (hold(1, 1), hold(2, 2), hold(3, 3) + ":write");
    let foreign = format!("{CLIENT}:4");
    let fields = [
        ("mode", "write"),
        (&*stays, "1"),
        (&*gone, "1"),
        (&*writes, "1"),
        (&*foreign, "1"),
    ];
    let end = format!("{{orders}}:{stays}:rwlock_timeout:1");
    let keys = Keys::default()
        .hash("orders", &fields, 9)
        .text(&end, "1", 5);
    let server = server(keys, |_| None);
    let info = describe(&server, Kind::Write, "orders").unwrap();
    let left: Vec<_> = info.holders.iter().map(|it| &*it.visitor).collect();
    assert_eq!(left, [&*stays, &*writes, &*foreign]);
    assert_eq!(info.kind, LockKind::Write);
    assert_eq!(info.listening, Some(3));
    assert_eq!(count(&server, "PUBSUB NUMSUB redisson_rwlock:{orders}"), 1);
    assert_eq!(count(&server, "EXISTS"), 0);
}

#[test]
fn what_the_user_may_not_see_of_a_lock_is_left_out() {
    let holder = hold(7, 1);
    let keys = Keys::default().hash("orders", &[(&holder, "1")], 9);
    let server = server(keys, |request| {
        let is_extra = ["PUBSUB", "GET", "EXISTS", "CLIENT LIST"];
        let is_denied = is_extra.iter().any(|it| request.is(it));
        is_denied.then(|| Says::error("NOPERM no"))
    });
    let info = describe(&server, Kind::Reentrant, "orders").unwrap();
    assert_eq!((info.kind, info.listening), (LockKind::Reentrant, None));
    assert_eq!(info.holders[0].pid, None);
}

#[test]
fn a_look_that_is_refused_says_so() {
    let holder = hold(7, 1);
    let keys = Keys::default().hash("orders", &[(&holder, "1")], 9);
    for (error, is_permission) in [
        ("NOPERM no permissions to run the 'hlen' command", true),
        ("NOPERM no permissions to access one of the keys", true),
        ("ERR something", false),
    ] {
        let server = server(keys.clone(), move |request| match request.is("HLEN") {
            true => Some(Says::error(error)),
            false => None,
        });
        let outcome = describe(&server, Kind::Reentrant, "orders");
        let is_so = matches!(outcome, Err(Error::Permission { .. }));
        assert!(outcome.is_err() && is_so == is_permission, "{outcome:?}");
    }
    let server = server(keys, |request| request.is("HKEYS").then_some(Says::cut()));
    let outcome = describe(&server, Kind::Reentrant, "orders");
    assert!(
        matches!(outcome, Err(Error::Unreachable { .. })),
        "{outcome:?}"
    );
}

#[test]
fn each_question_for_a_slot_on_the_move_goes_behind_a_word_of_its_own() {
    let server = server(Keys::default(), |_| None);
    let store = server.store();
    let Topology::One(node) = &store.topology else {
        panic!("it is one server");
    };
    let asked = node.pool.with(soon(), |connection| {
        connection.is_asking = true;
        let names = ["a", "b"].map(Arc::from);
        let answers = Look::new(node, connection, soon()).ask_about(&redis::cmd("HLEN"), &names);
        connection.is_asking = false;
        answers
    });
    assert_eq!(asked, Ok(vec![Ok(Value::Int(0)), Ok(Value::Int(0))]));
    let asked: Vec<_> = server.asked().iter().map(|it| it.join(" ")).collect();
    assert_eq!(asked, ["ASKING", "HLEN a", "ASKING", "HLEN b"]);
}
