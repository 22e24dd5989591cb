//! How a connection begins.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::stores::redis::transport::connector::Connector;
use crate::stores::redis::transport::socket::tests::silent;

/// The outcome of a connection to a server that does what `answers` says.
fn connected(
    answers: impl FnMut(&Request) -> Option<Says> + Send + 'static,
) -> (Result<Connection, CallError>, StubServer) {
    let server = StubServer::start(answers);
    let outcome = Connection::connect(&address_of(&server.url()), soon());
    (outcome, server)
}

/// The words of a connection that fails.
fn refused(answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> CallError {
    connected(answers).0.err().unwrap()
}

fn greetings(address: &Address, server: &StubServer) -> Vec<String> {
    Connection::connect(address, soon()).unwrap();
    server.all_asked().iter().map(|it| it.join(" ")).collect()
}

#[test]
fn a_connection_says_who_it_is_and_asks_for_the_time() {
    let server = StubServer::start(|_| None);
    let name = "CLIENT SETNAME redlatch";
    let plain = address_of(&server.url());
    assert_eq!(greetings(&plain, &server), [name, "HELLO", "TIME"]);

    let server = StubServer::start(|_| None);
    let url = |user: &str| format!("redis://{user}@{}/3", server.address());
    let of_user = address_of(&url("user:secret"));
    let expected = ["AUTH user secret", "SELECT 3", name, "HELLO", "TIME"];
    assert_eq!(greetings(&of_user, &server), expected);

    let server = StubServer::start(|_| None);
    let of_all = address_of(&format!("redis://:secret@{}", server.address()));
    assert_eq!(
        greetings(&of_all, &server),
        ["AUTH secret", name, "HELLO", "TIME"]
    );

    let server = StubServer::start(|_| None);
    let sentinel = address_of(&server.url()).of_sentinel();
    assert_eq!(greetings(&sentinel, &server), [name, "PING"]);
}

#[test]
fn a_name_that_is_refused_does_no_harm_unless_there_are_too_many_clients() {
    let named = |error: &'static str| {
        connected(move |request| request.is("CLIENT").then(|| Says::Error(error.into())))
    };
    assert!(named("NOPERM no").0.is_ok());
    let full = "ERR max number of clients reached";
    let fault = named(full).0.err().unwrap();
    assert_eq!(fault, CallError::Server(full.into()));
    let fault = refused(|request| request.is("TIME").then(|| Says::Error("ERR no".into())));
    assert_eq!(fault, CallError::Server("ERR no".into()));
}

#[test]
fn no_error_repeats_the_password() {
    let server = StubServer::start(|request| {
        let error = "ERR unknown command 'AUTH' of secret, with args beginning with: 'sec";
        request.is("AUTH").then(|| Says::Error(error.into()))
    });
    let address = address_of(&format!("redis://:secret@{}", server.address()));
    let fault = Connection::connect(&address, soon()).err().unwrap();
    let plain = "ERR unknown command 'AUTH' of …";
    assert_eq!(fault, CallError::Server(plain.into()));
}

#[test]
fn a_time_that_is_none_is_asked_for_on_another_connection_and_then_no_more() {
    let mut answered = 0;
    let (outcome, server) = connected(move |request| {
        answered += u32::from(request.is("TIME"));
        (request.is("TIME") && answered == 1).then_some(Says::Reply(Value::Nil))
    });
    assert!(outcome.is_ok());
    assert_eq!(server.connected(), 2);
    for garbled in [
        Value::Nil,
        Value::Array(vec![bulk("1")]),
        Value::Array(vec![bulk("1"), bulk("x")]),
        Value::Array(vec![Value::Nil, bulk("1")]),
    ] {
        let (outcome, server) =
            connected(move |request| request.is("TIME").then(|| Says::Reply(garbled.clone())));
        let fault = outcome.err().unwrap();
        let words = "while connecting: answered TIME with ";
        assert!(
            matches!(&fault, CallError::NotSent(it) if it.starts_with(words)),
            "{fault:?}"
        );
        assert_eq!(server.connected(), 2);
    }
}

#[test]
fn the_time_of_the_server_is_read_in_seconds_and_micros() {
    let of = |parts: [Value; 2]| handshake::time_of(&Value::Array(parts.to_vec()));
    assert_eq!(of([bulk("7"), bulk("123456")]), Some(7123));
    assert_eq!(of([Value::Int(7), Value::Int(999)]), Some(7000));
    assert_eq!(of([Value::Int(7), Value::Int(1000)]), Some(7001));
    assert_eq!(handshake::time_of(&Value::Nil), None);
    let time = Value::Array(vec![bulk("1000"), bulk("0")]);
    let (outcome, _server) =
        connected(move |request| request.is("TIME").then(|| Says::Reply(time.clone())));
    let least = outcome.unwrap().surely_before(BootInstant::now());
    assert!((990_000..1_010_000).contains(&least), "{least}");
}

#[test]
fn a_connection_that_is_not_answered_ends_with_its_own_time() {
    let server = StubServer::start(|_| Some(Says::Nothing));
    let timeout = Duration::from_millis(60);
    let address = Address::parse(&server.url(), timeout, &TlsConfig::default()).unwrap();
    let begun = Instant::now();
    let fault = Connection::connect(&address, soon()).err().unwrap();
    let late = CallError::NotSent("while connecting: no reply in time".into());
    assert_eq!(fault.reason(), late.reason());
    assert!(matches!(fault, CallError::NotSent(_)));
    assert!((60..3000).contains(&begun.elapsed().as_millis()));
}

#[test]
fn the_words_say_whether_nobody_answers_or_nobody_listens() {
    let (silent, _held) = silent();
    let by = Instant::now() + Duration::from_millis(50);
    let fault = Connection::connect(&address_of(&format!("redis://{silent}")), by);
    assert_eq!(fault.err().unwrap().reason(), "connecting timed out");
    let fault = Connection::connect(&address_of("redis://127.0.0.1:1"), soon());
    let fault = fault.err().unwrap();
    assert!(
        fault.reason().starts_with("connecting failed: "),
        "{fault:?}"
    );
}

#[test]
fn each_attempt_to_connect_is_counted_by_its_end() {
    let counted = |says: Option<Says>| {
        let server = StubServer::start(move |request| match request.is("TIME") {
            true => says.clone(),
            false => None,
        });
        let address = address_of(&server.url());
        let kept = address.connect(soon());
        (address.traffic.read(0, 0, false).connects, kept.is_ok())
    };
    assert_eq!(counted(None), (vec![("ok", 1)], true));
    let refused = counted(Some(Says::Error("ERR no".into())));
    assert_eq!(refused, (vec![("refused", 1)], false));
    let unreachable = counted(Some(Says::Cut));
    assert_eq!(unreachable, (vec![("unreachable", 1)], false));
}

#[test]
fn a_server_that_is_no_redis_is_described() {
    let fault = refused(|_| Some(Says::Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())));
    assert!(matches!(&fault, CallError::Server(it) if it.starts_with("it answered HTTP/1.1")));
}

#[test]
fn one_address_is_one_node_that_nobody_watches_over() {
    let server = StubServer::start(|_| None);
    let address = address_of(&server.url());
    assert_eq!(*address.node(), *server.address());
    assert_eq!(Connector::generation(&address), 0);
    assert!(!address.can_fail_over() && !address.is_watched());
    assert!(address.watchers(soon()).is_empty());
    assert_eq!(address.connect(soon()).unwrap().generation, 0);
}
