#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::store::{Store, SurveyOf};

pub(super) fn scope(prefix: &str, has_tokens: bool, has_counters: bool) -> Scope {
    Scope {
        prefix: prefix.into(),
        has_tokens,
        has_counters,
    }
}

pub(super) fn all_of(server: &StubServer, scope: &Scope) -> Vec<LockInfo> {
    let (store, mut position) = (server.store(), Position::default());
    let mut found = Vec::new();
    while !position.is_over {
        found.extend(
            store
                .survey(SurveyOf::All(scope), &mut position, soon())
                .unwrap(),
        );
    }
    found
}

fn names(found: &[LockInfo]) -> Vec<&str> {
    found.iter().map(|it| &*it.name).collect()
}

/// Two locks, one of them without a TTL, and other keys.
fn keys() -> Keys {
    Keys::default()
        .hash("a", &[(&hold(1, 1), "1")], 9)
        .hash("b", &[(&hold(2, 2), "1")], -1)
        .hash("c", &[("name", "1")], 9)
        .hash("d", &[("mode", "read")], 9)
        .text("t", "token", 9)
        .list("l")
}

fn page(cursor: &str, names: &[&str]) -> Says {
    let names = names.iter().map(|name| bulk(name)).collect();
    Says::reply(Value::Array(vec![bulk(cursor), Value::Array(names)]))
}

#[test]
fn a_list_reads_all_pages_of_a_server() {
    let server = server(keys(), |request| match request.is("SCAN 0") {
        true => Some(page("7", &["b", "c", "d"])),
        false if request.is("SCAN 7") => Some(page("0", &["a"])),
        false => None,
    });
    let (store, scope) = (server.store(), scope("x*", false, false));
    let mut position = Position::default();
    let found = store
        .survey(SurveyOf::All(&scope), &mut position, soon())
        .unwrap();
    assert!(found.is_empty(), "without an end it is no lock: {found:?}");
    let name: Arc<str> = "the master".into();
    assert_eq!(position.at, Some((Arc::clone(&name), 0)));
    assert_eq!((position.cursor, position.done.len()), (7, 0));
    assert_eq!(position.connected.len(), 1);
    let found = store
        .survey(SurveyOf::All(&scope), &mut position, soon())
        .unwrap();
    assert_eq!(names(&found), ["a"]);
    assert_eq!(found[0].holders[0].pid, Some(812));
    assert_eq!((position.at.clone(), &*position.done), (None, &[name][..]));
    assert!(!position.is_over);
    let found = store
        .survey(SurveyOf::All(&scope), &mut position, soon())
        .unwrap();
    assert!(found.is_empty() && position.is_over);
    let asked = server.asked();
    let scans: Vec<_> = asked
        .iter()
        .filter(|it| it.is("SCAN"))
        .map(|it| it.join(" "))
        .collect();
    let rest = "MATCH x\\** COUNT 512 TYPE hash";
    assert_eq!(scans, [format!("SCAN 0 {rest}"), format!("SCAN 7 {rest}")]);
    // `CLIENT LIST` is sent once per server.
    assert_eq!(count(&server, "CLIENT LIST"), 1);
}

#[test]
fn a_replaced_server_is_scanned_from_the_start() {
    for (at, cursor) in [(0, "SCAN 7"), (1, "SCAN 0")] {
        let server = server(keys(), |_| None);
        let mut position = Position {
            at: Some(("the master".into(), at)),
            cursor: 7,
            ..Position::default()
        };
        let scope = scope("", false, false);
        server
            .store()
            .survey(SurveyOf::All(&scope), &mut position, soon())
            .unwrap();
        assert_eq!(count(&server, cursor), 1);
    }
}

#[test]
fn a_lock_without_a_ttl_is_not_listed() {
    for says in [
        Says::reply(Value::Nil),
        Says::error("NOPERM no permissions to access one of the keys"),
    ] {
        let server = server(keys(), move |request| {
            request.is("PTTL").then(|| says.clone())
        });
        let found = all_of(&server, &scope("", true, true));
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn a_failed_list_ends_and_names_the_node() {
    for says in [
        Says::error("ERR no"),
        Says::reply(Value::Nil),
        Says::reply(Value::Array(vec![bulk("x"), Value::Array(Vec::new())])),
        Says::reply(Value::Array(vec![bulk("0"), bulk("a")])),
    ] {
        let server = server(keys(), move |request| {
            request.is("SCAN").then(|| says.clone())
        });
        let mut position = Position::default();
        let scope = scope("", false, false);
        let outcome = server
            .store()
            .survey(SurveyOf::All(&scope), &mut position, soon());
        let error = outcome.err().unwrap();
        assert!(
            position.is_over && error.to_string().contains(&server.address()),
            "{error}"
        );
        assert_eq!(count(&server, "SCAN"), 1);
    }
}

#[test]
fn types_are_queried_when_strings_are_wanted() {
    let new = server(keys(), |_| None);
    assert_eq!(names(&all_of(&new, &scope("", true, false))), ["a", "t"]);
    assert_eq!((count(&new, "SCAN"), count(&new, "TYPE")), (1, 6));
    assert_eq!((count(&new, "HLEN t"), count(&new, "STRLEN t")), (0, 1));
    assert_eq!((count(&new, "HLEN l"), count(&new, "STRLEN l")), (0, 0));
}

#[test]
fn a_key_that_is_not_utf8_is_not_a_lock() {
    let strange = [Value::BulkString(vec![0xff]), Value::Int(1), bulk("a")];
    let server = server(keys(), move |request| {
        let names = Value::Array(strange.to_vec());
        let page = Says::reply(Value::Array(vec![bulk("0"), names]));
        request.is("SCAN").then_some(page)
    });
    assert_eq!(names(&all_of(&server, &scope("", false, false))), ["a"]);
    assert_eq!(count(&server, "HLEN"), 1);
}

/// For each of the keys `a`, `b`, `d`, the server replies to the first `times` HLENs with `error`. Returns the locks.
fn with_error(error: &'static str, times: usize) -> (Result<Vec<String>>, StubServer) {
    let mut left = [("a", times), ("b", times), ("d", times)];
    let server = server(keys(), move |request| {
        let about = |(name, left): &&mut (&str, usize)| *left > 0 && request[1] == *name;
        let one = left.iter_mut().find(|it| request.is("HLEN") && about(it))?;
        one.1 -= 1;
        Some(Says::error(error))
    });
    let mut position = Position::default();
    let scope = scope("", false, false);
    let found = server
        .store()
        .survey(SurveyOf::All(&scope), &mut position, soon());
    let names = found.map(|found| found.iter().map(|it| it.name.to_string()).collect());
    (names, server)
}

#[test]
fn a_forbidden_key_is_left_out() {
    let (found, server) = with_error("NOPERM no permissions to access one of the keys", 1);
    assert_eq!(found.unwrap(), Vec::<String>::new());
    assert_eq!(count(&server, "HLEN a"), 1);
    // A user without the right to a command can read no key, so the survey fails.
    let (found, _server) = with_error("NOPERM no permissions to run the 'hlen' command", 1);
    assert!(matches!(found, Err(Error::Permission { .. })), "{found:?}");
    let (found, _server) = with_error("NOPERM no permissions to run the 'hkeys' command", 1);
    assert!(found.is_err(), "no key is meant there: {found:?}");
}
