//! Tests of the constructors, which do not connect.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::ground::claim::Kind;
use crate::store::Store;
use crate::stores::redis::tests::stub::settings;

fn urls(urls: &[&str]) -> Vec<String> {
    urls.iter().map(|url| (*url).to_owned()).collect()
}

/// Returns why a store cannot be opened. Empty if it can be opened.
fn refusal(opened: Result<Redis>) -> String {
    opened
        .err()
        .map_or_else(String::new, |error| error.to_string())
}

#[test]
fn a_master_and_its_replicas_share_one_database() {
    let open = |addresses: &[&str]| Redis::replicas(&urls(addresses), &settings());
    let same = open(&["redis://a/2", "redis://b/2"]).unwrap();
    assert!(same.facts.area.contains('2'), "{:?}", same.facts.area);
    let refused = refusal(open(&["redis://a/2", "redis://b/3"]));
    assert!(refused.contains("several databases"), "{refused}");
    assert!(refusal(open(&[])).contains("there is none"));
}

#[test]
fn a_sentinel_has_a_master_and_no_database() {
    let open = |name, url| refusal(Redis::sentinel(name, &urls(&[url]), &settings()));
    assert_eq!(open("main", "redis://a"), "");
    assert!(open("main", "redis://a/1").contains("no databases"));
    assert!(open("", "redis://a").contains("it is empty"));
}

#[test]
fn a_cluster_has_one_database() {
    let open = |given: &[&str]| refusal(Redis::cluster(&urls(given), &settings()));
    assert_eq!(open(&["redis://a/1", "redis://b/1"]), "");
    assert!(open(&["redis://a/1", "redis://b"]).contains("several databases"));
}

#[test]
fn a_repeated_address_counts_once() {
    let given = urls(&["redis://a:1", "redis://b:2", "redis://a:1"]);
    let cluster = Redis::cluster(&given, &settings()).unwrap();
    assert_eq!(&*cluster.node(None), "the cluster of a:1, b:2");
}

#[cfg(feature = "tls")]
#[test]
fn either_all_addresses_use_tls_or_none() {
    let open = |addresses: &[&str]| refusal(Redis::cluster(&urls(addresses), &settings()));
    assert_eq!(open(&["redis://a", "redis://b"]), "");
    assert_eq!(open(&["rediss://a", "rediss://b"]), "");
    for mixed in [["rediss://a", "redis://b"], ["redis://a", "rediss://b"]] {
        assert!(open(&mixed).contains("some use TLS"), "{mixed:?}");
    }
}

#[test]
fn only_token_locks_are_polled() {
    let store = Redis::open("redis://a", &settings()).unwrap();
    let is_polled = store.facts.is_polled;
    assert!(is_polled(Kind::Token) && !is_polled(Kind::Reentrant));
}
