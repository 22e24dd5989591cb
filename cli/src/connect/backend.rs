//! The locks at an opened place.

use std::time::Duration;

use redlatch::{Client, HealthWarning, Lock, LockInfo, LockKind, Locks, Redlock};

use super::{Topology, url};
use crate::errors::Failure;

/// Where the locks are, opened.
pub(crate) struct Backend {
    pub(super) source: Clients,
    pub(super) prefix: String,
    pub(super) uses_token_locks: bool,
    pub(super) lease: Duration,
    /// The place in a few words, without secrets.
    pub(super) title: String,
    /// The servers of the URLs, without secrets.
    pub(super) hosts: Vec<String>,
    /// Those to which all goes as plain text over a network.
    pub(super) plain_text_hosts: Vec<String>,
}

/// What was opened.
pub(super) enum Clients {
    One {
        client: Client,
        /// Whether it is a database.
        is_database: bool,
        /// Whether its locks are on several masters.
        is_cluster: bool,
    },
    Quorum {
        redlock: Redlock,
        /// The nodes by themselves, with their addresses.
        nodes: Vec<(String, Client)>,
    },
}

impl Topology {
    /// The place in a few words, without secrets.
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
    /// The place in a few words.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// Of how many servers a minority may be silent without hiding a lock; 1 unless a majority decides.
    pub(crate) fn node_count(&self) -> usize {
        match &self.source {
            Clients::One { .. } => 1,
            Clients::Quorum { nodes, .. } => nodes.len(),
        }
    }

    /// The servers of the URLs, without secrets.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The servers to which all goes as plain text over a network.
    pub(crate) fn plain_text_hosts(&self) -> &[String] {
        &self.plain_text_hosts
    }

    /// How many threads of this process wait for locks here.
    pub(crate) fn waiter_count(&self) -> usize {
        let activity = match &self.source {
            Clients::One { client, .. } => client.activity(),
            Clients::Quorum { redlock, .. } => redlock.activity(),
        };
        activity.waits.len()
    }

    /// The lock of this name.
    pub(crate) fn lock(&self, name: &str) -> Lock {
        match &self.source {
            Clients::One { client, .. } if self.uses_token_locks => client.token_lock(name),
            Clients::One { client, .. } => client.lock(name),
            Clients::Quorum { redlock, .. } => redlock.lock(name),
        }
    }

    /// Whether several masters decide by majority.
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

    /// Creates the tables of the locks, unless they are there.
    #[cfg(feature = "mysql")]
    pub(crate) fn create_tables(&self) -> Result<(), Failure> {
        match &self.source {
            Clients::One {
                client,
                is_database: true,
                ..
            } => Ok(client.create_tables()?),
            _ => Err(Failure::usage(
                "only a database has tables; name it by its URL, such as mysql://user@host/database",
            )),
        }
    }

    /// Whether its locks are tokens.
    pub(crate) fn uses_token_locks(&self) -> bool {
        self.uses_token_locks
    }

    /// Looks for what endangers locks, and for what is well.
    pub(crate) fn examine(&self) -> redlatch::Result<Vec<HealthWarning>> {
        match &self.source {
            Clients::One { client, .. } => client.examine(),
            Clients::Quorum { redlock, .. } => redlock.examine(),
        }
    }

    /// The servers of which each can be asked by itself, with their names.
    pub(crate) fn clients(&self) -> Vec<(String, &Client)> {
        match &self.source {
            Clients::One { client, .. } => vec![(self.title.clone(), client)],
            Clients::Quorum { nodes, .. } => nodes
                .iter()
                .map(|(node, client)| (node.clone(), client))
                .collect(),
        }
    }

    /// The lease of its locks.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// The locks whose names begin so.
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

    /// The name of a lock as it is typed here.
    pub(crate) fn short_name<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&*self.prefix).unwrap_or(name)
    }

    /// The semaphore or latch of this name: what a list has of it, as nothing else tells its kind.
    fn counter(&self, client: &Client, name: &str) -> Option<LockInfo> {
        // What is no number is looked for in no list.
        client.semaphore(name).available().ok()?;
        let mut all = self.locks(name).with_counters().filter_map(Result::ok);
        all.find(|info| self.short_name(&info.name) == name && info.available.is_some())
    }

    /// The lock of this name, of the kind that is found there, and its state; also of a semaphore or a latch.
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
                // The first error says more.
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
        // The end of a hold is told to those who wait in the way of its kind.
        let lock = match info.kind {
            LockKind::Fair => client.fair_lock(name),
            _ => lock,
        };
        Ok((lock, info))
    }
}
