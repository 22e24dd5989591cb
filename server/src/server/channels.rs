//! Subscriptions, and the delivery of messages.

use std::collections::BTreeSet;

use super::{Delivery, Server};
use crate::commands::{Message, Subscriptions};
use crate::reply::{Reply, array};

impl Server {
    /// Publishes a message to the subscribers on this server, without a request.
    pub fn publish(&mut self, message: &Message) -> Vec<Delivery> {
        self.deliver(message);
        std::mem::take(&mut self.out)
    }

    /// Returns the number of connections subscribed to a plain channel.
    pub fn listeners(&self, channel: &str) -> usize {
        let listeners = self.channels.get(channel.as_bytes());
        listeners.map_or(0, BTreeSet::len)
    }

    /// Iterates over the sharded channels with subscribers.
    pub fn shard_channels(&self) -> impl Iterator<Item = &[u8]> {
        self.shard_channels.keys().map(Vec::as_slice)
    }

    /// Ends all subscriptions to a sharded channel, and notifies the subscribers.
    pub fn end_shard_channel(&mut self, channel: &[u8]) -> Vec<Delivery> {
        for connection in self.shard_channels.remove(channel).unwrap_or_default() {
            let rest = self.count_of(connection, true);
            self.answer(connection, &array!["sunsubscribe", channel, rest]);
        }
        std::mem::take(&mut self.out)
    }

    /// Replies for each channel. The reply contains how many subscriptions the connection has after the change.
    pub(super) fn change_subscriptions(&mut self, connection: u64, command: &str, args: &[&[u8]]) {
        let (plain, is_sharded) = match command.strip_prefix('s') {
            Some(rest @ ("subscribe" | "unsubscribe")) => (rest, true),
            _ => (command, false),
        };
        let all: Vec<Vec<u8>>;
        let mut channels = args.to_vec();
        if channels.is_empty() {
            let listened = self.subscriptions(is_sharded).iter();
            let listened = listened.filter(|(_, listeners)| listeners.contains(&connection));
            all = listened.map(|(channel, _)| channel.clone()).collect();
            channels = all.iter().map(Vec::as_slice).collect();
            if channels.is_empty() {
                let count = self.count_of(connection, is_sharded);
                self.answer(connection, &array![command, Reply::Nil, count]);
            }
        }
        for channel in channels {
            let subscriptions = self.subscriptions(is_sharded);
            if plain == "subscribe" {
                let listeners = subscriptions.entry(channel.to_vec()).or_default();
                listeners.insert(connection);
            } else {
                leave(subscriptions, channel, connection);
            }
            let count = self.count_of(connection, is_sharded);
            self.answer(connection, &array![command, channel, count]);
        }
    }

    pub(super) fn deliver(&mut self, message: &Message) {
        let subscriptions = self.subscriptions(message.is_sharded);
        let Some(listeners) = subscriptions.get(&message.channel).cloned() else {
            return;
        };
        let word = if message.is_sharded {
            "smessage"
        } else {
            "message"
        };
        let (channel, text) = (&*message.channel, &*message.text);
        for connection in listeners {
            self.answer(connection, &array![word, channel, text]);
        }
    }

    /// Returns whether the connection has subscriptions. If so, it may run only a few commands.
    pub(super) fn listens(&self, connection: u64) -> bool {
        let mut listeners = self.channels.values().chain(self.shard_channels.values());
        listeners.any(|listeners| listeners.contains(&connection))
    }

    fn subscriptions(&mut self, is_sharded: bool) -> &mut Subscriptions {
        if is_sharded {
            &mut self.shard_channels
        } else {
            &mut self.channels
        }
    }

    pub(super) fn count_of(&mut self, connection: u64, is_sharded: bool) -> Reply {
        let listeners = self.subscriptions(is_sharded).values();
        listeners
            .filter(|it| it.contains(&connection))
            .count()
            .into()
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
