//! INFO and CONFIG GET.

use super::Server;
use crate::reply::Reply;

/// The replication section of a master without replicas.
pub(super) fn alone(id: &str) -> String {
    let before = "0".repeat(40);
    format!(
        "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\n\
         master_replid:{id}\r\nmaster_replid2:{before}\r\nmaster_repl_offset:0\r\n"
    )
}

impl Server {
    /// Replies to INFO for one section, or for the default sections.
    pub(super) fn info(&self, section: &str, now: i64) -> String {
        let sections = match section {
            "server" => vec![self.info_of_server(now)],
            "persistence" => vec![self.info_of_persistence()],
            "replication" => vec![self.replication.clone()],
            "default" | "all" | "everything" => vec![
                self.info_of_server(now),
                MEMORY.to_owned(),
                self.info_of_persistence(),
                self.replication.clone(),
            ],
            "memory" => vec![MEMORY.to_owned()],
            _ => Vec::new(),
        };
        sections.join("\r\n")
    }

    fn info_of_server(&self, now: i64) -> String {
        // The uptime is negative if the clock was set back.
        let up = now.div_euclid(1_000_000) - self.started.div_euclid(1_000_000);
        let (mode, id) = (self.mode, &self.run_id);
        format!(
            "# Server\r\nredis_version:7.0.15\r\nredis_mode:{mode}\r\nrun_id:{id}\r\nuptime_in_seconds:{up}\r\n"
        )
    }

    fn info_of_persistence(&self) -> String {
        format!(
            "# Persistence\r\nloading:{}\r\naof_enabled:{}\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n",
            u8::from(self.is_loading),
            u8::from(self.config.remembers)
        )
    }

    /// Replies to CONFIG GET. `pattern` is the name of a setting, or a part of the name with stars before or after it.
    pub(super) fn config(&self, pattern: &str) -> Reply {
        let fsync = if self.config.remembers {
            "always"
        } else {
            "everysec"
        };
        let settings = [("appendfsync", fsync), ("no-appendfsync-on-rewrite", "no")];
        let part = pattern.trim_matches('*');
        let found = settings.iter().filter(|(name, _)| match part == pattern {
            true => *name == part,
            false => name.contains(part),
        });
        Reply::Array(
            found
                .flat_map(|(name, value)| [Reply::text(name), Reply::text(value)])
                .collect(),
        )
    }
}

const MEMORY: &str = "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n";
