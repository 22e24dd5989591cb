//! TLS with several servers: the checks of one address apply to every other address.

use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error};

use crate::backends::{Grants, KEPT, all_works, is_renewed, is_woken, timed};
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{Access, Certificates, Cluster, Sentinels};

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(60);

fn encrypted(certificates: &Certificates) -> Cluster {
    let access = Access {
        certificates: Some(certificates),
        ..Access::default()
    };
    Cluster::with(false, access, &[])
}

/// A TLS server that refuses every connection of the client for its certificate, at `port`.
fn is_refused(open: impl FnOnce(Builder) -> Client) {
    let (took, result) = timed(|| {
        let client = open(Client::builder().command_timeout(Duration::from_secs(2)));
        client.lock("orders").try_lock()
    });
    let error = result.unwrap_err();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(!matches!(error, Error::Unknown { .. }), "{error:?}");
    assert!(
        error.to_string().to_lowercase().contains("certificate"),
        "{error}"
    );
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_cluster_may_talk_tls() {
    let certificates = Certificates::new();
    let cluster = encrypted(&certificates);
    let open = |builder: Builder| {
        let builder = builder.ca_certificate(certificates.authority_pem());
        builder.cluster(cluster.urls()).unwrap()
    };
    let client = open(Client::builder().watchdog_timeout(KEPT));
    let (holder, waiter) = (
        open(Client::builder().watchdog_timeout(LONG)),
        open(Client::builder().watchdog_timeout(LONG)),
    );
    let kept: Vec<_> = (0..3)
        .map(|node| client.lock(&cluster.name_at(node, "kept")).guard().unwrap())
        .collect();
    for node in 0..3 {
        let name = cluster.name_at(node, "orders");
        all_works(&client.lock(&name));
        is_woken(&holder.lock(&name), &waiter.lock(&name), || {});
    }
    let name = cluster.name_at(0, "moves");
    let guard = client.lock(&name).guard().unwrap();
    cluster.migrate(&name, 1);
    is_renewed(&guard);
    guard.unlock().unwrap();
    for guard in kept {
        is_renewed(&guard);
        guard.unlock().unwrap();
    }
    let untrusted = Certificates::new();
    is_refused(|builder| {
        let builder = builder.ca_certificate(untrusted.authority_pem());
        builder.cluster(cluster.urls()).unwrap()
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn sentinels_and_master_may_talk_tls() {
    let certificates = Certificates::new();
    let authority = certificates.authority_pem();
    let set = Sentinels::options().certificates(certificates).start();
    let client = Client::builder()
        .watchdog_timeout(KEPT)
        .ca_certificate(authority)
        .sentinel(NAME, set.urls())
        .unwrap();
    let lock = client.lock("orders");
    all_works(&lock);
    let (grants, over) = Grants::during(&lock, || {
        set.lose_master();
        Instant::now()
    });
    let first = grants.first_after(over);
    assert!(first < Duration::from_secs(5), "{first:?}");
    let untrusted = Certificates::new();
    is_refused(|builder| {
        let builder = builder.ca_certificate(untrusted.authority_pem());
        builder.sentinel(NAME, set.urls()).unwrap()
    });
}
