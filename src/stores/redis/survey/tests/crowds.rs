//! Locks that very many hold.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

/// A hash with the mode, and so many holds of Redisson.
fn crowd(mode: &str, count: u32) -> Keys {
    let mut fields = vec![("mode".to_owned(), mode.to_owned())];
    fields.extend((0..count).map(|thread| (format!("{CLIENT}:{thread}"), "1".to_owned())));
    let fields: Vec<_> = fields
        .iter()
        .map(|(field, value)| (&**field, &**value))
        .collect();
    Keys::default().hash("orders", &fields, 9)
}

#[test]
fn as_many_holds_are_read_as_are_told_and_of_more_only_the_first() {
    for (readers, is_read_whole) in [(64, true), (65, false), (200, false)] {
        let server = server(crowd("read", readers), |_| None);
        let info = describe(&server, Kind::Read, "orders").unwrap();
        assert_eq!((info.holders.len(), info.kind), (64, LockKind::Read));
        assert_eq!(info.holders[0].visitor, format!("{CLIENT}:0"));
        assert_eq!(info.holders[63].visitor, format!("{CLIENT}:63"));
        assert_eq!(count(&server, "HKEYS"), usize::from(is_read_whole));
        assert_eq!(count(&server, "HGETALL"), usize::from(is_read_whole));
        let scanned = count(&server, "HSCAN orders 0 COUNT 65");
        assert_eq!(scanned, usize::from(!is_read_whole), "{readers}");
    }
    let info = described(crowd("write", 80), Kind::Write, "orders").unwrap();
    assert_eq!(info.kind, LockKind::Write);
}

#[test]
fn another_hash_of_that_size_is_no_lock_and_is_not_read() {
    let server = server(crowd("dark", 80), |_| None);
    let outcome = describe(&server, Kind::Read, "orders");
    assert!(is_wrong_type(&outcome), "{outcome:?}");
    assert_eq!(count(&server, "HSCAN") + count(&server, "HGETALL"), 0);
}

#[test]
fn a_crowd_that_cannot_be_read_is_left_out() {
    let none = Says::reply(Value::Nil);
    let server = server(crowd("read", 80), move |request| {
        request.is("HSCAN").then(|| none.clone())
    });
    let info = describe(&server, Kind::Read, "orders").unwrap();
    assert!(info.holders.is_empty());
}
