#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod single;

use std::time::{Duration, SystemTime};

use redis::Value;

use super::*;
use crate::ground::loss::LossCause;
use crate::store::Store as _;
use crate::stores::redis::tests::stub::{Request, Says, StubServer, bulk, claim, soon, within};
use crate::stores::redis::wait_replicas::Replication;

fn claims(count: usize) -> Vec<Claim> {
    (0..count).map(|it| claim(&format!("lock-{it}"))).collect()
}

/// The reply if all claims were renewed except for `others`, which are pairs of a claim's place and its result.
fn renewed_but(others: &[(i64, Value)]) -> Says {
    let mut items = vec![now(), Value::Int(1)];
    for (place, what) in others {
        items.extend([Value::Int(*place), what.clone()]);
    }
    Says::answer(Value::Array(items))
}

fn renewed() -> Says {
    renewed_but(&[])
}

fn now() -> Value {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    Value::Int(i64::try_from(now).unwrap())
}

fn error(text: &str) -> Says {
    Says::error(text)
}

fn server(answers: impl Fn(usize, &Request) -> Says + Send + 'static) -> StubServer {
    let mut calls = 0..;
    StubServer::start(move |request| {
        let mut says = || Some(answers(calls.next()?, request));
        request.is_script().then(&mut says).flatten()
    })
}

fn why(outcomes: &[Renewal]) -> &str {
    match outcomes {
        [Renewal::Unknown(reason)] => reason,
        outcomes => panic!("{outcomes:?}"),
    }
}

/// Returns the commands that were sent, and how many claims each command renews.
fn calls(server: &StubServer) -> Vec<(String, usize)> {
    let mut asked = server.asked();
    asked.retain(Request::is_script);
    let call = |request: &Request| (request[0].clone(), request.keys().len());
    asked.iter().map(call).collect()
}

fn sizes(server: &StubServer) -> Vec<usize> {
    calls(server).into_iter().map(|(_, size)| size).collect()
}
