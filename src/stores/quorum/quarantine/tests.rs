#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

const MAX: Duration = Duration::from_secs(30);

/// Seconds that exceed `MAX`.
const LONG: u64 = 3600;

fn server(run: &str, age: u64) -> Identity {
    Identity {
        run: run.into(),
        history: format!("history of {run}").into(),
        has_followed: false,
        follows: false,
        is_in_cluster: false,
        age: Duration::from_secs(age),
        remembers: false,
        asked: BootInstant::now(),
        told: BootInstant::now(),
    }
}

fn remembering(run: &str) -> Identity {
    Identity {
        remembers: true,
        ..server(run, 0)
    }
}

fn why(vote: Result<(), Quarantined>) -> Option<QuarantineReason> {
    match vote {
        Err(Quarantined::For(_, why)) => Some(why),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    }
}

#[test]
fn a_server_that_just_started_has_no_vote() {
    let membership = Membership::new(3, MAX, false);
    assert!(matches!(
        membership.admit(0, false, &server("a", 0)),
        Err(Quarantined::For(..))
    ));
    assert!(membership.admit(1, false, &server("b", LONG)).is_ok());
    // `c` has persistence now, but its persistence settings before its start are unknown.
    let vote = membership.admit(2, false, &remembering("c"));
    assert_eq!(why(vote), Some(QuarantineReason::IsNew));
    let trusting = Membership::new(3, MAX, true);
    assert!(trusting.admit(0, false, &server("a", 0)).is_ok());
}

#[test]
fn a_replaced_server_has_no_vote_even_with_trust_new_nodes() {
    let membership = Membership::new(3, MAX, true);
    assert!(membership.admit(0, false, &server("a", LONG)).is_ok());
    assert!(matches!(
        membership.admit(0, false, &server("b", LONG)),
        Err(Quarantined::For(..))
    ));
    assert!(matches!(
        membership.admit(0, false, &server("b", LONG)),
        Err(Quarantined::For(..))
    ));
    // `b` ran without persistence, so its locks stay lost even if later runs have persistence.
    for run in ["c", "d"] {
        assert!(matches!(
            membership.admit(0, false, &remembering(run)),
            Err(Quarantined::For(..))
        ));
    }
    for run in ["e", "f"] {
        assert!(membership.admit(1, false, &remembering(run)).is_ok());
    }
}

#[test]
fn one_server_has_one_vote() {
    let membership = Membership::new(3, MAX, true);
    assert!(membership.admit(0, false, &server("a", LONG)).is_ok());
    assert!(matches!(
        membership.admit(2, false, &server("a", LONG)),
        Err(Quarantined::SameAs(0))
    ));
    assert!(membership.admit(0, false, &server("a", LONG)).is_ok());
}

#[test]
fn a_former_replica_has_no_vote() {
    for (trusts, can_fail_over) in [(false, false), (true, false), (true, true)] {
        let membership = Membership::new(3, MAX, trusts);
        let promoted = Identity {
            has_followed: true,
            ..remembering("a")
        };
        let vote = membership.admit(0, can_fail_over, &promoted);
        assert_eq!(why(vote), Some(QuarantineReason::Followed));
    }
}

#[test]
fn uptime_and_persistence_do_not_count_with_failover() {
    let membership = Membership::new(3, MAX, false);
    let old = Identity {
        age: MAX * 2,
        ..remembering("a")
    };
    assert_eq!(
        why(membership.admit(0, true, &old)),
        Some(QuarantineReason::MayMove)
    );
    assert!(membership.admit(1, false, &server("b", 60)).is_ok());
    // With failover, `b` may be another server than `a`, so the persistence of `b` does not count.
    let membership = Membership::new(3, MAX, true);
    assert!(membership.admit(0, true, &remembering("a")).is_ok());
    let vote = membership.admit(0, true, &remembering("b"));
    assert_eq!(why(vote), Some(QuarantineReason::Restarted));
}

#[test]
fn a_new_replication_id_costs_the_vote() {
    let membership = Membership::new(3, MAX, true);
    assert!(membership.admit(0, false, &remembering("a")).is_ok());
    let again = Identity {
        history: "of another".into(),
        ..remembering("a")
    };
    let vote = membership.admit(0, false, &again);
    // The server may never have been a replica, so the message also names `repl-backlog-ttl` as a possible cause.
    let told = vote.as_ref().err().map(ToString::to_string);
    assert!(told.is_some_and(|told| told.contains("repl-backlog-ttl")));
    assert_eq!(why(vote), Some(QuarantineReason::ChangedId));
}

#[test]
fn a_server_that_ran_beside_the_former_one_replaced_it() {
    let membership = Membership::new(3, MAX, true);
    assert!(membership.admit(0, false, &remembering("a")).is_ok());
    let beside = Identity {
        age: Duration::from_secs(5),
        ..remembering("b")
    };
    assert_eq!(
        why(membership.admit(0, false, &beside)),
        Some(QuarantineReason::Restarted)
    );
}

#[test]
fn an_identity_that_crosses_a_later_one_is_outdated() {
    let membership = Membership::new(3, MAX, true);
    let early = server("a", 0);
    assert!(membership.admit(0, false, &server("b", 0)).is_ok());
    let vote = membership.admit(0, false, &early);
    assert!(matches!(vote, Err(Quarantined::Outdated)), "{vote:?}");
    let vote = membership.admit(0, false, &server("a", 0));
    assert_eq!(why(vote), Some(QuarantineReason::Restarted));
}

#[test]
fn a_replica_and_a_cluster_node_have_no_vote() {
    let membership = Membership::new(3, MAX, true);
    let follower = Identity {
        follows: true,
        ..server("a", LONG)
    };
    let vote = membership.admit(0, false, &follower);
    assert!(matches!(vote, Err(Quarantined::Follows)), "{vote:?}");
    let part = Identity {
        is_in_cluster: true,
        ..server("a", LONG)
    };
    let vote = membership.admit(0, false, &part);
    assert!(matches!(vote, Err(Quarantined::InCluster)), "{vote:?}");
}

#[test]
fn a_restart_keeps_the_vote_only_with_persistence_throughout() {
    let restarted = Some(QuarantineReason::Restarted);
    let after = |before: &[Identity], now: Identity| {
        let membership = Membership::new(3, MAX, true);
        for identity in before {
            assert!(membership.admit(0, false, identity).is_ok());
        }
        why(membership.admit(0, false, &now))
    };
    assert_eq!(after(&[remembering("a")], remembering("b")), None);
    assert_eq!(after(&[remembering("a")], server("b", 0)), restarted);
    assert_eq!(after(&[server("a", 0)], remembering("b")), restarted);
    let changed = [remembering("a"), server("a", 0)];
    assert_eq!(after(&changed, remembering("b")), restarted);
    let changed = [server("a", 0), remembering("a")];
    assert_eq!(after(&changed, remembering("b")), restarted);
}

#[test]
fn a_server_ran_at_moments_after_its_latest_start() {
    let moment = BootInstant::now();
    let told = moment + Duration::from_secs(5);
    let aged = |age| Identity {
        told,
        ..server("a", age)
    };
    assert!(!aged(4).ran_at(moment));
    assert!(!aged(5).ran_at(moment));
    assert!(aged(6).ran_at(moment));
}

#[test]
fn a_handle_returns_the_reason_without_a_vote() {
    let membership = Arc::new(Membership::new(3, MAX, true));
    let handle = NodeHandle::new(&membership, 0, false);
    assert!(handle.quarantined().is_none());
    handle.admit(&server("a", 0)).unwrap();
    assert!(handle.quarantined().is_none());
    assert!(handle.admit(&server("b", 0)).is_err());
    let why = handle.quarantined().unwrap().to_string();
    assert!(why.contains("restarted"), "{why}");
}
