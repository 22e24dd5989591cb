//! Channels: who listens, and what is heard.

use std::collections::BTreeSet;

use super::Server;
use crate::commands::Subscriptions;
use crate::reply::{Reply, array};

/// A wish about channels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Subscribe,
    Unsubscribe,
}

impl Server {
    /// Adds subscriptions or takes them away, and tells the number of those that the connection has then.
    pub(super) fn change_subscriptions(
        &mut self,
        connection: u64,
        ask: Ask,
        is_sharded: bool,
        channels: &[&[u8]],
    ) {
        let word = match (ask, is_sharded) {
            (Ask::Subscribe, false) => "subscribe",
            (Ask::Subscribe, true) => "ssubscribe",
            (Ask::Unsubscribe, false) => "unsubscribe",
            (Ask::Unsubscribe, true) => "sunsubscribe",
        };
        let all: Vec<Vec<u8>>;
        let mut channels = channels.to_vec();
        if channels.is_empty() {
            let listened = self.subscriptions(is_sharded).iter();
            let listened = listened.filter(|(_, listeners)| listeners.contains(&connection));
            all = listened.map(|(channel, _)| channel.clone()).collect();
            channels = all.iter().map(Vec::as_slice).collect();
            if channels.is_empty() {
                let none = Reply::Array(vec![
                    word.into(),
                    Reply::Nil,
                    self.count_of(connection, is_sharded),
                ]);
                self.answer(connection, &none);
            }
        }
        for channel in channels {
            let subscriptions = self.subscriptions(is_sharded);
            match ask {
                Ask::Subscribe => {
                    let listeners = subscriptions.entry(channel.to_vec()).or_default();
                    listeners.insert(connection);
                }
                Ask::Unsubscribe => leave(subscriptions, channel, connection),
            }
            let count = self.count_of(connection, is_sharded);
            self.answer(connection, &array![word, channel, count]);
        }
    }

    /// Sends a message to all that listen, in a cluster also to those at the other servers. Returns how many do here.
    pub(super) fn publish(&mut self, channel: &[u8], text: &[u8], is_sharded: bool) -> i64 {
        if self.cluster.is_some() && !is_sharded {
            self.broadcasts.push((channel.to_vec(), text.to_vec()));
        }
        self.tell_listeners(channel, text, is_sharded)
    }

    pub(super) fn tell_listeners(&mut self, channel: &[u8], text: &[u8], is_sharded: bool) -> i64 {
        let heard = self.subscriptions(is_sharded).get(channel).cloned();
        let heard: BTreeSet<u64> = heard.unwrap_or_default();
        let word = if is_sharded { "smessage" } else { "message" };
        for connection in &heard {
            self.answer(*connection, &array![word, channel, text]);
        }
        heard.len() as i64
    }

    /// Whether it may only listen: it has subscriptions.
    pub(super) fn listens(&self, connection: u64) -> bool {
        let mut listeners = self.channels.values().chain(self.shard_channels.values());
        listeners.any(|listeners| listeners.contains(&connection))
    }

    /// The number of listeners of each of these channels.
    pub(super) fn numbers_of_listeners(&mut self, channels: &[&[u8]], is_sharded: bool) -> Reply {
        let subscriptions = self.subscriptions(is_sharded);
        let numbers = channels.iter().flat_map(|channel| {
            let count = subscriptions.get(*channel).map_or(0, BTreeSet::len);
            [Reply::text(channel), Reply::Int(count as i64)]
        });
        Reply::Array(numbers.collect())
    }

    pub(super) fn subscriptions(&mut self, is_sharded: bool) -> &mut Subscriptions {
        if is_sharded {
            &mut self.shard_channels
        } else {
            &mut self.channels
        }
    }

    fn count_of(&mut self, connection: u64, is_sharded: bool) -> Reply {
        let listeners = self.subscriptions(is_sharded).values();
        Reply::Int(listeners.filter(|it| it.contains(&connection)).count() as i64)
    }
}

fn leave(subscriptions: &mut Subscriptions, channel: &[u8], connection: u64) {
    if let Some(listeners) = subscriptions.get_mut(channel) {
        listeners.remove(&connection);
        if listeners.is_empty() {
            subscriptions.remove(channel);
        }
    }
}
