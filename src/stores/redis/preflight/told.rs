//! The answers of a server to the questions for its settings and its state.

use std::collections::BTreeMap;

use crate::stores::redis::replies::info_field;

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

/// The settings that `INFO` does not tell, as far as they were told.
pub(super) type Settings = BTreeMap<&'static str, String>;

/// The answer to `INFO`.
pub(super) struct Info<'a>(pub(super) &'a str);

impl<'a> Info<'a> {
    pub(super) fn field(&self, name: &str) -> Option<&'a str> {
        info_field(self.0, name)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The first two numbers of the version of Redis; Valkey names the one from which it comes.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.field("redis_version")?.split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().and_then(|minor| minor.parse().ok());
        Some((major, minor.unwrap_or_default()))
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.field(name) == Some(value)
    }

    /// The names of the settings that matter beside it.
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
