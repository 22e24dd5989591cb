//! What an operator sees of locks in memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::ground::claim::VisitorId;
use crate::stores::memory::world::{Counter, SideHold};

fn hold(kind: Kind, visitor: &str, ends: BootInstant) -> Entry {
    Entry {
        kind,
        visitor: VisitorId::of_field(visitor),
        count: 2,
        ends,
    }
}

fn sides(is_written: bool, ends: &[BootInstant]) -> Sides {
    let holds = ends.iter().enumerate().map(|(number, ends)| SideHold {
        kind: if is_written { Kind::Write } else { Kind::Read },
        visitor: VisitorId::of_field(format!("client:{number}")),
        count: 1,
        ends: *ends,
    });
    Sides {
        is_written,
        ends: ends.iter().max().copied().unwrap(),
        holds: holds.collect(),
    }
}

/// A world with one of each, and some that are over.
fn scene() -> Memory {
    let store = Memory::new(Arc::default());
    let now = store.world().timeline.now();
    let late = now + Duration::from_secs(60);
    let mut state = store.world().state.lock();
    let mut put = |name: &str, entry| state.holds.insert(name.into(), entry);
    put("a:lock", hold(Kind::Reentrant, "client:1:2", late));
    let token = "9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:3:4";
    put("a:token", hold(Kind::Token, token, late));
    put("a:over", hold(Kind::Reentrant, "client:1:2", now));
    put("b:lock", hold(Kind::Reentrant, "client:1:2", late));
    state
        .sides
        .insert("a:read".into(), sides(false, &[late, now]));
    state.sides.insert("a:write".into(), sides(true, &[late]));
    state.sides.insert("b:write".into(), sides(true, &[late]));
    let mut ended = sides(true, &[now]);
    state.sides.insert("a:ended".into(), sides(true, &[now]));
    // The lock stands a little longer than the last of its holds.
    ended.ends = late;
    state.sides.insert("a:empty".into(), ended);
    for (name, ends) in [
        ("a:count", None),
        ("a:life", Some(late)),
        ("a:past", Some(now)),
    ] {
        let counter = Counter {
            count: 7,
            ends,
            owners: Vec::new(),
        };
        state.counters.insert(name.into(), counter);
    }
    drop(state);
    store
}

fn names(store: &Memory, has_tokens: bool, has_counters: bool) -> Vec<String> {
    let scope = Scope {
        prefix: "a:".into(),
        has_tokens,
        has_counters,
    };
    let found = store.locks_in(&scope).unwrap();
    let counts = found.iter().filter(|it| it.kind == LockKind::Counter);
    assert!(counts.clone().all(|it| it.available == Some(7)));
    found.iter().map(|info| info.name.to_string()).collect()
}

#[test]
fn a_survey_has_what_stands_and_what_was_asked_for() {
    let store = scene();
    assert_eq!(names(&store, false, false), ["a:lock", "a:read", "a:write"]);
    let tokens = ["a:lock", "a:read", "a:token", "a:write"];
    assert_eq!(names(&store, true, false), tokens);
    let counters = ["a:count", "a:life", "a:lock", "a:read", "a:write"];
    assert_eq!(names(&store, false, true), counters);
}

#[test]
fn a_lock_is_told_with_those_who_have_it_and_who_listen() {
    let store = scene();
    let describe = |kind, name: &str| {
        let name = name.into();
        store.describe_lock(&LockId { kind, name }).unwrap()
    };
    let lock = describe(Kind::Reentrant, "a:lock");
    assert_eq!((lock.holders.len(), lock.listening), (1, Some(0)));
    assert_eq!(lock.holders[0].count, 2);
    let left = lock.expires.unwrap();
    assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
    let token = describe(Kind::Token, "a:token");
    assert_eq!(
        token.holders[0].by, "unknown",
        "whatever its token looks like"
    );
    let read = describe(Kind::Read, "a:read");
    assert_eq!((read.kind, read.holders.len()), (LockKind::Read, 1));
    let left = read.expires.unwrap();
    assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
    let write = describe(Kind::Read, "a:write");
    assert_eq!((write.kind, write.holders.len()), (LockKind::Write, 1));
    for name in ["a:empty", "a:ended", "a:free"] {
        let free = describe(Kind::Write, name);
        assert_eq!((free.holders.len(), free.expires), (0, None), "{name}");
    }
    let counter = describe(Kind::Permits, "a:count");
    assert!(counter.holders.is_empty());

    use crate::store::Store;
    let notifier = &store.facts().notifier;
    let parker = notifier.parker();
    let _place = notifier.join(0, &"a:lock".into(), &parker);
    assert_eq!(describe(Kind::Reentrant, "a:lock").listening, Some(1));
    assert_eq!(describe(Kind::Read, "a:read").listening, Some(0));
}
