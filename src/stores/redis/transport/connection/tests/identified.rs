//! The question which server a connection leads to.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

const SERVER: &str = "run_id:abc\r\nuptime_in_seconds:90\r\n";

/// Answers the questions about a server with this role.
fn with_role(role: &'static str) -> impl FnMut(&Request) -> Option<Says> + Send + 'static {
    move |request| match request.is("INFO") {
        true => Says::text(match &*request[1] {
            "server" => SERVER,
            "replication" => role,
            _ => "aof_enabled:1\r\n",
        }),
        false if request.is("CONFIG") => Says::error("NOPERM no"),
        false => None,
    }
}

#[test]
fn a_master_is_asked_once_who_it_is() {
    let (mut connection, server) = at(with_role("role:master\r\n"));
    assert!(!connection.is_identified() && connection.identity().is_none());
    for _ in 0..2 {
        let identity = connection.identify(soon()).unwrap();
        assert_eq!(&*identity.run, "abc");
        assert!(!identity.remembers, "it does not tell how it writes");
    }
    assert!(connection.is_identified());
    assert_eq!(connection.identity().map(|it| &*it.run), Some("abc"));
    assert_eq!(server.asked().len(), 4);
    connection.forget_identity();
    assert!(!connection.is_identified() && connection.identity().is_none());
    connection.identify(soon()).unwrap();
    assert_eq!(server.asked().len(), 8);
}

#[test]
fn a_replica_is_asked_each_time_for_it_may_be_made_a_master() {
    let (mut connection, server) = at(with_role("role:slave\r\n"));
    for asked in [4, 8] {
        assert!(connection.identify(soon()).unwrap().follows);
        assert!(!connection.is_identified());
        assert_eq!(server.asked().len(), asked);
    }
}

#[test]
fn a_server_that_does_not_say_who_it_is_is_not_identified() {
    let (mut connection, _server) = at(|request| {
        let is_asked = request.is("INFO") || request.is("CONFIG");
        is_asked.then(|| Says::Error("NOPERM no".into()))
    });
    let fault = connection.identify(soon()).err();
    assert_eq!(fault, Some(CallError::Server("NOPERM no".into())));
    let (mut connection, _server) = at(|request| request.is("INFO").then_some(Says::Cut));
    let fault = connection.identify(soon()).err().unwrap();
    let words = "while asking who it is: the connection was closed before the reply";
    assert!(
        matches!(&fault, CallError::NotSent(it) if **it == *words),
        "{fault:?}"
    );
    assert!(!connection.is_identified());
}

#[test]
fn a_server_may_say_who_it_is_in_a_line_too() {
    let line = |text: &str| Value::SimpleString(text.into());
    let now = BootInstant::now();
    let of = |server: &Value| identity::identity_in(server, None, &Value::Nil, None, [now, now]);
    let identity = of(&line(SERVER)).unwrap();
    assert_eq!((&*identity.run, &*identity.history), ("abc", ""));
    assert!(!identity.follows && !identity.has_followed && !identity.is_in_cluster);
    assert!(!identity.remembers);
    assert!(of(&Value::Nil).is_err());
}
