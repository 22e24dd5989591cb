//! Handles messages of the server: unlock messages wake waiters, and confirmations change the state of channels.

use std::sync::Arc;

use redis::Value;

use super::{Channel, LINGER, Shared, State};
use crate::ground::{metrics, time};
use crate::stores::redis::keys;
use crate::stores::redis::kinds::{KINDS, Layout};

impl Shared {
    pub(super) fn handle(&self, message: Value) {
        let Value::Array(parts) = message else { return };
        let mut parts = parts.into_iter().map(|part| match part {
            Value::BulkString(bytes) => String::from_utf8(bytes).unwrap_or_default(),
            _ => String::new(),
        });
        let (Some(kind), Some(channel)) = (parts.next(), parts.next()) else {
            return;
        };
        match kind.as_str() {
            "message" | "smessage" => {
                let words = parts.next().unwrap_or_default();
                let woken = self.notifier.release(&channel, woken_by(&channel, &words));
                metrics::message(if woken > 0 { "woke" } else { "nobody" });
            }
            "sunsubscribe" => self.unsubscribed(&channel),
            "subscribe" | "ssubscribe" => {
                let is_live = {
                    let mut state = self.state.lock();
                    let entry = state.channels.get_mut(channel.as_str());
                    entry.is_some_and(|entry| {
                        // A late confirmation of a refused subscription has no effect, because `was_asked` is false.
                        entry.is_live = entry.was_asked;
                        entry.is_live
                    })
                };
                if is_live {
                    self.notifier.wake_all_of(&channel);
                }
            }
            _ => {}
        }
    }

    /// If the server ends a sharded subscription unasked, the slot has moved.
    fn unsubscribed(&self, channel: &str) {
        let is_moved = forget(self.state.lock().channels.get_mut(channel));
        if is_moved {
            self.moved([channel]);
        }
    }

    /// `text` is an error of the server. `MOVED` with a slot means that the slot has moved to another node.
    pub(super) fn refused(&self, text: &str) {
        if self.on_move.is_none() {
            return;
        }
        let slot = text.strip_prefix("MOVED ");
        let slot = slot.and_then(|rest| rest.split(' ').next()?.parse::<u16>().ok());
        let refused: Vec<Arc<str>> = {
            let mut state = self.state.lock();
            let channels = state.channels.iter_mut().filter(|(name, entry)| {
                // An error without a slot does not name the channel, so all unconfirmed subscriptions count as refused.
                slot.map_or(!entry.is_live, |slot| keys::slot(name) == slot)
            });
            channels
                .filter_map(|(name, entry)| forget(Some(entry)).then(|| Arc::clone(name)))
                .collect()
        };
        if slot.is_some() {
            self.moved(refused.iter().map(|channel| &**channel));
        }
    }

    fn moved<'a>(&self, channels: impl IntoIterator<Item = &'a str>) {
        if let Some(on_move) = &self.on_move {
            on_move();
        }
        for channel in channels {
            self.notifier.wake_all_of(channel);
        }
    }

    /// Returns whether any channel is left.
    pub(super) fn sweep(&self, state: &mut State) -> bool {
        let idle: Vec<Arc<str>> = state
            .channels
            .iter()
            .filter(|(_, channel)| {
                channel.waiters == 0
                    && channel.idle_since.is_none_or(|since| {
                        // An unconfirmed subscription is kept longer, for the reason in `Interest::drop`.
                        let is_settled = channel.was_asked == channel.is_live;
                        time::since(since) >= if is_settled { LINGER } else { LINGER * 10 }
                    })
            })
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if !idle.is_empty() {
            self.give_up(state, &idle);
        }
        !state.channels.is_empty()
    }

    pub(super) fn give_up(&self, state: &mut State, idle: &[Arc<str>]) {
        let asked = |name: &&Arc<str>| state.channels.get(*name).is_some_and(|it| it.was_asked);
        let commands = [redis::cmd("UNSUBSCRIBE"), redis::cmd("SUNSUBSCRIBE")];
        let packed = self.packed(commands, idle.iter().filter(asked));
        for name in idle {
            state.channels.remove(name);
        }
        if let Some(writer) = &mut state.writer
            && writer.send(&packed).is_err()
        {
            writer.shut_down();
        }
    }
}

/// Returns how many waiters of this client one unlock message wakes at most.
fn woken_by(channel: &str, words: &str) -> usize {
    let layouts = KINDS.into_iter().map(Layout::of);
    let mut of_channel = layouts.filter(|layout| layout.channel.begins(channel));
    let wakes = of_channel.find_map(|layout| layout.wakes);
    // For an unknown channel the limit is 1. A needless wake-up is harmless.
    wakes.map_or(1, |wakes| wakes(words))
}

/// Returns whether a SUBSCRIBE for the channel had been sent.
fn forget(entry: Option<&mut Channel>) -> bool {
    entry.is_some_and(|entry| {
        entry.is_live = false;
        std::mem::take(&mut entry.was_asked)
    })
}
