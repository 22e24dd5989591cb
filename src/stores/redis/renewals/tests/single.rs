//! Renewals at one server: what is asked, and how the answers read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

#[test]
fn all_are_renewed_by_one_call_over_one_connection() {
    let server = server(|_, _| renewed());
    let store = server.store();
    let outcomes = store.renew(&claims(3), soon());
    assert!(
        outcomes.len() == 3 && are_renewed(&outcomes),
        "{outcomes:?}"
    );
    assert_eq!(calls(&server), [("EVALSHA".to_owned(), 3)]);
    assert_eq!(server.asked()[0].keys(), ["lock-0", "lock-1", "lock-2"]);
    assert_eq!(server.connected(), 1);
    assert!(node(&store).has_renewing());
    assert!(are_renewed(&store.renew(&claims(1), soon())));
    assert_eq!(server.connected(), 1);
    assert!(store.renew(&[], soon()).is_empty());
}

#[test]
fn the_answer_names_those_that_were_not_renewed() {
    let server = server(|_, request| match request.keys() {
        [alone] if alone == "lock-0" => renewed_but(&[(1, bulk("other:7"))]),
        [_] => renewed_but(&[(1, Value::Int(0))]),
        _ => renewed_but(&[
            (1, bulk("other:7")),
            (2, Value::Int(0)),
            (4, Value::Int(500)),
            // That is none of those that were asked for.
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
fn what_came_too_late_is_asked_for_again() {
    let server = server(|call, _| if call == 0 { too_late() } else { renewed() });
    let outcomes = server.store().renew(&claims(2), soon());
    assert!(are_renewed(&outcomes), "{outcomes:?}");
    assert_eq!(sizes(&server), [2, 2]);
}

#[test]
fn a_claim_is_asked_for_so_often_and_no_more() {
    let server = server(|_, _| too_late());
    let outcomes = server.store().renew(&claims(1), soon());
    assert_eq!(why(&outcomes), "it reached the server too late");
    assert_eq!(sizes(&server).len(), ROUNDS as usize);
}

#[test]
fn nothing_is_asked_for_after_the_deadline() {
    let server = server(|_, _| renewed());
    let (store, claims) = (server.store(), claims(1));
    let outcomes = Renewals::new(&store, None, &claims, Instant::now()).finish();
    assert_eq!(why(&outcomes), "");
    assert_eq!(server.connected(), 0);
}

#[test]
fn one_call_renews_a_hundred_at_most() {
    let server = server(|_, _| renewed());
    let outcomes = server.store().renew(&claims(250), soon());
    assert!(outcomes.len() == 250 && are_renewed(&outcomes));
    assert_eq!(sizes(&server), [100, 100, 50]);
}

#[test]
fn claims_of_another_script_are_renewed_by_another_call() {
    let server = server(|_, _| renewed());
    let mut claims = claims(4);
    claims[1].kind = Kind::Token;
    claims[3].kind = Kind::Token;
    assert!(are_renewed(&server.store().renew(&claims, soon())));
    assert_eq!(sizes(&server), [2, 2]);
}

#[test]
fn the_first_call_makes_the_script_known_to_those_behind_it() {
    let server = server(|call, _| match call {
        0 | 1 => error("NOSCRIPT No matching script."),
        _ => renewed(),
    });
    let outcomes = server.store().renew(&claims(102), soon());
    assert!(are_renewed(&outcomes), "{outcomes:?}");
    let sent = calls(&server);
    let sent: Vec<_> = sent
        .iter()
        .map(|(command, size)| (&**command, *size))
        .collect();
    assert_eq!(
        sent,
        [
            ("EVALSHA", 100),
            ("EVALSHA", 2),
            ("EVAL", 100),
            ("EVALSHA", 2)
        ]
    );
}

#[test]
fn each_script_is_made_known() {
    let server = server(|_, request| match request.is("EVALSHA") {
        true => error("NOSCRIPT No matching script."),
        false => renewed(),
    });
    let mut claims = claims(4);
    claims[1].kind = Kind::Token;
    claims[3].kind = Kind::Token;
    assert!(are_renewed(&server.store().renew(&claims, soon())));
    assert_eq!(
        calls(&server)[2..],
        [("EVAL".to_owned(), 2), ("EVAL".to_owned(), 2)]
    );
}

#[test]
fn the_text_is_sent_where_evalsha_is_forbidden() {
    let server = server(|_, request| match request.is("EVALSHA") {
        true => error("NOPERM User x has no permissions to run the 'evalsha' command"),
        false => renewed(),
    });
    let store = server.store();
    assert!(are_renewed(&store.renew(&claims(1), soon())));
    assert!(are_renewed(&store.renew(&claims(1), soon())));
    let sent = calls(&server);
    let sent: Vec<_> = sent.iter().map(|(command, _)| &**command).collect();
    assert_eq!(sent, ["EVALSHA", "EVAL", "EVAL"]);
}

#[test]
fn what_is_refused_together_is_asked_for_one_by_one() {
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
fn what_was_asked_for_alone_stays_alone() {
    let server = server(|call, _| match call {
        0 => error("ERR odd"),
        1 | 2 => too_late(),
        _ => renewed(),
    });
    assert!(are_renewed(&server.store().renew(&claims(2), soon())));
    assert_eq!(sizes(&server), [2, 1, 1, 1, 1]);
}

#[test]
fn what_is_asked_for_together_does_not_join_what_is_alone() {
    let server = server(|call, _| match call {
        0 => error("ERR odd"),
        1 => too_late(),
        _ => renewed(),
    });
    assert!(are_renewed(&server.store().renew(&claims(103), soon())));
    let sizes = sizes(&server);
    assert_eq!((sizes[..2].to_vec(), sizes.len()), (vec![100, 3], 103));
    assert_eq!(sizes[102], 3);
}

#[test]
fn what_would_be_refused_again_is_not_asked_for_again() {
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

/// Why the first of two claims is not renewed, empty if it is, where a renewal needs two replicas and WAIT is answered so, and
/// the second claim is lost; `None` if the time was too short for anything.
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
fn a_renewal_counts_if_enough_replicas_have_it() {
    let told = |count| replicated(Says::Reply(Value::Int(count)), soon()).unwrap();
    assert_eq!(told(2), "");
    assert_eq!(told(1), "1 of the 2 replicas wanted have acknowledged it");
    let told = replicated(error("ERR odd"), soon()).unwrap();
    assert_eq!(told, "WAIT was refused: ERR odd");
    let mut patience = (1..10).map(|it| it * 50);
    let told = patience.find_map(|ms| replicated(Says::Nothing, within(ms)));
    assert_eq!(
        told.unwrap(),
        "whether 2 replicas have acknowledged it was not answered in time"
    );
}

#[test]
fn permits_with_ids_are_counted_one_by_one() {
    let server = server(|_, _| renewed());
    let handles = [60, 40, 1, 99, 1, 1_000, 1].map(|permits| {
        let one = claim("seats");
        let of_permits = Kind::PermitIds.rules().of_permits;
        Claim {
            kind: Kind::PermitIds,
            visitor: of_permits(&one.visitor, permits),
            ..one
        }
    });
    let outcomes = server.store().renew(&handles, soon());
    assert!(are_renewed(&outcomes));
    // Two keys each.
    assert_eq!(sizes(&server), [4, 4, 2, 2, 2]);
}
