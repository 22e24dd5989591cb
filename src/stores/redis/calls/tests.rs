#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::ground::claim::{Kind, LockId, VisitorId};
use crate::store::{InDoubt, Store as _};
use crate::stores::redis::tests::stub::{self, Request, Says, StubServer, bulk, soon};
use crate::stores::redis::wait_replicas::Replication;

mod acquisition;
mod hand_offs;
mod refusals;
mod releases;
mod sending;
mod withdrawals;

/// A server time in the past, in ms.
const THEN: i64 = 1_700_000_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn claim_of(kind: Kind, count: u32) -> Claim {
    Claim {
        kind,
        count,
        ..stub::claim("lock")
    }
}

fn claim(count: u32) -> Claim {
    claim_of(Kind::Reentrant, count)
}

fn id_of(claim: &Claim) -> LockId {
    LockId {
        kind: claim.kind,
        name: Arc::clone(&claim.name),
    }
}

/// A server that answers scripts with these replies in turn, and then repeats the last reply.
fn answering(answers: Vec<Option<Says>>) -> StubServer {
    let mut asked = 0;
    StubServer::start(move |request| {
        if !request.is_script() {
            return None;
        }
        let answer = answers.get(asked).or(answers.last()).cloned().flatten();
        asked += 1;
        answer
    })
}

fn saying(items: Vec<Value>) -> StubServer {
    answering(vec![Some(Says::answer(Value::Array(items)))])
}

/// A client with `wait_replicas` of 1, and a server with this reply to `WAIT`.
fn unreplicated(answers: Vec<Option<Says>>, wait: Says) -> (StubServer, Arc<Redis>) {
    let mut asked = 0;
    let server = StubServer::start(move |request| {
        if request.is("WAIT") {
            return Some(wait.clone());
        }
        if !request.is_script() {
            return None;
        }
        let answer = answers.get(asked).or(answers.last()).cloned().flatten();
        asked += 1;
        answer
    });
    let store = server.store_with(|settings| {
        settings.replication = Some(Replication {
            replicas: 1,
            timeout: ms(100),
        });
    });
    (server, store)
}

fn none_has_it() -> Says {
    Says::reply(Value::Int(0))
}

fn calls(server: &StubServer) -> Vec<Request> {
    let asked = server.asked();
    asked.into_iter().filter(Request::is_script).collect()
}

fn cut() -> Option<Says> {
    Some(Says::cut())
}

fn nothing() -> Option<Says> {
    Some(Says::nothing())
}

fn until(in_doubt: &InDoubt) -> i64 {
    in_doubt.not_after(0).unwrap()
}
