mod looks;
mod rights;

use super::*;
use crate::store::Severity;
use crate::stores::redis::errors::missing_in;
use crate::stores::redis::keys::CHANNEL;
use crate::stores::redis::random_replies::{ERRORS, altered, changed, draws};
use crate::stores::redis::transport::plain;

const ALONE: ClientSettings = ClientSettings {
    is_cluster: false,
    can_fail_over: false,
    wait_replicas: 0,
};

fn found_with(
    info: &str,
    settings: &[(&'static str, &str)],
    client: ClientSettings,
) -> Vec<String> {
    let told = settings.iter();
    let told = told.map(|(name, value)| (*name, (*value).to_owned()));
    let mut found = Findings::about(&"node".into());
    settings::find(&mut found, &Info(info), &told.collect(), client);
    let bad = found.all.iter().filter(|it| it.severity > Severity::Ok);
    let mut said = Vec::new();
    for it in bad {
        assert!(!it.advice.is_empty(), "{it}");
        said.push(format!("{} {}", it.code, it.severity));
    }
    said
}

const QUIET: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\
                     aof_enabled:1\r\nconnected_slaves:0\r\n";
const ALWAYS: (&str, &str) = ("appendfsync", "always");

#[test]
fn each_risk_is_found() {
    assert_eq!(found_with(QUIET, &[ALWAYS], ALONE), Vec::<String>::new());
    let with = |change: &[(&str, &str)]| {
        let mut info = QUIET.to_owned();
        for (before, after) in change {
            assert!(info.contains(before) || before.is_empty(), "{before}");
            info = match before.is_empty() {
                true => format!("{info}{after}\r\n"),
                false => info.replace(before, after),
            };
        }
        info
    };
    let lru = (
        "maxmemory_policy:noeviction",
        "maxmemory_policy:volatile-lru",
    );
    let bounded = ("maxmemory:0", "maxmemory:100");
    let two = ("connected_slaves:0", "connected_slaves:2");
    let good = ("", "min_slaves_good_slaves:2");
    let least = ("min-replicas-to-write", "1");
    let waiting = |wait_replicas| ClientSettings {
        wait_replicas,
        ..ALONE
    };
    let followed = ClientSettings {
        can_fail_over: true,
        ..ALONE
    };
    let clustered = ClientSettings {
        is_cluster: true,
        ..followed
    };
    type Replaced = [(&'static str, &'static str)];
    type Settings<'a> = &'a [(&'static str, &'a str)];
    type Row<'a> = (&'a Replaced, Settings<'a>, ClientSettings, &'a [&'a str]);
    let rows: [Row<'_>; 27] = [
        (
            &[("7.0.15", "4.0.1")],
            &[ALWAYS],
            ALONE,
            &["version danger"],
        ),
        (
            &[("redis_version", "x")],
            &[ALWAYS],
            ALONE,
            &["version note"],
        ),
        (&[("", "valkey_version:8.0.1")], &[ALWAYS], ALONE, &[]),
        (
            &[("", "dragonfly_version:df-1")],
            &[ALWAYS],
            ALONE,
            &["version note"],
        ),
        (
            &[("role:master", "role:slave")],
            &[ALWAYS],
            ALONE,
            &["role danger"],
        ),
        (
            &[("", "cluster_enabled:1")],
            &[ALWAYS],
            ALONE,
            &["cluster-state danger"],
        ),
        (&[lru], &[ALWAYS], ALONE, &[]),
        (&[lru, bounded], &[ALWAYS], ALONE, &["eviction danger"]),
        (&[bounded, ("", "used_memory:89")], &[ALWAYS], ALONE, &[]),
        (
            &[bounded, ("", "used_memory:90")],
            &[ALWAYS],
            ALONE,
            &["eviction note"],
        ),
        (
            &[bounded, ("", "used_memory:100")],
            &[ALWAYS],
            ALONE,
            &["eviction danger"],
        ),
        (
            &[],
            &[("appendfsync", "everysec")],
            ALONE,
            &["persistence note"],
        ),
        (&[], &[], ALONE, &["persistence note"]),
        (
            &[("aof_enabled:1", "aof_enabled:0")],
            &[("save", "3600 1")],
            ALONE,
            &["persistence note"],
        ),
        (
            &[("", "rdb_last_bgsave_status:err")],
            &[ALWAYS],
            ALONE,
            &["persistence danger"],
        ),
        (
            &[("", "rdb_last_bgsave_status:err")],
            &[ALWAYS, ("stop-writes-on-bgsave-error", "no")],
            ALONE,
            &[],
        ),
        (
            &[],
            &[
                ALWAYS,
                ("save", "3600 1"),
                ("stop-writes-on-bgsave-error", "yes"),
            ],
            ALONE,
            &[],
        ),
        // A failed snapshot stops writes only if further snapshots are configured.
        (
            &[("", "rdb_last_bgsave_status:err")],
            &[ALWAYS, ("save", "")],
            ALONE,
            &[],
        ),
        (
            &[("", "rdb_last_bgsave_status:err")],
            &[
                ALWAYS,
                ("save", "3600 1"),
                ("stop-writes-on-bgsave-error", "yes"),
            ],
            ALONE,
            &["persistence danger"],
        ),
        (
            &[("", "aof_last_write_status:err")],
            &[ALWAYS],
            ALONE,
            &["persistence danger"],
        ),
        (&[two], &[ALWAYS], waiting(2), &["replicas danger"]),
        (
            &[two],
            &[ALWAYS],
            ClientSettings {
                wait_replicas: 2,
                ..clustered
            },
            &["replicas note"],
        ),
        (&[two, good], &[ALWAYS, least], waiting(2), &[]),
        (
            &[two, good],
            &[ALWAYS, least],
            waiting(1),
            &["replicas note"],
        ),
        (
            &[two, good],
            &[ALWAYS, ("min-replicas-to-write", "3")],
            waiting(2),
            &["replicas danger"],
        ),
        (&[], &[ALWAYS], waiting(1), &["replicas danger"]),
        (&[], &[ALWAYS], followed, &["replicas note"]),
    ];
    for (change, settings, client, expected) in rows {
        assert_eq!(
            found_with(&with(change), settings, client),
            expected,
            "{change:?}"
        );
    }
}

fn found_in(cluster_info: &str) -> Severity {
    let mut found = Findings::about(&"node".into());
    settings::find_cluster_state(&mut found, cluster_info);
    found.all[0].severity
}

#[test]
fn unserved_slots_are_found() {
    let of = |state: &str, ok: u32, pfail: u32| {
        let info = format!(
            "cluster_state:{state}\r\ncluster_slots_ok:{ok}\r\ncluster_slots_pfail:{pfail}\r\n"
        );
        found_in(&info)
    };
    assert_eq!(of("ok", 16_384, 0), Severity::Ok);
    assert_eq!(of("ok", 16_383, 1), Severity::Note);
    assert_eq!(of("ok", 16_383, 0), Severity::Danger);
    assert_eq!(of("fail", 16_384, 0), Severity::Danger);
    assert_eq!(found_in("cluster_state:ok\r\n"), Severity::Ok);
}

#[test]
fn random_settings_and_refusals_are_read() {
    let info = b"redis_version:4.0.1\r\nrole:slave\r\nmaxmemory:100\r\nmaxmemory_policy:volatile-lru\r\nconnected_slaves:2\r\n";
    draws("preflight", |draw| {
        let text = changed(draw, &[info]);
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(found_with(&text, &[], ALONE).len() <= 6, "{text}");
        found_in(&text);
        let text = changed(draw, &ERRORS);
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(plain(&text).len() <= text.len());
        let missing = missing_in(Err(CallError::Server(text)), "orders", CHANNEL);
        assert!(missing.iter().all(|right| right.starts_with(['+', '~'])));
        let refused = altered(draw, &[b"*3\r\n$4\r\nhget\r\n$1\r\n~\r\n$1\r\n&\r\n"]);
        drop(missing_in(Ok(refused), "orders", CHANNEL));
    });
}
