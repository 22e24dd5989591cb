//! Renewals in a cluster.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::stores::redis::keys;
use crate::stores::redis::tests::stub::cluster::{StubCluster, cluster_of};
use crate::stores::redis::topology::cluster::Shard;

/// A cluster of two whose servers say this to scripts, of which each call has its number at its server.
fn cluster(
    answers: impl Fn(usize, usize) -> Says + Send + Sync + 'static,
) -> (StubCluster, Arc<Redis>) {
    let calls = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let cluster = StubCluster::start(2, move |server, request| {
        let mut says = || answers(server, calls[server].fetch_add(1, Ordering::Relaxed));
        request.is_script().then(&mut says)
    });
    let store = cluster.store();
    (cluster, store)
}

/// Says this to scripts, of which each call has its number.
fn scripts(
    answers: impl Fn(usize) -> Says + Send + 'static,
) -> impl FnMut(&Request) -> Option<Says> + Send + 'static {
    let mut calls = 0..;
    move |request| {
        let mut says = || calls.next().map(&answers);
        request.is_script().then(&mut says).flatten()
    }
}

/// The claims of locks at these servers.
fn at(cluster: &StubCluster, servers: &[usize]) -> Vec<Claim> {
    let names = servers.iter().enumerate();
    names
        .map(|(nth, server)| claim(&cluster.name(*server, nth)))
        .collect()
}

fn shard(store: &Redis, claim: &Claim) -> Arc<Shard> {
    cluster_of(store).present(keys::slot(&claim.name)).unwrap()
}

fn learn(store: &Redis) {
    cluster_of(store).refresh(soon()).unwrap();
}

fn moved(kind: &str, claim: &Claim, to: &str) -> Says {
    error(&format!("{kind} {} {to}", keys::slot(&claim.name)))
}

#[test]
fn each_server_renews_its_own() {
    let (cluster, store) = cluster(|server, _| match server {
        0 => renewed_but(&[]),
        _ => Says::Later(Duration::from_millis(50), Box::new(renewed())),
    });
    let claims = at(&cluster, &[0, 1, 0, 1]);
    // Nobody knows where they are as yet.
    let outcomes = store.renew(&claims, within(1500));
    assert!(
        outcomes.len() == 4 && are_renewed(&outcomes),
        "{outcomes:?}"
    );
    for (index, server) in cluster.servers.iter().enumerate() {
        // One call for each slot.
        assert_eq!(sizes(server), [1, 1]);
        let asked = server.asked();
        let mut keys = asked
            .iter()
            .filter(|it| it.is_script())
            .flat_map(|it| it.keys());
        assert!(keys.all(|key| *key == *claims[index].name || *key == *claims[index + 2].name));
    }
}

#[test]
fn claims_of_one_slot_are_renewed_together() {
    let (cluster, store) = cluster(|_, _| renewed());
    let name = cluster.name(0, 0);
    let names = ["a", "b"].map(|it| format!("{{{name}}}:{it}"));
    let claims = [
        claim(&names[0]),
        claim(&cluster.name(0, 1)),
        claim(&names[1]),
    ];
    assert!(are_renewed(&store.renew(&claims, soon())));
    assert_eq!(sizes(&cluster.servers[0]), [2, 1]);
}

#[test]
fn only_what_is_open_is_asked_for_again() {
    let (cluster, store) = cluster(|server, call| match (server, call) {
        (1, 0) => too_late(),
        _ => renewed(),
    });
    let claims = at(&cluster, &[0, 1]);
    let outcomes = store.renew(&claims, soon());
    assert!(are_renewed(&outcomes), "{outcomes:?}");
    let sizes = [0, 1].map(|server| sizes(&cluster.servers[server]).len());
    assert_eq!(sizes, [1, 2]);
}

#[test]
fn a_slot_on_the_move_is_asked_for_where_it_goes() {
    let (cluster, store) = cluster(|_, _| renewed());
    let claims = at(&cluster, &[0]);
    let asked = moved("ASK", &claims[0], &cluster.servers[1].address());
    cluster.answer(0, scripts(move |_| asked.clone()));
    // There it is too late at first, and then the script is not known.
    cluster.answer(
        1,
        scripts(|call| match call {
            0 => too_late(),
            1 => error("NOSCRIPT No matching script."),
            _ => renewed(),
        }),
    );
    let outcomes = store.renew(&claims, soon());
    assert!(are_renewed(&outcomes), "{outcomes:?}");
    assert_eq!(sizes(&cluster.servers[0]), [1]);
    let there = cluster.servers[1].asked();
    let is_renewal = |it: &&Request| it.is("ASKING") || it.is_script();
    let there: Vec<_> = there.iter().filter(is_renewal).map(|it| &*it[0]).collect();
    assert_eq!(
        there,
        ["ASKING", "EVALSHA", "ASKING", "EVALSHA", "ASKING", "EVAL"]
    );
}

#[test]
fn what_is_asked_for_on_the_move_has_a_request_of_its_own() {
    let (cluster, store) = cluster(|_, _| renewed());
    let claims = at(&cluster, &[0, 1]);
    let asked = moved("ASK", &claims[0], &cluster.servers[1].address());
    cluster.answer(0, scripts(move |_| asked.clone()));
    // So that both are asked for there in the second round.
    cluster.answer(
        1,
        scripts(|call| match call {
            0 => too_late(),
            _ => renewed(),
        }),
    );
    let outcomes = store.renew(&claims, soon());
    assert!(are_renewed(&outcomes), "{outcomes:?}");
    let there = cluster.servers[1].asked();
    let count = |words| there.iter().filter(|it| it.is(words)).count();
    assert_eq!((count("ASKING"), count("EVALSHA")), (1, 3));
}

#[test]
fn a_slot_that_went_elsewhere_is_asked_for_there_from_then_on() {
    let (cluster, store) = cluster(|_, _| renewed());
    let claims = at(&cluster, &[0]);
    learn(&store);
    let there = cluster.servers[1].address();
    let redirected = moved("MOVED", &claims[0], &there);
    cluster.answer(0, scripts(move |_| redirected.clone()));
    let before = shard(&store, &claims[0]);
    assert!(are_renewed(&store.renew(&claims, soon())));
    let after = shard(&store, &claims[0]);
    assert_eq!(*after.address.node, *there);
    assert!(before.is_doubtful() && !after.is_doubtful());
    let asked = cluster.servers[1].asked();
    assert!(!asked.iter().any(|it| it.is("ASKING")), "{asked:?}");
    assert_eq!(sizes(&cluster.servers[1]), [1]);
}

#[test]
fn a_server_that_was_not_reached_is_asked_again() {
    let (cluster, store) = cluster(|_, _| renewed());
    learn(&store);
    let claims = at(&cluster, &[0, 1]);
    let mut is_first = true;
    let mut answers = scripts(|_| renewed());
    cluster.answer(0, move |request| {
        match request.is("TIME") && std::mem::take(&mut is_first) {
            true => Says::error("LOADING Redis is loading the dataset in memory"),
            false => answers(request),
        }
    });
    let outcomes = store.renew(&claims, soon());
    assert!(are_renewed(&outcomes), "{outcomes:?}");
    let [lost, sound] = [0, 1].map(|it| shard(&store, &claims[it]).is_doubtful());
    // In doubt, the map is asked for anew, unless that was a moment ago.
    let maps = cluster.got(|it| it.is("CLUSTER SLOTS")).len();
    assert!((lost || maps > 1) && !sound, "{maps}");
}

#[test]
fn those_at_a_server_in_doubt_are_asked_for_last() {
    let (cluster, store) = cluster(|_, _| renewed());
    learn(&store);
    let claims = at(&cluster, &[0, 1]);
    shard(&store, &claims[0]).suspect();
    let begun = Instant::now();
    // Else it is not asked for the map so soon.
    std::thread::sleep(Duration::from_millis(100));
    assert!(are_renewed(&store.renew(&claims, soon())));
    let log = cluster.log();
    let since = log.iter().filter(|(at, ..)| *at > begun);
    let steps = since.filter(|(.., it)| it.is_script() || it.is("CLUSTER SLOTS"));
    let steps: Vec<_> = steps
        .map(|(_, server, it)| (*server, it.is_script()))
        .collect();
    assert_eq!(
        (steps[0], steps[1].1, steps[2]),
        ((1, true), false, (0, true))
    );
    assert_eq!(steps.len(), 3);
}

#[test]
fn those_with_a_connection_are_asked_for_first() {
    let (cluster, store) = cluster(|_, _| renewed());
    learn(&store);
    let claims = at(&cluster, &[0, 1]);
    assert!(are_renewed(&store.renew(&claims[1..], soon())));
    let mut renewals = Renewals::new(&store, None, &claims, soon());
    renewals.send(true);
    let sent: Vec<_> = renewals.sent.iter().map(|one| one.batch.part(0)).collect();
    assert_eq!(sent, [[1], [0]]);
}

/// How long it takes to send to two servers that say nothing while it is connected to them, where there is so much time.
fn time_to_be_sent(all: Duration) -> Duration {
    let (cluster, store) = cluster(|_, _| renewed());
    learn(&store);
    let claims = at(&cluster, &[0, 1]);
    for server in 0..2 {
        let silent = |request: &Request| request.is("TIME").then_some(Says::Nothing);
        cluster.answer(server, silent);
    }
    let begun = Instant::now();
    let mut renewals = Renewals::new(&store, None, &claims, begun + all);
    renewals.send(true);
    assert_eq!(renewals.open.len(), 2);
    begun.elapsed()
}

#[test]
fn each_server_has_its_share_of_the_time_to_connect() {
    let all = Duration::from_millis(600);
    let has_rest = || {
        let took = time_to_be_sent(all);
        // A third for each, and one for reading.
        assert!(took >= all * 2 / 3, "{took:?}");
        took < all
    };
    // A busy machine may take it.
    assert!((0..5).any(|_| has_rest()));
}

#[test]
fn a_claim_without_a_server_is_not_renewed() {
    let (cluster, store) = cluster(|_, _| renewed());
    let claims = at(&cluster, &[0]);
    for server in 0..2 {
        let refuse = |request: &Request| request.is("CLUSTER").then(|| error("ERR odd"));
        cluster.answer(server, refuse);
    }
    let outcomes = store.renew(&claims, soon());
    assert_eq!(why(&outcomes), "no node is known to serve its slot");
}
