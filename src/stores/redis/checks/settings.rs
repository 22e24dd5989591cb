//! Risks to locks from the settings and the state of a server.

use std::collections::BTreeMap;

use super::replicas;
use crate::stores::redis::findings::Findings;
use crate::stores::redis::replies::info_field;

/// The oldest version of Redis that is tested.
const OLDEST: (u32, u32) = (6, 2);

const SLOTS: u32 = 16_384;

/// Products other than Redis and Valkey: the identifying field of `INFO`, the field with the version, and the name.
const OTHERS: [(&str, &str, &str); 5] = [
    ("dragonfly_version", "dragonfly_version", "Dragonfly"),
    ("garnet_version", "garnet_version", "Garnet"),
    ("kvrocks_version", "kvrocks_version", "Kvrocks"),
    ("upstash_version", "upstash_version", "Upstash"),
    ("mvcc_depth", "redis_version", "KeyDB"),
];

/// If the reply to `HELLO` identifies Google Memorystore, the check adds this field to the reply to `INFO`.
pub(super) const SERVICE: &str = "redlatch_service";

#[derive(Clone, Copy)]
pub(super) struct ClientSettings {
    pub(super) is_cluster: bool,
    pub(super) can_fail_over: bool,
    pub(super) wait_replicas: u32,
}

/// The settings that `CONFIG GET` returned.
pub(super) type Settings = BTreeMap<&'static str, String>;

pub(super) struct Info<'a>(pub(super) &'a str);

impl<'a> Info<'a> {
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
        info_field(self.0, name)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Valkey reports the version of Redis with which it is compatible.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.field("redis_version")?.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().and_then(|minor| minor.parse().ok());
        Some((major, minor.unwrap_or_default()))
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.field(name) == Some(value)
    }

    /// Returns the settings to query with `CONFIG GET`, which depend on the reply to `INFO`.
    pub(super) fn settings(&self) -> Vec<&'static str> {
        let mut wanted = Vec::new();
        if self.is("aof_enabled", "1") {
            wanted.push("appendfsync");
        }
        if self.is("rdb_last_bgsave_status", "err") {
            wanted.extend(["stop-writes-on-bgsave-error", "save"]);
        }
        if self.field("min_slaves_good_slaves").is_some()
            || self.number("connected_slaves") > Some(0)
        {
            wanted.push("min-replicas-to-write");
        }
        wanted
    }
}

pub(super) fn find(
    found: &mut Findings,
    info: &Info<'_>,
    settings: &Settings,
    client: ClientSettings,
) {
    find_version(found, info);
    match info.field("role") {
        None => {}
        Some("master") => found.ok("role", "master"),
        Some(_) => found.danger(
            "role",
            "it is a replica and grants no locks",
            "use the address of the master, or name all servers with Builder::master_replicas or Builder::sentinel \
             (--replicas, --sentinel)",
        ),
    }
    if !client.is_cluster && info.is("cluster_enabled", "1") {
        let message = "it is a cluster node and refuses locks whose slots are on other nodes";
        let advice = "name the nodes of the cluster with Builder::cluster (--cluster)";
        found.danger("cluster-state", message, advice);
    }
    find_eviction(found, info);
    find_persistence(found, info, settings);
    if info.field("role").is_none_or(|role| role == "master") {
        replicas::find(found, info, settings, client);
    }
}

fn find_version(found: &mut Findings, info: &Info<'_>) {
    const CODE: &str = "version";
    for (mark, field, product) in OTHERS {
        if let (Some(_), Some(version)) = (info.field(mark), info.field(field)) {
            return found.note(
                CODE,
                format!("it is {product} {version}, which redlatch was not tested with"),
                "use Redis or Valkey, or see docs/services.md for known services",
            );
        }
    }
    let service = info.field("os").filter(|os| os.starts_with("Amazon "));
    let service = service.or(info.field(SERVICE));
    let service = service.map_or(String::new(), |it| format!(", {it}"));
    match (info.field("valkey_version"), info.field("redis_version")) {
        (Some(version), _) => found.ok(CODE, format!("Valkey {version}{service}")),
        (None, Some(version)) if info.version().is_some_and(|number| number < OLDEST) => found
            .danger(
                CODE,
                format!("its version is {version}; locks need Redis 6.2 or later"),
                "install a newer one",
            ),
        (None, Some(version)) => found.ok(CODE, format!("Redis {version}{service}")),
        (None, None) => found.note(
            CODE,
            "it does not report its version",
            "make sure that it is Redis 6.2 or later and not a proxy that distributes keys",
        ),
    }
}

fn find_eviction(found: &mut Findings, info: &Info<'_>) {
    const CODE: &str = "eviction";
    const FREE: &str = "free memory, or raise maxmemory";
    let (policy, limit) = (info.field("maxmemory_policy"), info.number("maxmemory"));
    let (Some(policy), Some(limit)) = (policy, limit) else {
        return;
    };
    let used = info.number("used_memory").unwrap_or_default();
    let percent = (u128::from(used) * 100).checked_div(u128::from(limit));
    let Some(percent) = percent else {
        return found.ok(CODE, "maxmemory is 0, so nothing is evicted");
    };
    match policy {
        "noeviction" if percent >= 100 => found.danger(
            CODE,
            format!("its memory is at {percent} % of maxmemory, so it grants no locks"),
            FREE,
        ),
        "noeviction" if percent >= 90 => found.note(
            CODE,
            format!("its memory is at {percent} % of maxmemory; at 100 % it grants no locks"),
            FREE,
        ),
        "noeviction" => found.ok(
            CODE,
            format!("maxmemory-policy is noeviction, memory is at {percent} % of maxmemory"),
        ),
        _ => found.danger(
            CODE,
            format!(
                "maxmemory-policy is {policy}, memory is at {percent} % of maxmemory: at 100 % it may evict locks \
                    that are held"
            ),
            "set maxmemory-policy noeviction, or keep locks on a server of their own",
        ),
    }
}

fn find_persistence(found: &mut Findings, info: &Info<'_>, settings: &Settings) {
    const CODE: &str = "persistence";
    const STOPPED: &str = "read its log; the disk may be full or the folder not writable";
    let is_set = |name: &str, to: &str| settings.get(name).is_some_and(|it| it == to);
    if info.is("aof_enabled", "1") && info.is("aof_last_write_status", "err") {
        let message = "it could not write its append-only file, and grants no locks until it can";
        found.danger(CODE, message, STOPPED);
    }
    // With either setting, the server accepts writes after a failed snapshot.
    let goes_on = is_set("stop-writes-on-bgsave-error", "no") || is_set("save", "");
    if info.is("rdb_last_bgsave_status", "err") && !goes_on {
        let message =
            "its last snapshot failed, so it grants no locks if stop-writes-on-bgsave-error is yes";
        found.danger(CODE, message, STOPPED);
    }
    let told = settings.get("appendfsync").map(String::as_str);
    let message = match (info.field("aof_enabled"), told) {
        (Some("1"), Some("always")) => {
            let message = "appendonly yes, appendfsync always: locks outlive a restart";
            return found.ok(CODE, message);
        }
        (Some("1"), other) => format!(
            "appendfsync is {}: a crash of the machine may lose the last locks",
            other.unwrap_or("not told")
        ),
        (Some(_), _) => {
            "appendonly no: a restart loses the locks since the last snapshot, or all".to_owned()
        }
        (None, _) => "it does not report its persistence settings".to_owned(),
    };
    let advice = "for locks that outlive a restart set appendonly yes and appendfsync always";
    found.note(CODE, message, advice);
}

pub(super) fn find_cluster_state(found: &mut Findings, info: &str) {
    const CODE: &str = "cluster-state";
    let info = Info(info);
    let shaky = info.number("cluster_slots_pfail").unwrap_or_default();
    // Some products report only `cluster_state`.
    let rest = u64::from(SLOTS).saturating_sub(shaky);
    let served = info.number("cluster_slots_ok").unwrap_or(rest);
    if !info.is("cluster_state", "ok") || served < rest {
        found.danger(
            CODE,
            format!("{served} of {SLOTS} slots are served; locks in the other slots cannot be acquired"),
            "bring the masters of the missing slots back, or move the slots to other masters (redis-cli --cluster \
                check, fix)",
        );
    } else if shaky > 0 {
        let message = format!("{shaky} slots have a master that does not answer this node");
        let advice = "check that the master runs, and the network between them";
        found.note(CODE, message, advice);
    } else {
        found.ok(CODE, format!("all {SLOTS} slots are served"));
    }
}
