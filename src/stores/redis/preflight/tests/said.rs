//! The words of each finding, and the bounds at which they change.

use super::*;

/// What is said of a server under this subject.
fn said(code: &str, info: &str, told: &[(&'static str, &str)], place: Place) -> Vec<String> {
    let mut settings = Settings::default();
    for (name, value) in told {
        settings.tell(name, (*value).to_owned());
    }
    let found = settings::findings(&"node".into(), info, &settings, place);
    let of_code = found.iter().filter(|it| it.code == code);
    of_code
        .map(|it| format!("{}: {}", it.severity, it.message))
        .collect()
}

#[test]
fn the_oldest_version_will_do() {
    let of = |info: &str| said("version", info, &[], ALONE);
    assert_eq!(of("redis_version:6.2.0\r\n"), ["ok: Redis 6.2.0"]);
    assert_eq!(of("redis_version:10.0.0\r\n"), ["ok: Redis 10.0.0"]);
    for version in ["6.0.20", "5.0.0", "4.9.9"] {
        let old = format!("danger: its version is {version}; locks need Redis 6.2 or later");
        assert_eq!(of(&format!("redis_version:{version}\r\n")), [old]);
    }
    assert_eq!(of("redis_version:x\r\n"), ["ok: Redis x"]);
    assert_eq!(
        of("valkey_version:8\r\nredis_version:4\r\n"),
        ["ok: Valkey 8"]
    );
    let strange = "note: it is Garnet 1, with which these locks were not tested";
    assert_eq!(of("garnet_version:1\r\n"), [strange]);
}

#[test]
fn a_replica_has_its_say_at_its_master() {
    let place = Place {
        can_fail_over: true,
        ..ALONE
    };
    for (role, count) in [("", 1), ("role:master\r\n", 1), ("role:slave\r\n", 0)] {
        let info = format!("{role}connected_slaves:0\r\n");
        assert_eq!(said("replicas", &info, &[], place).len(), count, "{role}");
    }
    assert!(said("replicas", "role:master\r\n", &[], place).is_empty());
}

#[test]
fn memory_is_told_in_parts_of_the_limit() {
    let of = |info: &str| said("eviction", info, &[], ALONE);
    assert!(of("maxmemory:5\r\n").is_empty());
    assert!(of("maxmemory_policy:noeviction\r\n").is_empty());
    let none = "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n";
    assert_eq!(of(none), ["ok: maxmemory is 0, so nothing is evicted"]);
    let limit = "maxmemory:200\r\nmaxmemory_policy:noeviction\r\nused_memory:";
    for (used, words) in [
        (179, "ok: maxmemory-policy is noeviction, memory 89 % full"),
        (
            180,
            "note: its memory is 90 % full; at 100 % it grants no locks",
        ),
        (
            199,
            "note: its memory is 99 % full; at 100 % it grants no locks",
        ),
        (
            200,
            "danger: its memory is full (100 % of maxmemory), so it grants no locks",
        ),
    ] {
        assert_eq!(of(&format!("{limit}{used}\r\n")), [words]);
    }
}

#[test]
fn what_a_restart_loses_is_told() {
    let of = |info: &str, told| said("persistence", info, told, ALONE);
    let (on, off) = ("aof_enabled:1\r\n", "aof_enabled:0\r\n");
    let half =
        "note: appendfsync is no: a crash of the machine loses the locks of the last half minute";
    assert_eq!(of(on, &[("appendfsync", "no")]), [half]);
    let nothing = "note: appendonly no, and no snapshots: a restart loses all locks";
    assert_eq!(of(off, &[("save", "")]), [nothing]);
    let some =
        "note: appendonly no: a restart loses the locks that were taken since the last snapshot";
    assert_eq!(of(off, &[("save", "60 1")]), [some]);
    assert_eq!(of(off, &[]), ["note: appendonly no: a restart loses locks"]);
    assert_eq!(
        of("", &[]),
        ["note: it does not tell what it keeps on disk"]
    );
    // It has no log that it could not write.
    let failed = format!("{off}aof_last_write_status:err\r\n");
    assert_eq!(of(&failed, &[]).len(), 1);
    assert_eq!(of("rdb_last_bgsave_status:ok\r\n", &[]).len(), 1);
}

#[test]
fn scripts_of_redis_6_ignore_min_replicas_to_write() {
    let of = |version: &str, info: &str, least| {
        let info = format!("redis_version:{version}\r\n{info}");
        said(
            "replicas",
            &info,
            &[("min-replicas-to-write", least)],
            ALONE,
        )
    };
    let unbound = "danger: min-replicas-to-write does not hold for scripts before Redis 7: a master that is cut off goes on \
                   granting locks which a failover has given to others";
    // Set, although it has no replica.
    let lonely = "connected_slaves:0\r\nmin_slaves_good_slaves:0\r\n";
    assert_eq!(of("6.2.5", lonely, "1"), [unbound]);
    assert!(of("7.0.0", lonely, "1")[0].contains("grants no locks"));
    // Set and fulfilled, and not set.
    for replicas in [
        "connected_slaves:1\r\nmin_slaves_good_slaves:1\r\n",
        "connected_slaves:1\r\n",
    ] {
        assert_eq!(of("6.2.5", replicas, "1")[0], unbound);
    }
    assert!(!of("6.2.5", "connected_slaves:0\r\n", "0")[0].contains("min-replicas"));
}

#[test]
fn replicas_are_counted_against_what_is_wanted_of_them() {
    let of = |info: &str, least: &str, wait_replicas, can_fail_over| {
        let place = Place {
            wait_replicas,
            can_fail_over,
            ..ALONE
        };
        said("replicas", info, &[("min-replicas-to-write", least)], place)
    };
    let followed =
        |count: u32| format!("connected_slaves:{count}\r\nmin_slaves_good_slaves:{count}\r\n");
    let well = "ok: 2 connected and up to date, wait_replicas is 2";
    assert_eq!(of(&followed(2), "2", 2, true), [well]);
    // A lag of 0 switches it off.
    let [unbound] = &of("connected_slaves:2\r\n", "1", 2, true)[..] else {
        panic!("one is told");
    };
    assert!(unbound.contains("min-replicas-max-lag is 0"), "{unbound}");
    // It does not tell how many it wants.
    let strict = "danger: min-replicas-to-write is set and 0 follow closely, so it grants no locks";
    let of_good = |good: u32| format!("connected_slaves:2\r\nmin_slaves_good_slaves:{good}\r\n");
    assert_eq!(of(&of_good(0), "untold", 2, true), [strict]);
    assert_eq!(of(&of_good(1), "untold", 2, true), [well]);
    let [unbound] = &of("connected_slaves:2\r\n", "untold", 2, true)[..] else {
        panic!("one is told");
    };
    assert!(
        unbound.contains("min-replicas-to-write or min-"),
        "{unbound}"
    );
    let strict = "danger: min-replicas-to-write is 3 and 2 follow closely, so it grants no locks";
    assert_eq!(of(&followed(2), "3", 2, true), [strict]);
    let off = "note: 2 connected, wait_replicas off: a failover loses the locks that were not replicated yet";
    assert_eq!(of(&followed(2), "1", 0, true), [off]);
    let few = "note: 2 connected, wait_replicas is 1: one without the lock may become the master";
    assert_eq!(of(&followed(2), "1", 1, true), [few]);
    let many = "danger: wait_replicas is 3 and 2 are connected, so no lock can be had";
    assert_eq!(of(&followed(2), "1", 3, true), [many]);
    assert_eq!(
        of(&followed(0), "0", 0, false),
        ["ok: no replicas, so there is no failover"]
    );
    let lost = "note: no replica is connected: if it is lost, nothing takes over, and its locks cannot be had";
    assert_eq!(of(&followed(0), "0", 0, true), [lost]);
    let late = |lag: u32| format!("{}slave0:state=online,lag={lag}\r\n", followed(1));
    let well = "ok: 1 connected and up to date, wait_replicas is 1";
    assert_eq!(of(&late(10), "1", 1, true), [well]);
    let behind = "note: 1 of 1 replicas are not up to date: a failover to one loses locks";
    assert_eq!(of(&late(11), "1", 1, true), [behind]);
    for odd in [
        "slave:state=down",
        "slavex:state=down",
        "slave0x:state=down",
    ] {
        let info = format!("{}{odd}\r\n", followed(1));
        assert_eq!(of(&info, "1", 1, true), [well], "{odd}");
    }
}

#[test]
fn a_master_with_replicas_that_need_not_follow_is_a_danger_or_a_note_in_a_cluster() {
    let of = |count: u32, is_cluster| {
        let place = Place {
            is_cluster,
            can_fail_over: true,
            wait_replicas: count,
        };
        let found = said(
            "replicas",
            &format!("connected_slaves:{count}\r\n"),
            &[],
            place,
        );
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].split(':').next().map(str::to_owned)
    };
    assert_eq!(of(1, false).as_deref(), Some("danger"));
    assert_eq!(of(1, true).as_deref(), Some("note"));
    assert_eq!(of(0, true).as_deref(), Some("note"));
}

#[test]
fn the_slots_of_a_cluster_are_told_by_their_number() {
    let of = |info: &str| {
        let found = settings::cluster_state(&"node".into(), info);
        format!("{}: {}", found.severity, found.message)
    };
    let shaky = "cluster_state:ok\r\ncluster_slots_pfail:3\r\n";
    assert_eq!(
        of(shaky),
        "note: 3 slots have a master that does not answer it"
    );
    let few = "cluster_state:ok\r\ncluster_slots_ok:16000\r\ncluster_slots_pfail:3\r\n";
    let words = "danger: 16000 of 16384 slots are served; the locks of the others cannot be had";
    assert_eq!(of(few), words);
    assert_eq!(of("cluster_state:ok\r\n"), "ok: all 16384 slots are served");
    assert!(of("").starts_with("danger: "));
}
