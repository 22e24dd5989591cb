//! Locks that are strings.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::pages::{all_of, scope};
use super::*;

fn token(text: &str) -> String {
    let told = crate::store::Holder::of_token(text);
    told.visitor
}

/// What a look at tokens, or numbers, or both tells of these keys: the name, the kind and the number.
fn told(keys: Keys, has_tokens: bool, has_counters: bool) -> Vec<(String, LockKind, Option<i64>)> {
    let found = all_of(
        &server(keys, |_| None),
        &scope("", has_tokens, has_counters),
    );
    let told = found
        .iter()
        .map(|it| (it.name.to_string(), it.kind, it.available));
    told.collect()
}

fn expected(rows: &[(&str, LockKind, Option<i64>)]) -> Vec<(String, LockKind, Option<i64>)> {
    let rows = rows.iter();
    rows.map(|(name, kind, number)| ((*name).to_owned(), *kind, *number))
        .collect()
}

#[test]
fn a_text_is_a_token_where_tokens_are_looked_for_and_it_has_an_end() {
    let keys = Keys::default()
        .text("ends", "a-token-of-a-lock", 700)
        .text("lasts", "another-token", -1)
        .text("number", "5", 9);
    let found = all_of(&server(keys.clone(), |_| None), &scope("", true, false));
    let [ends, number] = &*found else {
        panic!("{found:?}");
    };
    assert_eq!((&*ends.name, ends.kind), ("ends", LockKind::Token));
    assert_eq!(ends.expires, Some(Duration::from_millis(700)));
    assert_eq!(ends.holders[0].visitor, token("a-token-of-a-lock"));
    assert_eq!((number.kind, number.available), (LockKind::Token, None));
    assert_eq!(number.holders[0].visitor, token("5"));
    let both = [
        ("ends", LockKind::Token, None),
        ("number", LockKind::Counter, Some(5)),
    ];
    assert_eq!(told(keys.clone(), true, true), expected(&both));
    assert_eq!(told(keys.clone(), false, true), expected(&both[1..]));
    assert_eq!(told(keys, false, false), expected(&[]));
}

#[test]
fn a_number_is_what_the_keys_beside_it_make_it() {
    let keys = Keys::default()
        .text("latch", "2", -1)
        .text("owned", "-3", -1)
        .list("redlatch_sc:{owned}")
        .text("ids", "7", 40)
        .list("{ids}:timeout");
    let rows = [
        ("ids", LockKind::PermitSemaphore, Some(7)),
        ("latch", LockKind::Counter, Some(2)),
        ("owned", LockKind::Semaphore, Some(-3)),
    ];
    assert_eq!(told(keys, false, true), expected(&rows));
}

#[test]
fn the_keys_beside_locks_and_texts_that_no_lock_has_are_left_out() {
    let (longest, longer) = ("x".repeat(256), "x".repeat(257));
    let keys = Keys::default()
        .text("empty", "", 9)
        .text("long", &longest, 9)
        .text("longer", &longer, 9)
        .text("one", "x", 9)
        .text("redlatch_once:{a}:b", "x", 9)
        .text("redlatch_fence:{a}", "x", 9)
        .text("redisson_lock_token:{a}", "x", 9)
        .text("{a}:b:rwlock_timeout:1", "x", 9);
    let rows = ["long", "one"].map(|name| (name, LockKind::Token, None));
    assert_eq!(told(keys, true, false), expected(&rows));
}

#[test]
fn a_text_that_is_gone_or_not_to_be_seen_is_left_out() {
    let keys = Keys::default().text("a", "x", 9).text("b", "y", -2);
    let server = server(keys, |request| {
        let error = "NOPERM no permissions to access one of the keys";
        request.is("GET a").then(|| Says::error(error))
    });
    assert!(all_of(&server, &scope("", true, true)).is_empty());
}

#[test]
fn one_lock_that_is_a_text_is_described_by_its_kind() {
    let keys = Keys::default().text("t", "token", 9).text("n", "5", -1);
    let info = described(keys.clone(), Kind::Token, "t").unwrap();
    assert_eq!((info.kind, info.holders.len()), (LockKind::Token, 1));
    let info = described(keys.clone(), Kind::Latch, "n").unwrap();
    assert_eq!((info.kind, info.available), (LockKind::Counter, Some(5)));
    let gone = Keys::default().text("t", "token", -2);
    let info = described(gone, Kind::Token, "t").unwrap();
    assert!(info.holders.is_empty());
    // A number is a token where one is expected, and no other text is a number.
    let info = described(keys.clone(), Kind::Token, "n").unwrap();
    assert_eq!((info.available, info.expires), (None, None));
    let info = described(keys, Kind::Permits, "t").unwrap();
    assert_eq!((info.available, info.holders.len()), (None, 0));
}
