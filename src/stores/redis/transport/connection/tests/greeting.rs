#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::stores::redis::transport::socket::tests::silent;

fn connected(
    answers: impl FnMut(&Request) -> Option<Says> + Send + 'static,
) -> (Result<Connection, CallError>, StubServer) {
    let server = StubServer::start(answers);
    let outcome = Connection::connect(&address_of(&server.url()), soon());
    (outcome, server)
}

fn refused(answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> CallError {
    connected(answers).0.err().unwrap()
}

#[test]
fn a_refused_name_is_ignored_unless_at_maxclients() {
    let named = |error: &'static str| {
        connected(move |request| request.is("CLIENT").then(|| Says::error(error)))
    };
    assert!(named("NOPERM no").0.is_ok());
    let full = "ERR max number of clients reached";
    let fault = named(full).0.err().unwrap();
    assert_eq!(fault, CallError::Server(full.into()));
    let fault = refused(|request| request.is("TIME").then(|| Says::error("ERR no")));
    assert_eq!(fault, CallError::Server("ERR no".into()));
}

#[test]
fn no_error_repeats_the_password() {
    let server = StubServer::start(|request| {
        let error = "ERR unknown command 'AUTH' of secret, with args beginning with: 'sec";
        request.is("AUTH").then(|| Says::error(error))
    });
    let address = address_of(&format!("redis://:secret@{}", server.address()));
    let fault = Connection::connect(&address, soon()).err().unwrap();
    let plain = "ERR unknown command 'AUTH' of …";
    assert_eq!(fault, CallError::Server(plain.into()));
}

#[test]
fn time_is_read_in_seconds_and_microseconds() {
    let of = |parts: [Value; 2]| handshake::time_of(&Value::Array(parts.to_vec()));
    assert_eq!(of([bulk("7"), bulk("123456")]), Some(7123));
    assert_eq!(of([Value::Int(7), Value::Int(999)]), Some(7000));
    assert_eq!(of([Value::Int(7), Value::Int(1000)]), Some(7001));
    assert_eq!(handshake::time_of(&Value::Nil), None);
    let time = Value::Array(vec![bulk("1000"), bulk("0")]);
    let (outcome, _server) =
        connected(move |request| request.is("TIME").then(|| Says::reply(time.clone())));
    let least = outcome.unwrap().surely_before(BootInstant::now());
    assert!((990_000..1_010_000).contains(&least), "{least}");
}

#[test]
fn connecting_ends_within_connect_timeout() {
    let server = StubServer::start(|_| Some(Says::nothing()));
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
fn silent_and_refusing_servers_have_different_errors() {
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
fn servers_other_than_redis_are_reported() {
    let fault = refused(|_| Some(Says::bytes("HTTP/1.1 400 Bad Request\r\n\r\n")));
    assert!(
        matches!(&fault, CallError::Server(it) if it.contains("not a reply of a Redis server"))
    );
}
