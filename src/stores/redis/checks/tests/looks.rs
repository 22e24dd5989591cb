#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use super::*;
use crate::ground::error::Error;
use crate::store::Store;
use crate::stores::redis::tests::stub::{Request, Says, StubServer, bulk, settings};

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub(super) const INFO: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\
                    aof_enabled:1\r\nconnected_slaves:0\r\n";

/// A server without risks. If `rather` returns a reply, the server sends that reply instead.
pub(super) fn server(
    mut rather: impl FnMut(&Request) -> Option<Says> + Send + 'static,
) -> StubServer {
    StubServer::start(move |request| rather(request).or_else(|| well(request)))
}

pub(super) fn well(request: &Request) -> Option<Says> {
    if request.is("INFO") {
        return Some(Says::reply(bulk(INFO)));
    }
    if request.is("CLUSTER INFO") {
        return Some(Says::reply(bulk(
            "cluster_state:ok\r\ncluster_slots_ok:16384\r\n",
        )));
    }
    if request.is("CONFIG GET") {
        let pair = [bulk(&request[2]), bulk("always")];
        return Some(Says::reply(Value::Array(pair.to_vec())));
    }
    let none = Value::Array(Vec::new());
    request.is_script().then_some(Says::answer(none))
}

pub(super) type Answers = Box<dyn FnMut(&Request) -> Option<Says> + Send>;

pub(super) fn codes(found: &[HealthWarning]) -> Vec<String> {
    let found = found
        .iter()
        .map(|it| format!("{} {}", it.code, it.severity));
    found.collect()
}

pub(super) fn looked(
    rather: impl FnMut(&Request) -> Option<Says> + Send + 'static,
) -> Vec<HealthWarning> {
    check(&server(rather).store(), soon()).unwrap()
}

pub(super) fn bad(
    rather: impl FnMut(&Request) -> Option<Says> + Send + 'static,
) -> Vec<(String, String)> {
    let found = looked(rather);
    let bad = found
        .iter()
        .filter(|it| it.severity > crate::store::Severity::Ok);
    bad.map(|it| (format!("{} {}", it.code, it.severity), it.message.clone()))
        .collect()
}

pub(super) fn refusing(
    command: &'static str,
    error: &'static str,
) -> impl FnMut(&Request) -> Option<Says> + Send {
    move |request| request.is(command).then(|| Says::error(error))
}

#[test]
fn a_healthy_server_has_only_ok_findings() {
    let server = server(|_| None);
    let found = server.store().check(soon()).unwrap();
    assert_eq!(
        codes(&found),
        [
            "version ok",
            "role ok",
            "eviction ok",
            "persistence ok",
            "replicas ok",
            "rights ok"
        ]
    );
    assert!(found.iter().all(|it| *it.node == *server.address()));
}

#[test]
fn a_missing_right_to_query_is_a_finding() {
    let denied = "NOPERM this user has no permissions to run the 'info' command";
    let found = bad(refusing("INFO", denied));
    let words = "the user may not run INFO (+info)";
    assert_eq!(found, [("rights note".to_owned(), words.to_owned())]);
    let renamed = "ERR unknown command 'INFO', with args beginning with: ";
    let found = bad(refusing("INFO", renamed));
    assert_eq!(found, [("rights note".to_owned(), words.to_owned())]);
    let found = bad(refusing("CONFIG", "NOPERM no"));
    let about = "the user may not run CONFIG GET (+config|get)".to_owned();
    assert!(
        found.contains(&("rights note".to_owned(), about)),
        "{found:?}"
    );
    let found = bad(refusing("CONFIG", "ERR unknown command"));
    assert!(
        found.iter().all(|(code, _)| code == "persistence note"),
        "{found:?}"
    );
    let odd = Says::reply(Value::Nil);
    let found = bad(move |request| request.is("CONFIG").then(|| odd.clone()));
    assert!(
        found.iter().all(|(code, _)| code == "persistence note"),
        "{found:?}"
    );
}

#[test]
fn a_single_server_that_fails_is_an_error() {
    for (error, is_permission) in [
        ("ERR no", false),
        ("LOADING it is", false),
        (
            "NOPERM this user has no permissions to run the 'other' command",
            true,
        ),
        ("ERR about 'info'", false),
    ] {
        let server = server(refusing("INFO", error));
        let outcome = check(&server.store(), soon());
        let is_so = matches!(outcome, Err(Error::Permission { .. }));
        assert!(
            outcome.is_err() && is_so == is_permission,
            "{error}: {outcome:?}"
        );
    }
    for cut in ["INFO", "CONFIG", "EVALSHA"] {
        let server = server(move |request| request.is(cut).then_some(Says::cut()));
        let outcome = check(&server.store(), soon());
        assert!(
            matches!(outcome, Err(Error::Unreachable { .. })),
            "{cut}: {outcome:?}"
        );
    }
}

#[test]
fn a_slow_server_is_not_reported_as_unreachable() {
    for silent in ["CONFIG", "EVALSHA", "SUBSCRIBE"] {
        let server = server(move |request| request.is(silent).then_some(Says::nothing()));
        let found = check(
            &server.store(),
            Instant::now() + Duration::from_millis(2000),
        )
        .unwrap();
        let last = found.last().unwrap();
        assert!(last.severity == Severity::Note, "{silent}: {last}");
        assert!(last.advice.contains("command_timeout"), "{silent}: {last}");
        let code = if silent == "SUBSCRIBE" {
            "connection"
        } else {
            "reachable"
        };
        assert_eq!(last.code, code);
    }
}

fn unreachable(fault: CallError, answered: Option<&'static str>) -> HealthWarning {
    let mut found = Findings::about(&"node".into());
    found.unreachable(&fault, answered);
    found.all.remove(0)
}

#[test]
fn refused_credentials_are_worse_than_maxclients() {
    let severity = |fault| unreachable(fault, Some("connection")).severity.to_string();
    let said = |text: &str| severity(CallError::Server(text.to_owned()));
    assert_eq!(said("WRONGPASS invalid username-password pair"), "danger");
    assert_eq!(said("ERR max number of clients reached"), "note");
    assert_eq!(said("LOADING it is"), "note");
    assert_eq!(severity(CallError::Untrusted("whose".into())), "danger");
    assert_eq!(severity(CallError::NotSent("it is silent".into())), "note");
}

#[test]
fn a_wrong_password_is_not_reported_as_unreachable() {
    let found = |fault| unreachable(fault, None);
    for fault in [
        CallError::Server("NOAUTH Authentication required.".into()),
        CallError::Untrusted("whose".into()),
    ] {
        let found = found(fault);
        assert_eq!(
            (found.code, found.severity),
            ("connection", Severity::Danger)
        );
        assert!(found.advice.contains("password"), "{found}");
    }
    assert_eq!(
        found(CallError::Server("LOADING it is".into())).code,
        "reachable"
    );
}

/// Starts a Cluster. If `rather` returns a reply, the servers send that reply. Otherwise they reply like a server without
/// risks. Returns the findings of a check, and the servers.
fn of_cluster(
    count: usize,
    rather: fn(&Request) -> Option<Says>,
) -> (Vec<HealthWarning>, Vec<StubServer>) {
    let (store, servers) = cluster(count, rather);
    (check(&store, soon()).unwrap(), servers)
}

fn cluster(count: usize, rather: fn(&Request) -> Option<Says>) -> (Redis, Vec<StubServer>) {
    let servers: Vec<_> = (0..count).map(|_| server(rather)).collect();
    let range = |(at, server): (usize, &StubServer)| {
        let (host, port) = server
            .address()
            .rsplit_once(':')
            .map(|(host, port)| (bulk(host), Value::Int(port.parse().unwrap())))
            .unwrap();
        let (first, last) = (at * 100, at * 100 + 99);
        let slots = [first, last].map(|slot| Value::Int(slot as i64));
        let [first, last] = slots;
        Value::Array(vec![first, last, Value::Array(vec![host, port])])
    };
    let map = Value::Array(servers.iter().enumerate().map(range).collect());
    for server in &servers {
        let map = map.clone();
        server.answer(move |request| match request.is("CLUSTER SLOTS") {
            true => Some(Says::reply(map.clone())),
            false => rather(request).or_else(|| well(request)),
        });
    }
    let urls: Vec<_> = servers.iter().map(StubServer::url).collect();
    (Redis::cluster(&urls, &settings()).unwrap(), servers)
}

#[test]
fn a_failing_cluster_master_is_a_finding() {
    let state = |found: &[HealthWarning]| {
        let it = found.iter().find(|it| it.message.contains("CLUSTER INFO"));
        it.map(|it| format!("{} {}", it.code, it.severity))
    };
    let (found, _servers) = of_cluster(2, |request| match request.is("CLUSTER INFO") {
        true => Some(Says::error("NOPERM no")),
        false => None,
    });
    assert_eq!(state(&found).as_deref(), Some("rights note"));
    for command in ["CLUSTER INFO", "INFO"] {
        let rather: fn(&Request) -> Option<Says> = match command {
            "INFO" => |request| request.is("INFO").then(|| Says::error("ERR no")),
            _ => |request| request.is("CLUSTER INFO").then(|| Says::error("ERR no")),
        };
        let (found, servers) = of_cluster(2, rather);
        let unreachable = found.iter().filter(|it| it.code == "reachable");
        let nodes: Vec<_> = unreachable.clone().map(|it| it.node.to_string()).collect();
        let mut expected: Vec<_> = servers.iter().map(StubServer::address).collect();
        expected.sort();
        assert_eq!(nodes, expected, "{command}");
        for it in unreachable {
            assert_eq!(it.message, "it could not be checked: ERR no");
            assert_eq!(it.severity, crate::store::Severity::Danger);
        }
    }
    let (found, _servers) = of_cluster(2, |request| request.is("INFO").then_some(Says::cut()));
    assert_eq!(codes(&found), ["reachable danger"; 2]);
}
