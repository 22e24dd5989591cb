#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;

use super::*;
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::quarantine::Membership;

#[test]
fn the_reply_lists_claims_that_were_not_renewed() {
    let server = server(|_, request| match request.keys() {
        [alone] if alone == "lock-0" => renewed_but(&[(1, bulk("other:7"))]),
        [_] => renewed_but(&[(1, Value::Int(0))]),
        _ => renewed_but(&[
            (1, bulk("other:7")),
            (2, Value::Int(0)),
            (4, Value::Int(500)),
            // No claim has one of the following indices.
            (0, bulk("odd")),
            (9, bulk("odd")),
        ]),
    });
    let outcomes = server.store().renew(&claims(4), soon());
    assert!(
        matches!(
            &outcomes[..],
            [
                Renewal::Lost(LossCause::HeldBy(other)),
                Renewal::Lost(LossCause::Gone),
                Renewal::Renewed,
                Renewal::RenewedFor(life),
            ] if other == "other:7" && *life == Duration::from_millis(500)
        ),
        "{outcomes:?}"
    );
}

#[test]
fn nothing_is_sent_after_the_deadline() {
    let server = server(|_, _| renewed());
    let (store, claims) = (server.store(), claims(1));
    let outcomes = Renewals::new(&store, None, &claims, Instant::now()).finish();
    assert_eq!(why(&outcomes), "");
    assert_eq!(server.connected(), 0);
}

#[test]
fn a_refused_batch_is_sent_again_one_by_one() {
    for text in ["ERR odd", "TRYAGAIN Multiple keys request"] {
        let server =
            server(
                move |_, request| match request.keys().iter().any(|key| key == "lock-1") {
                    true => error(text),
                    false => renewed(),
                },
            );
        let outcomes = server.store().renew(&claims(3), soon());
        assert!(
            matches!(
                &outcomes[..],
                [Renewal::Renewed, Renewal::Unknown(reason), Renewal::Renewed]
                    if text.ends_with(&**reason)
            ),
            "{outcomes:?}"
        );
        assert_eq!(sizes(&server), [3, 1, 1, 1]);
    }
}

#[test]
fn permanent_refusals_are_not_retried() {
    for (text, count) in [("ERR odd", 1), ("BUSY Redis is busy running a script.", 2)] {
        let server = server(move |_, _| error(text));
        let outcomes = server.store().renew(&claims(count), soon());
        assert!(
            matches!(&outcomes[0], Renewal::Unknown(reason) if reason == text),
            "{outcomes:?}"
        );
        assert_eq!(sizes(&server), [count]);
    }
}

/// Renews two claims that need two replicas. The second claim is lost. Returns why the first claim is not renewed, or an
/// empty text if it is renewed. `None` if the deadline was too short for a reply.
fn replicated(waited: Says, deadline: Instant) -> Option<String> {
    let server = StubServer::start(move |request| match request.is("WAIT") {
        true => Some(waited.clone()),
        false => request.is_script().then(|| {
            let place = i64::try_from(request.keys().len()).unwrap();
            renewed_but(&[(place, Value::Int(0))])
        }),
    });
    let store = server.store_with(|settings| {
        settings.replication = Some(Replication {
            replicas: 2,
            timeout: Duration::from_millis(20),
        });
    });
    let outcomes = store.renew(&claims(2), deadline);
    match &outcomes[..] {
        [Renewal::Renewed, Renewal::Lost(LossCause::Gone)] => Some(String::new()),
        [Renewal::Unknown(why), Renewal::Lost(LossCause::Gone)] => Some(why.clone()),
        [Renewal::Unknown(why), Renewal::Unknown(_)] => {
            Some(why.clone()).filter(|_| why.contains("replicas"))
        }
        outcomes => panic!("{outcomes:?}"),
    }
}

#[test]
fn a_renewal_counts_if_enough_replicas_acknowledge() {
    let told = |count| replicated(Says::reply(Value::Int(count)), soon()).unwrap();
    assert_eq!(told(2), "");
    assert_eq!(told(1), "1 of 2 replicas acknowledged it");
    let told = replicated(error("ERR odd"), soon()).unwrap();
    assert_eq!(told, "WAIT was refused: ERR odd");
    let mut patience = (1..10).map(|it| it * 50);
    let told = patience.find_map(|ms| replicated(Says::nothing(), within(ms)));
    assert_eq!(told.unwrap(), "WAIT for 2 replicas got no reply in time");
}

#[test]
fn a_quorum_at_maxclients_renews_on_a_connection_of_requests() {
    let server = StubServer::start(|_| None);
    let node = server.store().as_node().unwrap();
    let membership = Arc::new(Membership::new(1, Duration::from_secs(10), true));
    let handle = NodeHandle::new(&membership, 0, false);
    let connect = |purpose| node.connect(&handle, purpose, soon());
    connect(Purpose::Request).unwrap().unwrap();
    let in_use = node.server.pool.borrow(soon()).unwrap();
    server.answer(|_| Some(Says::error("max number of clients reached")));
    thread::scope(|scope| {
        let renewal = scope.spawn(|| connect(Purpose::Renewal));
        thread::sleep(Duration::from_millis(100));
        node.server.pool.give_back(in_use, &Ok(()));
        renewal.join().unwrap().unwrap().unwrap();
    });
}
