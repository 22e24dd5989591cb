//! Looks that matter on the nodes of a quorum.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use super::*;
use crate::stores::redis::tests::stub::{Request, Says, StubServer, bulk};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// The command that a user may run, by the answers of the server to each question.
fn flushing(answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> Option<String> {
    let server = StubServer::start(answers);
    let found = flushes(&server.store(), soon())?;
    assert_eq!(
        (found.code, &*found.node),
        ("redlock-nodes", &*server.address())
    );
    let rest = found.message.strip_prefix("this user may run ")?;
    Some(rest.split(',').next()?.to_owned())
}

/// Answers of a server that has these two commands, with this answer to who the user is, and to each rehearsal.
fn with(
    known: [bool; 2],
    user: Says,
    rehearsed: [Says; 2],
) -> impl FnMut(&Request) -> Option<Says> + Send + 'static {
    move |request| {
        if request.is("COMMAND INFO FLUSHALL FLUSHDB") {
            let known = known.map(|it| if it { bulk("x") } else { Value::Nil });
            return Some(Says::reply(Value::Array(known.to_vec())));
        }
        if request.is("ACL WHOAMI") {
            return Some(user.clone());
        }
        let [all, one] = &rehearsed;
        match request.is("ACL DRYRUN worker FLUSHALL") {
            true => Some(all.clone()),
            false => request.is("ACL DRYRUN worker FLUSHDB").then(|| one.clone()),
        }
    }
}

#[test]
fn a_user_that_may_throw_all_keys_away_is_told() {
    let text = |text: &str| Says::reply(bulk(text));
    let error = |text: &str| Says::error(text);
    let (ok, no) = (Says::reply(Value::Okay), text("User has no permissions"));
    let worker = || text("worker");
    let both = [true, true];
    let (all, one) = (Some("FLUSHALL".to_owned()), Some("FLUSHDB".to_owned()));
    let rehearsed = |known, first: &Says, second: &Says| {
        flushing(with(known, worker(), [first.clone(), second.clone()]))
    };
    assert_eq!(rehearsed(both, &ok, &ok), all);
    assert_eq!(rehearsed(both, &text("OK"), &no), all);
    assert_eq!(rehearsed(both, &no, &ok), one);
    assert_eq!(rehearsed(both, &no, &no), None);
    // What was renamed is not there.
    assert_eq!(rehearsed([false, true], &ok, &ok), one);
    assert_eq!(rehearsed([false, true], &ok, &no), None);
    assert_eq!(rehearsed([false, false], &ok, &ok), None);
    // Some have no rehearsal, and some users may not ask for one.
    assert_eq!(rehearsed(both, &error("ERR unknown subcommand"), &no), all);
    assert_eq!(rehearsed(both, &error("NOPERM no"), &no), None);
    assert_eq!(rehearsed(both, &Says::cut(), &ok), None);
}

#[test]
fn before_redis_7_the_rules_of_a_user_say_what_it_may_do() {
    let told = |rules: &str| {
        let fields = ["flags", "on", "commands", rules, "keys", "*"].map(bulk);
        let unknown =
            Says::error("ERR Unknown subcommand or wrong number of arguments for 'DRYRUN'");
        let mut others = with(
            [true, true],
            Says::reply(bulk("worker")),
            [unknown.clone(), unknown],
        );
        flushing(move |request| match request.is("ACL GETUSER worker") {
            true => Some(Says::reply(Value::Array(fields.to_vec()))),
            false => others(request),
        })
    };
    for (rules, permitted) in [
        ("+@all", Some("FLUSHALL")),
        ("+@all -@dangerous +info +acl", None),
        ("+@all -flushall", Some("FLUSHDB")),
        ("+@all -@dangerous +flushdb", Some("FLUSHDB")),
        ("-@all +get", None),
        ("-@all +@write -@slow +@keyspace", Some("FLUSHALL")),
    ] {
        assert_eq!(told(rules).as_deref(), permitted, "{rules}");
    }
}

#[test]
fn before_there_were_users_everybody_may_do_everything() {
    let asked = |user: Says| flushing(with([true, true], user, [Says::cut(), Says::cut()]));
    let old = Says::error("ERR unknown command `ACL`");
    assert_eq!(asked(old).as_deref(), Some("FLUSHALL"));
    assert_eq!(asked(Says::error("NOPERM no")), None);
    assert_eq!(asked(Says::cut()), None);
    assert_eq!(
        flushing(|request| request.is("COMMAND").then_some(Says::cut())),
        None
    );
    let odd = |request: &Request| match request.is("COMMAND") {
        true => Some(Says::reply(Value::Nil)),
        false => Some(Says::reply(bulk("worker"))),
    };
    assert_eq!(flushing(odd), None);
}

/// The finding about a server that tells this of its backlog.
fn changing(info: &'static str, ttl: Value) -> Option<HealthWarning> {
    let server = StubServer::start(move |request| match request.is("INFO replication") {
        true => Some(Says::reply(bulk(info))),
        false if request.is("CONFIG GET repl-backlog-ttl") => Some(Says::reply(ttl.clone())),
        false => None,
    });
    changes_id(&server.store(), soon())
}

#[test]
fn a_server_that_forgets_its_backlog_takes_a_new_id() {
    let pair = |ttl: &str| Value::Array(vec![bulk("repl-backlog-ttl"), bulk(ttl)]);
    let active = "role:master\r\nrepl_backlog_active:1\r\n";
    let found = changing(active, pair("3600")).unwrap();
    assert!(
        found
            .message
            .starts_with("when its replicas are away for 3600 s")
    );
    assert_eq!(found.code, "redlock-nodes");
    assert_eq!(changing(active, pair("0")), None);
    let passive = "role:master\r\nrepl_backlog_active:0\r\n";
    assert_eq!(changing(passive, pair("3600")), None);
    assert_eq!(changing(passive, pair("0")), None);
    assert_eq!(changing(active, Value::Nil), None);
    assert_eq!(changing(active, Value::Array(Vec::new())), None);
    let refusing = StubServer::start(|request| {
        let is_one = request.is("INFO") || request.is("CONFIG");
        is_one.then(|| Says::error("NOPERM no"))
    });
    assert_eq!(changes_id(&refusing.store(), soon()), None);
    let cut = StubServer::start(|request| request.is("INFO").then_some(Says::cut()));
    assert_eq!(changes_id(&cut.store(), soon()), None);
}
