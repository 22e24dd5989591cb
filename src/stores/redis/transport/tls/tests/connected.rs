//! A connection of this store over TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redis::Value;

use super::*;
use crate::stores::redis::transport::address::Address;
use crate::stores::redis::transport::connection::Connection;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The outcome of a connection to a server that wants a certificate if it `asks`, greets, and then does as told.
fn connect(
    asks: bool,
    then: impl FnOnce(&mut End) + Send + 'static,
) -> (Result<Connection, CallError>, Address, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let config = serving(&certificates().server(), asks);
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(config).unwrap();
        while connection.is_handshaking() {
            if connection.complete_io(&mut stream).is_err() {
                return;
            }
        }
        let mut end = End { connection, stream };
        // Its name, and the questions for the kind of server and the time.
        let name = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$8\r\nredlatch\r\n";
        end.hears(name.len() + b"*1\r\n$5\r\nHELLO\r\n".len() + PING.len());
        end.say(b"+OK\r\n-ERR\r\n*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n");
        then(&mut end);
    });
    let address = Address::parse(&url, ms(5000), &trusting()).unwrap();
    (Connection::connect(&address, soon()), address, server)
}

#[test]
fn requests_and_replies_go_over_a_session() {
    let (connection, _, server) = connect(false, |end| {
        assert_eq!(end.hears(PING.len()), PING);
        end.say(b":7\r\n:8\r\n");
        end.hears(2 * PING.len());
        end.say(b"+PONG\r\n");
    });
    let mut connection = connection.unwrap();
    assert!(!connection.is_reset() && !connection.has_buffered());
    assert_eq!(connection.call(PING, soon()), Ok(Value::Int(7)));
    assert!(connection.has_buffered() && connection.has_arrived());
    assert_eq!(connection.receive(soon()), Ok(Value::Int(8)));
    assert!(!connection.has_buffered() && !connection.is_reset());
    let mut writer = connection.writer().unwrap();
    writer.send(PING).unwrap();
    connection.send(PING, soon()).unwrap();
    let pong = Value::SimpleString("PONG".into());
    assert_eq!(connection.receive(soon()), Ok(pong));
    server.join().unwrap();
    until(|| connection.is_reset());
}

#[test]
fn a_connection_without_the_certificate_that_is_asked_for_is_not_trusted() {
    let (connection, _, server) = connect(true, |_| {});
    let fault = connection.err().unwrap();
    assert!(matches!(fault, CallError::Untrusted(_)), "{fault:?}");
    assert!(
        fault
            .reason()
            .starts_with("it asks for a certificate of ours")
    );
    server.join().unwrap();
}
