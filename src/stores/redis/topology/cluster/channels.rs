//! The channels that somebody waits on, each heard at the master of its slot.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Cluster, Shard, Shared};
use crate::stores::redis::keys;
use crate::stores::redis::subscriber::Interest;

#[derive(Default)]
pub(super) struct Channels {
    heard: HashMap<Arc<str>, Heard>,
    pub(super) is_closed: bool,
}

/// One channel with waiters, and where its messages are heard.
struct Heard {
    waiters: usize,
    at: Option<(Arc<Shard>, Interest)>,
}

/// The interest of one waiter in the messages of one channel, wherever its slot goes.
pub(crate) struct ChannelInterest {
    shared: Arc<Shared>,
    channel: Arc<str>,
}

impl Drop for ChannelInterest {
    fn drop(&mut self) {
        let mut channels = self.shared.channels.lock();
        if let Some(heard) = channels.heard.get_mut(&self.channel) {
            heard.waiters -= 1;
            if heard.waiters == 0 {
                channels.heard.remove(&self.channel);
            }
        }
    }
}

impl Cluster {
    pub(crate) fn hears(&self, channel: &str) -> bool {
        let channels = self.shared.channels.lock();
        match channels.heard.get(channel) {
            Some(Heard {
                at: Some((shard, _)),
                ..
            }) => shard.node.subscriber.hears(channel),
            _ => false,
        }
    }

    pub(crate) fn listen(&self, channel: &Arc<str>) -> (ChannelInterest, bool) {
        let shared = &self.shared;
        let is_live = {
            let mut channels = shared.channels.lock();
            let is_closed = channels.is_closed;
            let heard = channels.heard.entry(Arc::clone(channel)).or_insert(Heard {
                waiters: 0,
                at: None,
            });
            heard.waiters += 1;
            if !is_closed {
                shared.hear(channel, heard);
            }
            match &heard.at {
                Some((shard, _)) => shard.node.subscriber.hears(channel),
                None => false,
            }
        };
        let interest = ChannelInterest {
            shared: Arc::clone(shared),
            channel: Arc::clone(channel),
        };
        (interest, is_live)
    }
}

impl Shared {
    /// Moves every interest to where the slot of its channel is now.
    pub(super) fn resubscribe(&self) {
        let mut channels = self.channels.lock();
        if channels.is_closed {
            return;
        }
        for (channel, heard) in &mut channels.heard {
            self.hear(channel, heard);
        }
    }

    /// Sees to it that a channel is heard where its slot is.
    fn hear(&self, channel: &Arc<str>, heard: &mut Heard) {
        let Some(master) = self.present(keys::slot(channel)) else {
            return;
        };
        match &heard.at {
            Some((shard, _)) if Arc::ptr_eq(shard, &master) => {
                shard.node.subscriber.ask_again(channel);
            }
            _ => {
                let (interest, _) = master.node.subscriber.listen(channel);
                heard.at = Some((master, interest));
            }
        }
    }
}
