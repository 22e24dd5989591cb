//! Replication, sentinels and clusters, for one server.

use redlatch_server_checks::Delivery;
use redlatch_world::network;
use redlatch_world::scheduler::Nanos;

use crate::machine::{Redis, host};

pub(crate) const PORT: u16 = 6379;

/// Messages: channel and text.
pub(crate) type Messages = Vec<(Vec<u8>, Vec<u8>)>;

/// Bytes for connections.
pub(crate) type Bytes = Vec<(u64, Vec<u8>)>;

pub(crate) fn bytes(deliveries: Vec<Delivery>) -> Bytes {
    let deliveries = deliveries.into_iter();
    deliveries.map(|it| (it.connection, it.bytes)).collect()
}

impl Redis {
    fn now(&self) -> i64 {
        network::time_of(self.place)
    }

    /// Replicates the master at this host from now on, with all its data.
    pub(crate) fn follow(&self, host: &str, master: &Redis) {
        let snapshot = master.machine().server.snapshot();
        self.machine().server.follow(host, PORT, Some(snapshot));
    }

    /// Carries missing changes to a replica. Returns whether that was possible.
    pub(crate) fn carry_to(&self, replica: &Redis) -> bool {
        let mut replica = replica.machine();
        let changes = self
            .machine()
            .server
            .changes_for(&replica.server, usize::MAX);
        changes
            .inspect(|it| _ = replica.server.replay(it))
            .is_some()
    }

    /// Records the acknowledgement of the replica with this number.
    pub(crate) fn hear_from(&self, number: usize, replica: &Redis) -> Bytes {
        let now = self.now();
        let has = replica.machine().server.offset();
        let address = host(number);
        let mut machine = self.machine();
        bytes(
            machine
                .server
                .acknowledge(now, number as u64, (&address, PORT), has),
        )
    }

    /// The visitors whose holds are missing, different or shorter on another server.
    pub(crate) fn lacking_in(&self, other: &Redis) -> Vec<String> {
        let lacks = |(name, visitor): &(String, String)| {
            let (here, there) = (self.look(name, visitor), other.look(name, visitor));
            match (here, there) {
                (Some((count, left)), Some((other, stays))) => other != count || stays < left,
                _ => true,
            }
        };
        let standing = self.standing().into_iter();
        standing.filter(lacks).map(|(_, visitor)| visitor).collect()
    }

    /// Replies to clients whose `WAIT` has timed out. Returns also when to call it next, if that is not planned.
    pub(crate) fn tick(&self) -> (Bytes, Option<Nanos>) {
        let now = self.now();
        let mut machine = self.machine();
        let deliveries = bytes(machine.server.tick(now));
        let due = machine.server.due();
        let is_planned = machine.ticks_at.is_some_and(|at| at > now);
        let due = due.filter(|_| !is_planned);
        machine.ticks_at = due.or(machine.ticks_at.filter(|_| is_planned));
        let left = due.and_then(|due| u64::try_from(due - now).ok());
        (deliveries, left.map(|micros| (micros + 1) * 1_000))
    }

    pub(crate) fn hand_keys(&self, slot: u16, to: &Redis) -> usize {
        let now = self.now();
        let mut to = to.machine();
        self.machine()
            .server
            .hand_keys(now, slot, usize::MAX, &mut to.server)
    }

    pub(crate) fn hear(&self, messages: &Messages) -> Bytes {
        let mut machine = self.machine();
        let heard = messages.iter();
        let heard = heard.flat_map(|(channel, text)| machine.server.hear(channel, text));
        bytes(heard.collect())
    }
}
