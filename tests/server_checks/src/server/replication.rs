//! Replication: changes of the master, acknowledgements of replicas, and promotion.
//!
//! The caller carries the changes from server to server, with any delay.

use std::collections::{BTreeMap, VecDeque};

use redlatch_server::{Change, Delivery, Keyspace};

use super::{Server, delivery};
use crate::reply::{Reply, array};

/// The changes of one request, which replicas get atomically.
pub(super) type Step = Vec<Change>;

/// The default number of steps that a master keeps for replicas, and for a restart that loses the last ones.
const MOST_STEPS: usize = 20_000;

/// The part of a server that replication is about.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// The id of the history of its keys.
    pub(super) id: String,
    /// The id of the history before its promotion.
    pub(super) id_before: Option<String>,
    /// The number of steps in this history.
    pub(super) offset: i64,
    /// The last of these steps.
    log: VecDeque<Step>,
    /// The number of steps to keep, if set.
    most_steps: Option<usize>,
    /// The server that it replicates.
    master: Option<Master>,
    /// The servers that replicate it, by the numbers that they were given.
    replicas: BTreeMap<u64, Replica>,
}

#[derive(Debug)]
struct Master {
    host: String,
    port: u16,
    is_linked: bool,
}

#[derive(Debug)]
struct Replica {
    host: String,
    port: u16,
    /// The number of steps that it has acknowledged.
    has: i64,
}

/// All that a master has, for a server that begins to replicate it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    keys: Keyspace,
    id: String,
    offset: i64,
}

/// Changes of a master in order.
#[derive(Clone, Debug)]
pub struct Changes {
    id: String,
    /// The number of steps before these.
    offset: i64,
    steps: Vec<Step>,
}

/// A connection that waits for replicas.
#[derive(Debug)]
pub(super) struct Waiting {
    replicas: i64,
    offset: i64,
    until: Option<i64>,
}

impl Replication {
    pub(super) fn record(&mut self, step: Step) {
        self.log.push_back(step);
        self.offset += 1;
        if self.log.len() > self.most_steps.unwrap_or(MOST_STEPS) {
            self.log.pop_front();
        }
    }

    /// Starts an empty history. Returns the steps of the previous one.
    pub(super) fn begin(&mut self, id: String) -> VecDeque<Step> {
        self.id = id;
        self.id_before = None;
        self.offset = 0;
        self.unlink();
        std::mem::take(&mut self.log)
    }

    /// Ends the connections to other servers.
    pub(super) fn unlink(&mut self) {
        self.replicas.clear();
        if let Some(master) = &mut self.master {
            master.is_linked = false;
        }
    }

    pub(super) fn is_replica(&self) -> bool {
        self.master.is_some()
    }

    pub(super) fn replicas(&self) -> u32 {
        self.replicas.len() as u32
    }

    fn replicas_with(&self, offset: i64) -> i64 {
        self.replicas.values().filter(|it| it.has >= offset).count() as i64
    }

    /// The lines of INFO replication.
    pub(super) fn info(&self) -> String {
        let mut info = match &self.master {
            None => "# Replication\r\nrole:master\r\n".to_owned(),
            Some(master) => format!(
                "# Replication\r\nrole:slave\r\nmaster_host:{}\r\nmaster_port:{}\r\nmaster_link_status:{}\r\n\
                 slave_repl_offset:{}\r\nslave_read_only:1\r\n",
                master.host,
                master.port,
                if master.is_linked { "up" } else { "down" },
                self.offset,
            ),
        };
        info += &format!("connected_slaves:{}\r\n", self.replicas.len());
        for (at, replica) in self.replicas.values().enumerate() {
            let Replica { host, port, has } = replica;
            info += &format!("slave{at}:ip={host},port={port},state=online,offset={has},lag=0\r\n");
        }
        let before = self.id_before.as_deref();
        info + &format!(
            "master_failover_state:no-failover\r\nmaster_replid:{}\r\nmaster_replid2:{}\r\nmaster_repl_offset:{}\r\n",
            self.id,
            before.unwrap_or("0000000000000000000000000000000000000000"),
            self.offset,
        )
    }

    /// The reply to ROLE.
    pub(super) fn role(&self) -> Reply {
        match &self.master {
            None => {
                let replicas = self.replicas.values().map(|it| {
                    let (port, has) = (it.port.to_string(), it.has.to_string());
                    array![it.host.as_str(), port.as_str(), has.as_str()]
                });
                array!["master", self.offset, Reply::Array(replicas.collect())]
            }
            Some(Master {
                host,
                port,
                is_linked,
            }) => {
                let state = if *is_linked { "connected" } else { "connect" };
                array!["slave", host.as_str(), i64::from(*port), state, self.offset]
            }
        }
    }
}

impl Server {
    /// Limits the history to this many steps.
    pub fn remember(&mut self, steps: usize) {
        self.replication.most_steps = Some(steps);
    }

    /// All its data, for a new replica.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            keys: self.inner.all_keys().clone(),
            id: self.replication.id.clone(),
            offset: self.replication.offset,
        }
    }

    /// Becomes a replica of the master at this address, whose snapshot replaces its data. Without a snapshot it has no
    /// connection to its master yet.
    pub fn follow(&mut self, host: &str, port: u16, snapshot: Option<Snapshot>) {
        self.is_replication_changed = true;
        self.replication.master = Some(Master {
            host: host.to_owned(),
            port,
            is_linked: snapshot.is_some(),
        });
        if let Some(snapshot) = snapshot {
            *self.inner.keys() = snapshot.keys;
            self.replication.log.clear();
            self.replication.id = snapshot.id;
            self.replication.id_before = None;
            self.replication.offset = snapshot.offset;
        }
    }

    /// Becomes a master, if it is not, with all data so far.
    pub fn promote(&mut self) {
        if self.replication.master.take().is_some() {
            self.is_replication_changed = true;
            let id = self.inner.draw_id();
            self.replication.id_before = Some(std::mem::replace(&mut self.replication.id, id));
        }
    }

    /// The number of steps in the history of its keys.
    pub fn offset(&self) -> i64 {
        self.replication.offset
    }

    /// Whether it is a master.
    pub fn is_master(&self) -> bool {
        !self.replication.is_replica()
    }

    /// The changes that a replica lacks, of at most this many requests; `None` if it needs a snapshot.
    pub fn changes_for(&self, replica: &Server, most: usize) -> Option<Changes> {
        let (ours, its) = (&self.replication, &replica.replication);
        let missing = usize::try_from(ours.offset - its.offset).ok()?;
        let begin = ours.log.len().checked_sub(missing)?;
        (ours.id == its.id).then(|| Changes {
            id: ours.id.clone(),
            offset: its.offset,
            steps: ours.log.range(begin..).take(most).cloned().collect(),
        })
    }

    /// Applies changes of its master. Returns the number of steps to acknowledge.
    pub fn replay(&mut self, changes: &Changes) -> i64 {
        self.is_replication_changed = true;
        let ours = &mut self.replication;
        if (ours.id == changes.id && ours.offset == changes.offset) && ours.is_replica() {
            for step in &changes.steps {
                for change in step {
                    let keys = self.inner.keys();
                    keys.replace(change.key.clone(), change.after.clone());
                }
                ours.record(step.clone());
            }
        }
        ours.offset
    }

    /// Records how many steps the replica with this number and address has. Returns the replies that clients get for
    /// it.
    pub fn acknowledge(
        &mut self,
        now: i64,
        replica: u64,
        address: (&str, u16),
        has: i64,
    ) -> Vec<Delivery> {
        self.is_replication_changed = true;
        if self.stopped.is_none() {
            let (host, port) = (address.0.to_owned(), address.1);
            self.replication
                .replicas
                .insert(replica, Replica { host, port, has });
        }
        self.tick(now)
    }

    /// Records that the connection to a replica has ended.
    pub fn lose_replica(&mut self, replica: u64) {
        self.is_replication_changed = true;
        self.replication.replicas.remove(&replica);
    }

    /// When it next sends something without a request.
    pub fn due(&self) -> Option<i64> {
        let waiting = self
            .connections
            .values()
            .filter_map(|it| it.waiting.as_ref());
        waiting.filter_map(|it| it.until).min()
    }

    /// Replies to clients whose `WAIT` has timed out, and continues with their later requests.
    pub fn tick(&mut self, now: i64) -> Vec<Delivery> {
        let mut out = Vec::new();
        let connections: Vec<u64> = self.connections.keys().copied().collect();
        for connection in connections {
            while let Some(reply) = self.replicas_waited_for(now, connection) {
                out.push(delivery(connection, &reply));
                let next = |server: &mut Server| {
                    let from = server.connections.get_mut(&connection)?;
                    match from.waiting {
                        Some(_) => None,
                        None => from.queued.pop_front(),
                    }
                };
                while let Some(request) = next(self) {
                    out.extend(self.command(now, connection, &request));
                }
            }
        }
        out
    }

    /// The reply to the `WAIT` of a connection, if it is due.
    fn replicas_waited_for(&mut self, now: i64, connection: u64) -> Option<Reply> {
        let from = self.connections.get_mut(&connection)?;
        let waiting = from.waiting.as_ref()?;
        let count = self.replication.replicas_with(waiting.offset);
        let is_over = waiting.until.is_some_and(|until| now >= until);
        if count < waiting.replicas && !is_over {
            return None;
        }
        from.waiting = None;
        Some(Reply::Int(count))
    }

    /// `WAIT`: replied to at once, or later.
    pub(super) fn wait(&mut self, now: i64, connection: u64, args: &[&[u8]]) -> Option<Reply> {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
        let (Some(replicas), Some(timeout)) = (number(args[0]), number(args[1])) else {
            let text = "ERR value is not an integer or out of range";
            return Some(Reply::Error(text.to_owned()));
        };
        if self.replication.is_replica() {
            return Some(Reply::Error(
                "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica \
                 is configured to be writable (which is not the default) writes to replicas are just local and are \
                 not propagated."
                    .to_owned(),
            ));
        }
        let from = self.connections.get_mut(&connection)?;
        from.waiting = Some(Waiting {
            replicas,
            offset: from.written,
            until: (timeout > 0).then_some(now + timeout * 1000),
        });
        self.replicas_waited_for(now, connection)
    }
}
