//! The consequences for locks of the settings and the state that a server tells.

use std::sync::Arc;

use super::replicas;
use super::told::{Info, Place, Settings};
use crate::store::HealthWarning;

/// The oldest version of Redis on which the tests run.
const OLDEST: (u32, u32) = (6, 2);

const SLOTS: u32 = 16_384;

/// Fields of `INFO` by which other products are known, those with their versions, and their names.
const OTHERS: [(&str, &str, &str); 5] = [
    ("dragonfly_version", "dragonfly_version", "Dragonfly"),
    ("garnet_version", "garnet_version", "Garnet"),
    ("kvrocks_version", "kvrocks_version", "Kvrocks"),
    ("upstash_version", "upstash_version", "Upstash"),
    ("mvcc_depth", "redis_version", "KeyDB"),
];

/// The field that is added to `INFO` for a service that shows itself elsewhere.
pub(super) const SERVICE: &str = "redlatch_service";

/// Returns the findings about one server.
pub(super) fn findings(
    node: &Arc<str>,
    info: &str,
    settings: &Settings,
    place: Place,
) -> Vec<HealthWarning> {
    let info = Info(info);
    let mut found = vec![version(node, &info)];
    found.extend(role(node, &info));
    found.extend(lone_cluster_node(node, &info, place));
    found.extend(eviction(node, &info));
    found.extend(persistence(node, &info, settings));
    // A replica has its say at its master.
    if info.field("role").is_none_or(|role| role == "master") {
        found.extend(replicas::findings(node, &info, settings, place));
    }
    found
}

fn version(node: &Arc<str>, info: &Info<'_>) -> HealthWarning {
    const CODE: &str = "version";
    for (mark, field, product) in OTHERS {
        if let (Some(_), Some(version)) = (info.field(mark), info.field(field)) {
            return HealthWarning::note(
                node,
                CODE,
                format!("it is {product} {version}, with which these locks were not tested"),
                "use Redis or Valkey, or look what is known of it (docs/services.md)",
            );
        }
    }
    let service = info.field("os").filter(|os| os.starts_with("Amazon "));
    let service = service.or(info.field(SERVICE));
    let service = service.map_or(String::new(), |it| format!(", {it}"));
    if let Some(version) = info.field("valkey_version") {
        return HealthWarning::ok(node, CODE, format!("Valkey {version}{service}"));
    }
    let Some(version) = info.field("redis_version") else {
        return HealthWarning::note(
            node,
            CODE,
            "it does not tell its version",
            "make sure that it is Redis 6.2 or later, and no proxy that splits keys",
        );
    };
    match info.version() {
        Some(number) if number < OLDEST => HealthWarning::danger(
            node,
            CODE,
            format!("its version is {version}; locks need Redis 6.2 or later"),
            "install a newer one",
        ),
        _ => HealthWarning::ok(node, CODE, format!("Redis {version}{service}")),
    }
}

fn role(node: &Arc<str>, info: &Info<'_>) -> Option<HealthWarning> {
    Some(match info.field("role")? {
        "master" => HealthWarning::ok(node, "role", "master"),
        _ => HealthWarning::danger(
            node,
            "role",
            "it is a replica, and takes no locks",
            "use the address of the master, or name all servers with Builder::master_replicas or Builder::sentinel \
             (--replicas, --sentinel)",
        ),
    })
}

fn lone_cluster_node(node: &Arc<str>, info: &Info<'_>, place: Place) -> Option<HealthWarning> {
    (!place.is_cluster && info.is("cluster_enabled", "1")).then(|| {
        HealthWarning::danger(
            node,
            "cluster-state",
            "it belongs to a cluster, and refuses the locks whose slots are elsewhere",
            "name the nodes of the cluster with Builder::cluster (--cluster)",
        )
    })
}

fn eviction(node: &Arc<str>, info: &Info<'_>) -> Option<HealthWarning> {
    const CODE: &str = "eviction";
    let policy = info.field("maxmemory_policy")?;
    let limit = info.number("maxmemory")?;
    if limit == 0 {
        return Some(HealthWarning::ok(
            node,
            CODE,
            "maxmemory is 0, so nothing is evicted",
        ));
    }
    let used = info.number("used_memory").unwrap_or_default();
    let percent = u128::from(used) * 100 / u128::from(limit);
    Some(match policy {
        "noeviction" if percent >= 100 => HealthWarning::danger(
            node,
            CODE,
            format!("its memory is full ({percent} % of maxmemory), so it grants no locks"),
            "free memory, or raise maxmemory",
        ),
        "noeviction" if percent >= 90 => HealthWarning::note(
            node,
            CODE,
            format!("its memory is {percent} % full; at 100 % it grants no locks"),
            "free memory, or raise maxmemory",
        ),
        "noeviction" => HealthWarning::ok(
            node,
            CODE,
            format!("maxmemory-policy is noeviction, memory {percent} % full"),
        ),
        _ => HealthWarning::danger(
            node,
            CODE,
            format!(
                "maxmemory-policy is {policy}, memory {percent} % full: when it is full it may evict locks that are held"
            ),
            "set maxmemory-policy noeviction, or keep locks on a server of their own",
        ),
    })
}

fn persistence(node: &Arc<str>, info: &Info<'_>, settings: &Settings) -> Vec<HealthWarning> {
    const CODE: &str = "persistence";
    const ADVICE: &str =
        "for locks that outlive a restart set appendonly yes and appendfsync always";
    let note = |message: String| HealthWarning::note(node, CODE, message, ADVICE);
    let mut found = Vec::new();
    if info.is("aof_enabled", "1") && info.is("aof_last_write_status", "err") {
        found.push(HealthWarning::danger(
            node,
            CODE,
            "it could not write its log, and grants no locks until it can",
            "look into its log; its disk may be full",
        ));
    }
    // Without snapshots to come it goes on after one that failed.
    let stops = settings.get("stop-writes-on-bgsave-error");
    let (stops, save) = (
        stops.map(|it| it != "no"),
        settings.get("save").map(|it| !it.is_empty()),
    );
    if info.is("rdb_last_bgsave_status", "err") && stops.zip(save).is_none() {
        if stops != Some(false) && save != Some(false) {
            found.push(HealthWarning::note(
                node,
                CODE,
                "its last snapshot failed, and it does not tell whether it grants locks all the same \
                 (stop-writes-on-bgsave-error, save)",
                "look into its log; allow CONFIG GET (+config|get)",
            ));
        }
    } else if info.is("rdb_last_bgsave_status", "err") && stops.zip(save) == Some((true, true)) {
        found.push(HealthWarning::danger(
            node,
            CODE,
            "its last snapshot failed, so it grants no locks (stop-writes-on-bgsave-error)",
            "look into its log; its disk may be full, or its folder not writable",
        ));
    }
    let Some(aof) = info.field("aof_enabled") else {
        found.push(note("it does not tell what it keeps on disk".to_owned()));
        return found;
    };
    found.push(match (aof, settings.get("appendfsync"), settings.get("save")) {
        ("1", Some("always"), _) => HealthWarning::ok(
            node,
            CODE,
            "appendonly yes, appendfsync always: locks outlive a restart",
        ),
        ("1", Some("everysec"), _) => note(
            "appendfsync is everysec: a crash of the machine loses the locks of the last second or two".to_owned(),
        ),
        ("1", Some(other), _) => note(format!(
            "appendfsync is {other}: a crash of the machine loses the locks of the last half minute"
        )),
        ("1", None, _) => note(
            "appendonly yes, but it does not tell appendfsync: a crash of the machine may lose locks".to_owned(),
        ),
        (_, _, Some("")) => {
            note("appendonly no, and no snapshots: a restart loses all locks".to_owned())
        }
        (_, _, Some(_)) => note(
            "appendonly no: a restart loses the locks that were taken since the last snapshot".to_owned(),
        ),
        (_, _, None) => note("appendonly no: a restart loses locks".to_owned()),
    });
    found
}

/// Returns the finding about a cluster, as one master sees it.
pub(super) fn cluster_state(node: &Arc<str>, info: &str) -> HealthWarning {
    const CODE: &str = "cluster-state";
    let info = Info(info);
    let shaky = info.number("cluster_slots_pfail").unwrap_or_default();
    // Some products tell the state alone.
    let rest = u64::from(SLOTS).saturating_sub(shaky);
    let served = info.number("cluster_slots_ok").unwrap_or(rest);
    if !info.is("cluster_state", "ok") || served < rest {
        return HealthWarning::danger(
            node,
            CODE,
            format!("{served} of {SLOTS} slots are served; the locks of the others cannot be had"),
            "bring the masters of these slots back, or give the slots to others (redis-cli --cluster check, fix)",
        );
    }
    if shaky > 0 {
        return HealthWarning::note(
            node,
            CODE,
            format!("{shaky} slots have a master that does not answer it"),
            "look whether that master runs, and the network between them",
        );
    }
    HealthWarning::ok(node, CODE, format!("all {SLOTS} slots are served"))
}
