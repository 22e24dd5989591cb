//! What the tests of the simulated server share.
#![allow(dead_code, unreachable_pub, reason = "no binary uses all of it")]

use redlatch_spec::{Delivery, Server, scripts};

/// 2026-11-22, in microseconds since 1970.
pub const NOW: i64 = 1_795_305_600_000_000;

/// Sends words typed in one line. Returns what comes back to all connections.
pub fn send(server: &mut Server, now: i64, connection: u64, line: &str) -> Vec<(u64, String)> {
    let deliveries = server.feed(now, connection, format!("{line}\r\n").as_bytes());
    texts(deliveries)
}

pub fn texts(deliveries: Vec<Delivery>) -> Vec<(u64, String)> {
    let texts = deliveries.into_iter();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace("\r\n", " ");
    texts
        .map(|it| (it.connection, text(it.bytes).trim_end().to_owned()))
        .collect()
}

/// Calls a script by its hash, else with its text.
pub fn script(server: &mut Server, now: i64, connection: u64, name: &str, rest: &[&str]) -> String {
    let text = scripts::named(name).unwrap().text;
    let call = |words: [&str; 2]| -> Vec<Vec<u8>> {
        let words = words.iter().chain(&["1"]).chain(rest);
        words.map(|word| word.as_bytes().to_vec()).collect()
    };
    let hash = scripts::hash(text.as_bytes());
    let first = texts(server.command(now, connection, &call(["EVALSHA", &hash])));
    let answers = if first[0].1.starts_with("-NOSCRIPT") {
        texts(server.command(now, connection, &call(["EVAL", text])))
    } else {
        first
    };
    answers.last().unwrap().1.clone()
}

pub fn acquire(server: &mut Server, now: i64, visitor: &str) -> String {
    let expiry = (now / 1000 + 1000).to_string();
    let args = ["orders", visitor, "30000", "0", "1", &expiry, "7"];
    script(server, now, 1, "reentrant/acquire", &args)
}
