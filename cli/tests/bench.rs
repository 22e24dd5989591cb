//! `bench`.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{RedisServer, eventually, ms};
use crate::{at, ends_with, redlatch, stderr, stdout};

#[test]
fn bench_measures_and_leaves_no_key() {
    let server = RedisServer::start();
    let output = at(
        &server,
        &["bench", "--json", "--seconds", "4", "--threads", "3"],
    );
    ends_with(&output, 0);
    let printed = stdout(&output);
    let lines: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &lines {
        crate::schema::assert_matches("bench", line);
        let (median, most) = (line["median_us"].as_u64(), line["max_us"].as_u64());
        assert!(median <= line["p99_us"].as_u64() && line["p99_us"].as_u64() <= most);
        assert!(median > Some(0), "{line}");
    }
    let measured = lines
        .iter()
        .map(|it| (it["measured"].as_str().unwrap(), &it["threads"]));
    assert_eq!(
        measured.collect::<Vec<_>>(),
        [
            ("round_trip", &1.into()),
            ("pair", &1.into()),
            ("hand_off", &2.into()),
            ("threads", &3.into())
        ]
    );
    assert_eq!(lines[0]["round_trips"], 1.0);
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn bench_respects_the_rate_limit() {
    let server = RedisServer::start();
    let args = ["bench", "--json", "--seconds", "4", "--max-rate", "20"];
    let output = at(&server, &args);
    ends_with(&output, 0);
    for line in stdout(&output).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        // Each measurement has one second, which allows 20 rounds. Each of four threads starts its first round at once.
        assert!(line["count"].as_u64() <= Some(24), "{line}");
    }
    let text = at(&server, &["bench", "--seconds", "4"]);
    ends_with(&text, 0);
    for word in ["round trip", "hand-off", "4 threads", "ROUND TRIPS"] {
        assert!(stdout(&text).contains(word), "{}", stdout(&text));
    }
}

#[test]
fn an_interrupted_bench_leaves_no_key() {
    let server = RedisServer::start();
    // One interrupt comes during the pairs, the other one during the hand-offs, after a client has subscribed.
    let pairs = || server.eval_count() > 50;
    let hand_offs = || match server.cmd(&["PUBSUB", "CHANNELS"]) {
        redis::Value::Array(channels) => !channels.is_empty(),
        other => panic!("{other:?}"),
    };
    let moments: [&dyn Fn() -> bool; 2] = [&pairs, &hand_offs];
    for is_there in moments {
        let mut command = redlatch();
        command.env("REDLATCH_URL", server.url());
        command.args(["bench", "--seconds", "12"]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        eventually(ms(60_000), "the measurement has begun", is_there);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        ends_with(&child.wait_with_output().unwrap(), 128 + 2);
        assert_eq!(server.int(&["DBSIZE"]), 0);
    }
}

#[test]
fn bench_without_a_server_fails_in_one_line() {
    let gone = format!("redis://127.0.0.1:{}", crate::support::free_port());
    let mut command = redlatch();
    command.env("REDLATCH_URL", gone).args(["bench", "--json"]);
    let output = command.output().unwrap();
    ends_with(&output, 3);
    let error: Value = serde_json::from_str(stderr(&output).trim()).unwrap();
    crate::schema::assert_matches("error", &error);
    assert_eq!(error["error"]["kind"], "unreachable");
}
