//! Subscriptions of waiters. Each channel is subscribed at the master of its slot.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Cluster, Shard};
use crate::stores::redis::keys;
use crate::stores::redis::subscriber::Interest;

#[derive(Default)]
pub(super) struct Channels {
    wanted: HashMap<Arc<str>, Channel>,
    pub(super) is_closed: bool,
}

struct Channel {
    waiters: usize,
    lingers: bool,
    at: Option<(Arc<Shard>, Interest)>,
}

/// The subscription of one waiter. If the slot of the channel moves, the subscription moves to the new master.
pub(crate) struct ChannelInterest {
    cluster: Arc<Cluster>,
    channel: Arc<str>,
}

impl Drop for ChannelInterest {
    fn drop(&mut self) {
        let mut channels = self.cluster.channels.lock();
        if let Some(entry) = channels.wanted.get_mut(&self.channel) {
            entry.waiters -= 1;
            if entry.waiters == 0 {
                channels.wanted.remove(&self.channel);
            }
        }
    }
}

impl Cluster {
    pub(crate) fn hears(&self, channel: &str) -> bool {
        let channels = self.channels.lock();
        let at = channels.wanted.get(channel).and_then(|it| it.at.as_ref());
        at.is_some_and(|(shard, _)| shard.node.subscriber.hears(channel))
    }

    pub(crate) fn listen(
        self: &Arc<Self>,
        channel: &Arc<str>,
        lingers: bool,
    ) -> (ChannelInterest, bool) {
        {
            let mut channels = self.channels.lock();
            let is_closed = channels.is_closed;
            let entry = channels.wanted.entry(Arc::clone(channel));
            let entry = entry.or_insert(Channel {
                waiters: 0,
                lingers,
                at: None,
            });
            entry.waiters += 1;
            if !is_closed {
                self.subscribe(channel, entry);
            }
        }
        let interest = ChannelInterest {
            cluster: Arc::clone(self),
            channel: Arc::clone(channel),
        };
        (interest, self.hears(channel))
    }

    pub(super) fn resubscribe(&self) {
        let mut channels = self.channels.lock();
        if channels.is_closed {
            return;
        }
        for (channel, entry) in &mut channels.wanted {
            self.subscribe(channel, entry);
        }
    }

    fn subscribe(&self, channel: &Arc<str>, entry: &mut Channel) {
        let Some(master) = self.present(keys::slot(channel)) else {
            return;
        };
        match &entry.at {
            Some((shard, _)) if Arc::ptr_eq(shard, &master) => {
                shard.node.subscriber.ask_again(channel);
            }
            _ => {
                let (interest, _) = master.node.subscriber.listen(channel, entry.lingers);
                entry.at = Some((master, interest));
            }
        }
    }
}
