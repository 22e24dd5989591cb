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
    const STOPPED: &str = "look into its log; its disk may be full, or its folder not writable";
    let mut found = Vec::new();
    if info.is("aof_enabled", "1") && info.is("aof_last_write_status", "err") {
        let message = "it could not write its log, and grants no locks until it can";
        found.push(HealthWarning::danger(node, CODE, message, STOPPED));
    }
    // Without snapshots to come it goes on after one that failed.
    let goes_on = [("stop-writes-on-bgsave-error", "no"), ("save", "")];
    let goes_on = goes_on
        .iter()
        .any(|(name, value)| settings.get(name) == Some(value));
    if info.is("rdb_last_bgsave_status", "err") && !goes_on {
        let message =
            "its last snapshot failed, so it grants no locks if stop-writes-on-bgsave-error is yes";
        found.push(HealthWarning::danger(node, CODE, message, STOPPED));
    }
    let message = match (info.field("aof_enabled"), settings.get("appendfsync")) {
        (Some("1"), Some("always")) => {
            let message = "appendonly yes, appendfsync always: locks outlive a restart";
            found.push(HealthWarning::ok(node, CODE, message));
            return found;
        }
        (Some("1"), other) => format!(
            "appendfsync is {}: a crash of the machine may lose the last locks",
            other.unwrap_or("not told")
        ),
        (Some(_), _) => {
            "appendonly no: a restart loses the locks since the last snapshot, or all".to_owned()
        }
        (None, _) => "it does not tell what it keeps on disk".to_owned(),
    };
    let advice = "for locks that outlive a restart set appendonly yes and appendfsync always";
    found.push(HealthWarning::note(node, CODE, message, advice));
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
