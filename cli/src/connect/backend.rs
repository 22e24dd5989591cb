//! The clients of the configured servers, and their locks.

use std::time::Duration;

use redlatch::{Client, HealthWarning, Lock, LockInfo, LockKind, Locks, Redlock};

use super::{Topology, url};
use crate::errors::Failure;

pub(crate) struct Backend {
    pub(super) source: Clients,
    pub(super) prefix: String,
    pub(super) uses_token_locks: bool,
    pub(super) lease: Duration,
    /// A short name of the servers, without secrets.
    pub(super) title: String,
    /// The hosts of the URLs, without secrets.
    pub(super) hosts: Vec<String>,
    pub(super) plain_text_hosts: Vec<String>,
}

pub(super) enum Clients {
    One {
        client: Client,
        /// Whether the server is MySQL or MariaDB.
        is_database: bool,
        is_cluster: bool,
    },
    Quorum {
        redlock: Redlock,
        /// The address and a client of each node.
        nodes: Vec<(String, Client)>,
    },
}

impl Topology {
    pub(super) fn title(&self, urls: &[String]) -> String {
        let first = urls.first().map(|url| url::address(url));
        let first = first.unwrap_or_default();
        let number = urls.len();
        match self {
            Topology::One => first.to_owned(),
            Topology::Cluster => format!("cluster at {first}"),
            Topology::Replicas => format!("master of {number} nodes"),
            Topology::Sentinel(master) => format!("sentinel {master}"),
            Topology::Redlock => format!("redlock of {number} nodes"),
        }
    }
}

impl Backend {
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// The number of voting servers; 1 without a quorum. If a minority of the servers is unreachable, the list of locks
    /// is complete.
    pub(crate) fn node_count(&self) -> usize {
        match &self.source {
            Clients::One { .. } => 1,
            Clients::Quorum { nodes, .. } => nodes.len(),
        }
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub(crate) fn plain_text_hosts(&self) -> &[String] {
        &self.plain_text_hosts
    }

    /// The number of threads of this process that wait for locks.
    pub(crate) fn waiter_count(&self) -> usize {
        let activity = match &self.source {
            Clients::One { client, .. } => client.activity(),
            Clients::Quorum { redlock, .. } => redlock.activity(),
        };
        activity.waits.len()
    }

    pub(crate) fn lock(&self, name: &str) -> Lock {
        match &self.source {
            Clients::One { client, .. } if self.uses_token_locks => client.token_lock(name),
            Clients::One { client, .. } => client.lock(name),
            Clients::Quorum { redlock, .. } => redlock.lock(name),
        }
    }

    pub(crate) fn is_quorum(&self) -> bool {
        matches!(self.source, Clients::Quorum { .. })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(
            self.source,
            Clients::One {
                is_cluster: true,
                ..
            }
        )
    }

    pub(crate) fn is_database(&self) -> bool {
        matches!(
            self.source,
            Clients::One {
                is_database: true,
                ..
            }
        )
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn create_tables(&self) -> Result<(), Failure> {
        match &self.source {
            Clients::One {
                client,
                is_database: true,
                ..
            } => Ok(client.create_tables()?),
            _ => Err(Failure::usage(
                "create-tables needs a database; give its URL, such as mysql://user@host/database",
            )),
        }
    }

    pub(crate) fn uses_token_locks(&self) -> bool {
        self.uses_token_locks
    }

    pub(crate) fn examine(&self) -> redlatch::Result<Vec<HealthWarning>> {
        match &self.source {
            Clients::One { client, .. } => client.examine(),
            Clients::Quorum { redlock, .. } => redlock.examine(),
        }
    }

    /// The servers that can be queried one by one, with their names.
    pub(crate) fn clients(&self) -> Vec<(String, &Client)> {
        match &self.source {
            Clients::One { client, .. } => vec![(self.title.clone(), client)],
            Clients::Quorum { nodes, .. } => nodes
                .iter()
                .map(|(node, client)| (node.clone(), client))
                .collect(),
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn locks(&self, prefix: &str) -> Locks {
        let locks = match &self.source {
            Clients::One { client, .. } => client.locks(prefix),
            Clients::Quorum { redlock, .. } => redlock.locks(prefix),
        };
        match self.uses_token_locks {
            true => locks.with_tokens(),
            false => locks,
        }
    }

    pub(crate) fn short_name<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&*self.prefix).unwrap_or(name)
    }

    /// Only the list of locks reports the kind of a counter, so a semaphore or latch is searched for in the list.
    fn counter(&self, client: &Client, name: &str) -> Option<LockInfo> {
        // If the key is not a number, the scan is avoided.
        client.semaphore(name).available().ok()?;
        let mut all = self.locks(name).with_counters().filter_map(Result::ok);
        all.find(|info| self.short_name(&info.name) == name && info.available.is_some())
    }

    /// Finds the lock, semaphore or latch of this name, and the kind that it has on the server.
    pub(crate) fn describe(&self, name: &str) -> Result<(Lock, LockInfo), Failure> {
        let client = match &self.source {
            Clients::Quorum { redlock, .. } => {
                let lock = redlock.lock(name);
                let info = lock.describe()?;
                return Ok((lock, info));
            }
            Clients::One { client, .. } => client,
        };
        if self.uses_token_locks {
            let lock = client.token_lock(name);
            let info = lock.describe()?;
            return Ok((lock, info));
        }
        let lock = client.lock(name);
        let info = match lock.describe() {
            Ok(info) => info,
            Err(error) if error.kind() == "wrong_type" => {
                let sides = client.read_write_lock(name);
                // If both queries fail, the first error is more precise.
                let info = match sides.read().describe() {
                    Ok(info) => info,
                    Err(_) => return Ok((lock, self.counter(client, name).ok_or(error)?)),
                };
                let lock = match info.kind {
                    LockKind::Write => sides.write(),
                    _ => sides.read(),
                };
                return Ok((lock.clone(), info));
            }
            Err(error) => return Err(error.into()),
        };
        // The waiters of a fair lock have channels of their own, which only a fair handle notifies.
        let lock = match info.kind {
            LockKind::Fair => client.fair_lock(name),
            _ => lock,
        };
        Ok((lock, info))
    }
}
