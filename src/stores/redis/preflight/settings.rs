//! The consequences for locks of the settings and the state that a server tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::HealthWarning;

/// Of the servers before this, some have no TIME in scripts that write.
const OLDEST_MAJOR: u32 = 5;

/// So many seconds behind is more than a busy replica.
const LATE_SECONDS: u64 = 10;

const SLOTS: u32 = 16_384;

/// The settings of the client that matter.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Whether it knows the server as a node of a cluster.
    pub(super) is_cluster: bool,
    /// Whether it would follow a failover.
    pub(super) can_fail_over: bool,
    /// How many replicas have to acknowledge a hold.
    pub(super) wait_replicas: u32,
}

/// The settings that `INFO` does not tell.
#[derive(Default)]
pub(super) struct Settings {
    told: BTreeMap<&'static str, String>,
    /// Whether the user may not ask for them.
    pub(super) is_refused: bool,
}

impl Settings {
    /// The names of those that matter beside this `INFO`.
    pub(super) fn wanted(info: &str) -> Vec<&'static str> {
        let info = Info(info);
        let mut wanted = Vec::new();
        wanted.extend(match info.field("aof_enabled") {
            Some("1") => Some("appendfsync"),
            Some(_) => Some("save"),
            None => None,
        });
        if info.is("rdb_last_bgsave_status", "err") {
            wanted.push("stop-writes-on-bgsave-error");
        }
        if info.field("min_slaves_good_slaves").is_some() {
            wanted.push("min-replicas-to-write");
        }
        wanted
    }

    pub(super) fn tell(&mut self, name: &'static str, value: String) {
        self.told.insert(name, value);
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.told.get(name).map(String::as_str)
    }
}

/// The answer to `INFO`.
struct Info<'a>(&'a str);

impl<'a> Info<'a> {
    fn field(&self, name: &str) -> Option<&'a str> {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.field(name) == Some(value)
    }
}

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
        found.extend(replicas(node, &info, settings, place));
    }
    found
}

fn version(node: &Arc<str>, info: &Info<'_>) -> HealthWarning {
    const CODE: &str = "version";
    for (field, product) in [
        ("dragonfly_version", "Dragonfly"),
        ("garnet_version", "Garnet"),
    ] {
        if let Some(version) = info.field(field) {
            return HealthWarning::note(
                node,
                CODE,
                format!("it is {product} {version}, with which these locks were not tested"),
                "use Redis or Valkey",
            );
        }
    }
    if let Some(version) = info.field("valkey_version") {
        return HealthWarning::ok(node, CODE, format!("Valkey {version}"));
    }
    let Some(version) = info.field("redis_version") else {
        return HealthWarning::note(
            node,
            CODE,
            "it does not tell its version",
            format!(
                "make sure that it is Redis {OLDEST_MAJOR} or later, and no proxy that splits keys"
            ),
        );
    };
    let major = version.split('.').next();
    let major = major.and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major < OLDEST_MAJOR => HealthWarning::danger(
            node,
            CODE,
            format!("its version is {version}; locks need Redis {OLDEST_MAJOR} or later"),
            "install a newer one",
        ),
        _ => HealthWarning::ok(node, CODE, format!("Redis {version}")),
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
    if info.is("rdb_last_bgsave_status", "err")
        && settings.get("stop-writes-on-bgsave-error") != Some("no")
    {
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

fn replicas(
    node: &Arc<str>,
    info: &Info<'_>,
    settings: &Settings,
    place: Place,
) -> Vec<HealthWarning> {
    const CODE: &str = "replicas";
    let Some(count) = info.number("connected_slaves") else {
        return Vec::new();
    };
    let wanted = u64::from(place.wait_replicas);
    let mut found = Vec::new();
    let mut danger = |message: String, advice: &str| {
        found.push(HealthWarning::danger(node, CODE, message, advice));
    };
    // It stands in INFO only when min-replicas-to-write is above 0.
    let good = info.number("min_slaves_good_slaves");
    let least = settings.get("min-replicas-to-write");
    let least: Option<u64> = least.and_then(|least| least.parse().ok());
    if let Some((good, least)) = good.zip(least).filter(|(good, least)| good < least) {
        danger(
            format!(
                "min-replicas-to-write is {least} and {good} follow closely, so it grants no locks"
            ),
            "bring the replicas back, or lower min-replicas-to-write",
        );
    }
    if wanted > count {
        danger(
            format!("wait_replicas is {wanted} and {count} are connected, so no lock can be had"),
            "bring the replicas back, or lower wait_replicas",
        );
    }
    let is_unbound = count > 0 && good.is_none();
    if is_unbound && !place.is_cluster {
        danger(
            "it has replicas but min-replicas-to-write is 0: a master that is cut off goes on granting locks which a \
             failover has given to others"
                .to_owned(),
            "set min-replicas-to-write 1",
        );
    }
    let mut note = |message: String, advice: &str| {
        found.push(HealthWarning::note(node, CODE, message, advice));
    };
    if is_unbound && place.is_cluster {
        note(
            "min-replicas-to-write is 0: a master that is cut off goes on granting locks for one cluster-node-timeout"
                .to_owned(),
            "set min-replicas-to-write 1",
        );
    }
    if count == 0 && place.can_fail_over {
        note(
            "no replica is connected: if it is lost, nothing takes over, and its locks cannot be had".to_owned(),
            "connect a replica",
        );
    }
    let late = late_replicas(info);
    if late > 0 {
        note(
            format!("{late} of {count} replicas are not up to date: a failover to one loses locks"),
            "look at their links (INFO replication); the network or their disks may be slow",
        );
    }
    match wanted {
        _ if count == 0 => {}
        0 => note(
            format!(
                "{count} connected, wait_replicas off: a failover loses the locks that were not replicated yet"
            ),
            "set Builder::wait_replicas (--wait-replicas)",
        ),
        wanted if wanted < count => note(
            format!(
                "{count} connected, wait_replicas is {wanted}: one without the lock may become the master"
            ),
            "set wait_replicas to the number of all replicas",
        ),
        _ => {}
    }
    if found.is_empty() {
        let message = match count {
            0 => "no replicas, so there is no failover".to_owned(),
            count => format!("{count} connected and up to date, wait_replicas is {wanted}"),
        };
        found.push(HealthWarning::ok(node, CODE, message));
    }
    found
}

/// How many replicas are behind.
fn late_replicas(info: &Info<'_>) -> usize {
    let is_late = |line: &str| {
        let Some((name, state)) = line.trim().split_once(':') else {
            return false;
        };
        let number = name.strip_prefix("slave").unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
            return false;
        }
        let field = |name: &str| {
            let mut parts = state.split(',');
            parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let lag = field("lag").and_then(|lag| lag.parse::<u64>().ok());
        field("state") != Some("online") || lag.is_some_and(|lag| lag > LATE_SECONDS)
    };
    info.0.lines().filter(|line| is_late(line)).count()
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
