//! Operations at a server that answers as told.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::{Duration, Instant};

use super::*;
use crate::ground::claim::{Kind, VisitorId};
use crate::store::{Refusal, Store as _};
use crate::stores::redis::stub::{Says, StubServer, bulk};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(3)
}

fn claim(count: u32) -> Claim {
    Claim {
        kind: Kind::Reentrant,
        name: "lock".into(),
        visitor: VisitorId::new("client", 1, 1),
        count,
        lease: Duration::from_secs(30),
        inside: None,
        queueing: Default::default(),
    }
}

#[test]
fn a_refused_acquisition_tells_what_the_server_says_of_the_holder() {
    let server = StubServer::start(|request| {
        if !request.is_script() {
            return None;
        }
        let items = vec![
            Value::Int(0),
            Value::Int(1_700_000_000_000),
            Value::Int(250),
            bulk("other:7"),
            bulk("memo"),
            Value::Int(40),
        ];
        Some(Says::Answer(Value::Array(items)))
    });
    let answer = server.store().acquire(&claim(0), soon()).unwrap();
    let Outcome::Refused(refusal) = answer else {
        panic!("{answer:?}");
    };
    let Refusal {
        retry_after,
        holder,
        memo,
        recheck_after,
        leftover,
        ..
    } = refusal;
    assert_eq!(retry_after, Some(Duration::from_millis(250)));
    assert_eq!(holder.as_deref(), Some("other:7"));
    assert_eq!(memo.as_deref(), Some("memo"));
    assert_eq!(recheck_after, Some(Duration::from_millis(40)));
    assert!(leftover.is_none());
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].keys()[0], "lock");
}
