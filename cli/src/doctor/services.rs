//! What is known of the services and products that the doctor recognises.

use crate::connect::Backend;
use crate::doctor::Finding;

/// A service or a product. The first that matches is taken.
struct Service {
    name: &'static str,
    /// What the look at the version says of it, if its `INFO` or its `HELLO` shows it.
    version_text: &'static str,
    /// What the names of its hosts have in them, all of one of these.
    hosts: &'static [&'static [&'static str]],
    facts: &'static str,
    /// What to do about that; nothing if it is empty.
    advice: &'static str,
}

const SERVICES: [Service; 12] = [
    Service {
        name: "ElastiCache Serverless",
        version_text: "",
        hosts: &[&[".serverless.", ".cache.amazonaws.com"]],
        facts: "a cluster that always talks TLS; at its limit of memory it evicts keys with a time to live, such as holds",
        advice: "name it with --cluster and rediss://, and set no limit of memory that it can reach",
    },
    Service {
        name: "ElastiCache",
        version_text: "Amazon ElastiCache",
        hosts: &[&[".cache.amazonaws.com"]],
        facts: "CONFIG is refused, so what it keeps on disk is not seen; tokens of IAM last 15 minutes (--password-file)",
        advice: "",
    },
    Service {
        name: "MemoryDB",
        version_text: "Amazon MemoryDB",
        hosts: &[&[".memorydb.", ".amazonaws.com"]],
        facts: "a cluster that talks TLS (--cluster, rediss://); tokens of IAM last 15 minutes (--password-file)",
        advice: "",
    },
    Service {
        name: "Azure Cache for Redis",
        version_text: "",
        hosts: &[&[".redis.cache.windows.net"]],
        facts: "rediss:// at port 6380; nodes of a cluster announce IP addresses, which have the certificate of the host",
        advice: "",
    },
    Service {
        name: "Azure Managed Redis",
        version_text: "",
        hosts: &[&[".redis.azure.net"], &[".redisenterprise.cache.azure.net"]],
        facts: "rediss:// at port 10000; with the policy OSS it is a cluster (--cluster), with others a proxy",
        advice: "",
    },
    Service {
        name: "Memorystore",
        version_text: "Google Memorystore",
        hosts: &[],
        facts: "commands that it does not list are refused, such as CONFIG: what it keeps on disk is not seen",
        advice: "",
    },
    Service {
        name: "Redis Cloud",
        version_text: "",
        hosts: &[&[".redislabs.com"], &[".redis-cloud.com"], &[".rlrcp.com"]],
        facts: "an Active-Active database grants one lock in two regions",
        advice: "keep locks in a database of one region",
    },
    Service {
        name: "Upstash",
        version_text: "Upstash",
        hosts: &[&[".upstash.io"]],
        facts: "a server of its own, which speaks TLS (rediss://)",
        advice: "try the kinds of locks that you use (--kind)",
    },
    Service {
        name: "Dragonfly",
        version_text: "Dragonfly",
        hosts: &[&[".dragonflydb.cloud"]],
        facts: "scripts that use undeclared keys are refused by default, as those of read-write locks do",
        advice: "try the kinds of locks that you use (--kind); --default_lua_flags=allow-undeclared-keys lets all run",
    },
    Service {
        name: "Garnet",
        version_text: "Garnet",
        hosts: &[],
        facts: "it runs scripts only if it was started with --lua; without them there are token locks alone, if it has their commands",
        advice: "start it with --lua, and try the kinds of locks that you use (--kind)",
    },
    Service {
        name: "KeyDB",
        version_text: "KeyDB",
        hosts: &[],
        facts: "with active-replica or multi-master the last write wins, so that two can hold one lock",
        advice: "let it have one master",
    },
    Service {
        name: "Kvrocks",
        version_text: "Kvrocks",
        hosts: &[],
        facts: "with lua-strict-key-accessing it refuses scripts that use undeclared keys, as those of read-write locks do",
        advice: "try the kinds of locks that you use (--kind)",
    },
];

/// What is known of the servers that were recognised, one finding for each.
pub(super) fn findings(found: &[Finding], backend: &Backend) -> Vec<Finding> {
    let by_answer = found.iter().filter(|it| it.code == "version");
    let by_answer = by_answer.map(|it| (&*it.node, by_version(&it.seen), "by what it answers"));
    let by_host = backend.hosts().iter();
    let by_host = by_host.map(|host| (&**host, by_host_name(host), "by the name of its host"));
    let mut facts: Vec<Finding> = Vec::new();
    // A host name tells a kind of service which answers do not.
    for (node, service, how) in by_host.chain(by_answer) {
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

fn by_version(said: &str) -> Option<&'static Service> {
    let is_said = |it: &&Service| !it.version_text.is_empty() && said.contains(it.version_text);
    SERVICES.iter().find(is_said)
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
    fn services_are_known_by_their_hosts() {
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
    fn services_are_known_by_their_answers() {
        for (said, name) in [
            ("Redis 7.1.0, Amazon ElastiCache", "ElastiCache"),
            ("Valkey 8.0.1, Amazon MemoryDB", "MemoryDB"),
            ("Valkey 8.0.1, Google Memorystore", "Memorystore"),
            (
                "it is KeyDB 6.3.4, with which these locks were not tested",
                "KeyDB",
            ),
        ] {
            assert_eq!(by_version(said).map(|it| it.name), Some(name), "{said}");
        }
        for said in ["Redis 7.0.15", "Valkey 9.0.0"] {
            assert!(by_version(said).is_none(), "{said}");
        }
    }
}
