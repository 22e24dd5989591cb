//! Facts about services and products that the doctor recognises.

use crate::connect::Backend;
use crate::doctor::Finding;

/// A service or product. The first match in `SERVICES` wins.
struct Service {
    name: &'static str,
    /// A text in the `version` finding. Empty if neither `INFO` nor `HELLO` identifies the service.
    version_text: &'static str,
    /// Parts of host names. A host matches an entry if it contains all its parts.
    hosts: &'static [&'static [&'static str]],
    facts: &'static str,
    advice: &'static str,
}

const SERVICES: [Service; 12] = [
    Service {
        name: "ElastiCache Serverless",
        version_text: "",
        hosts: &[&[".serverless.", ".cache.amazonaws.com"]],
        facts: "a cluster that always uses TLS; at its memory limit it evicts keys with a TTL, including locks",
        advice: "use --cluster and rediss://, and set no memory limit that can be reached",
    },
    Service {
        name: "ElastiCache",
        version_text: "Amazon ElastiCache",
        hosts: &[&[".cache.amazonaws.com"]],
        facts: "CONFIG is refused, so persistence is unknown; IAM tokens last 15 minutes (--password-file)",
        advice: "",
    },
    Service {
        name: "MemoryDB",
        version_text: "Amazon MemoryDB",
        hosts: &[&[".memorydb.", ".amazonaws.com"]],
        facts: "a cluster with TLS (--cluster, rediss://); IAM tokens last 15 minutes (--password-file)",
        advice: "",
    },
    Service {
        name: "Azure Cache for Redis",
        version_text: "",
        hosts: &[&[".redis.cache.windows.net"]],
        facts: "use rediss:// on port 6380; cluster nodes announce IP addresses, but their certificate names the host",
        advice: "",
    },
    Service {
        name: "Azure Managed Redis",
        version_text: "",
        hosts: &[&[".redis.azure.net"], &[".redisenterprise.cache.azure.net"]],
        facts: "use rediss:// on port 10000; with the OSS policy it is a cluster (--cluster), otherwise a proxy",
        advice: "",
    },
    Service {
        name: "Memorystore",
        version_text: "Google Memorystore",
        hosts: &[],
        facts: "commands outside its list are refused, such as CONFIG, so persistence is unknown",
        advice: "",
    },
    Service {
        name: "Redis Cloud",
        version_text: "",
        hosts: &[&[".redislabs.com"], &[".redis-cloud.com"], &[".rlrcp.com"]],
        facts: "an Active-Active database can grant one lock in two regions at once",
        advice: "keep locks in a database with one region",
    },
    Service {
        name: "Upstash",
        version_text: "Upstash",
        hosts: &[&[".upstash.io"]],
        facts: "its own implementation of the protocol, with TLS (rediss://)",
        advice: "check the kinds of locks that you use (--kind)",
    },
    Service {
        name: "Dragonfly",
        version_text: "Dragonfly",
        hosts: &[&[".dragonflydb.cloud"]],
        facts: "scripts with undeclared keys are refused by default, such as those of read-write locks",
        advice: "check the kinds of locks that you use (--kind); --default_lua_flags=allow-undeclared-keys permits all \
                 of them",
    },
    Service {
        name: "Garnet",
        version_text: "Garnet",
        hosts: &[],
        facts: "scripts run only if it was started with --lua; otherwise only token locks work, if it has their commands",
        advice: "start it with --lua, and check the kinds of locks that you use (--kind)",
    },
    Service {
        name: "KeyDB",
        version_text: "KeyDB",
        hosts: &[],
        facts: "with active-replica or multi-master the last write wins, so two clients can hold one lock",
        advice: "use a single master",
    },
    Service {
        name: "Kvrocks",
        version_text: "Kvrocks",
        hosts: &[],
        facts: "with lua-strict-key-accessing, scripts with undeclared keys are refused, such as those of read-write locks",
        advice: "check the kinds of locks that you use (--kind)",
    },
];

pub(super) fn findings(found: &[Finding], backend: &Backend) -> Vec<Finding> {
    let by_reply = found.iter().filter(|it| it.code == "version");
    let by_reply =
        by_reply.map(|it| (&*it.node, by_version(&it.seen), "identified by its replies"));
    let by_host = backend.hosts().iter();
    let by_host = by_host.map(|host| (&**host, by_host_name(host), "identified by its host name"));
    let mut facts: Vec<Finding> = Vec::new();
    // A host name may tell variants of a service apart, which replies cannot. So host names come first.
    for (node, service, how) in by_host.chain(by_reply) {
        let Some(service) = service else { continue };
        let seen = format!("{} ({how}): {}", service.name, service.facts);
        if facts.iter().any(|it| it.seen.starts_with(service.name)) {
            continue;
        }
        facts.push(match service.advice {
            "" => Finding::ok(node, "service", seen),
            advice => Finding::note(node, "service", seen, advice),
        });
    }
    facts
}

fn by_version(seen: &str) -> Option<&'static Service> {
    let matches = |it: &&Service| !it.version_text.is_empty() && seen.contains(it.version_text);
    SERVICES.iter().find(matches)
}

fn by_host_name(host: &str) -> Option<&'static Service> {
    let host = host.to_ascii_lowercase();
    let has_all = |parts: &[&str]| parts.iter().all(|part| host.contains(part));
    SERVICES
        .iter()
        .find(|it| it.hosts.iter().any(|parts| has_all(parts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_recognised_by_host_name() {
        for (host, name) in [
            (
                "locks-ab12cd.serverless.use1.cache.amazonaws.com:6379",
                "ElastiCache Serverless",
            ),
            (
                "clustercfg.locks.ab12cd.euw1.cache.amazonaws.com:6379",
                "ElastiCache",
            ),
            (
                "clustercfg.locks.ab12cd.memorydb.eu-west-1.amazonaws.com",
                "MemoryDB",
            ),
            (
                "locks.redis.cache.windows.net:6380",
                "Azure Cache for Redis",
            ),
            (
                "locks.westeurope.redis.azure.net:10000",
                "Azure Managed Redis",
            ),
            (
                "locks.westeurope.redisenterprise.cache.azure.net:10000",
                "Azure Managed Redis",
            ),
            (
                "redis-1.c1.us-east-1-2.ec2.cloud.redislabs.com:1",
                "Redis Cloud",
            ),
            ("apt-lark-1.UPSTASH.io:6379", "Upstash"),
            ("ab12cd.dragonflydb.cloud:6385", "Dragonfly"),
        ] {
            assert_eq!(by_host_name(host).map(|it| it.name), Some(name), "{host}");
        }
        for host in ["10.0.0.1:6379", "redis.example", "upstash.io.example:1"] {
            assert_eq!(by_host_name(host).map(|it| it.name), None, "{host}");
        }
    }

    #[test]
    fn services_are_recognised_by_version() {
        for (seen, name) in [
            ("Redis 7.1.0, Amazon ElastiCache", "ElastiCache"),
            ("Valkey 8.0.1, Amazon MemoryDB", "MemoryDB"),
            ("Valkey 8.0.1, Google Memorystore", "Memorystore"),
            (
                "it is KeyDB 6.3.4, with which these locks were not tested",
                "KeyDB",
            ),
        ] {
            assert_eq!(by_version(seen).map(|it| it.name), Some(name), "{seen}");
        }
        for seen in ["Redis 7.0.15", "Valkey 9.0.0"] {
            assert!(by_version(seen).is_none(), "{seen}");
        }
    }
}
