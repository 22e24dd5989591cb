//! The messages of a server to a subscriber, how many waiters an unlock message wakes, and the channels that are given up.

use std::sync::Arc;

use redis::Value;

use super::{Channel, LINGER, Shared, State};
use crate::ground::{numbers, time};
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
                numbers::message(if woken > 0 { "woke" } else { "nobody" });
            }
            "sunsubscribe" => self.unsubscribed(&channel),
            "subscribe" | "ssubscribe" => {
                let is_live = {
                    let mut state = self.state.lock();
                    match state.channels.get_mut(channel.as_str()) {
                        Some(entry) => {
                            entry.confirmed += 1;
                            entry.is_live()
                        }
                        None => false,
                    }
                };
                if is_live {
                    self.notifier.have_look(&channel);
                }
            }
            _ => {}
        }
    }

    /// The server says that it listens to a sharded channel no more. If nobody asked for that, its slot is elsewhere.
    fn unsubscribed(&self, channel: &str) {
        let is_moved = {
            let mut state = self.state.lock();
            match state.leaving.get_mut(channel) {
                Some(leaving) => {
                    *leaving -= 1;
                    if *leaving == 0 {
                        state.leaving.remove(channel);
                    }
                    false
                }
                None => forget(state.channels.get_mut(channel)),
            }
        };
        if is_moved {
            self.moved([channel]);
        }
    }

    /// Some subscription was refused. If the server names the slot, it is not its own.
    pub(super) fn refused(&self, text: &str) {
        if self.on_move.is_none() {
            return;
        }
        let slot = text
            .strip_prefix("MOVED ")
            .and_then(|rest| rest.split(' ').next()?.parse::<u16>().ok());
        let refused: Vec<Arc<str>> = {
            let mut state = self.state.lock();
            // To give a channel up may be refused as well.
            state
                .leaving
                .retain(|name, _| slot.is_none_or(|slot| keys::slot(name) != slot));
            let channels = state.channels.iter_mut().filter(|(name, entry)| {
                // Of any other refusal it is not known which of those without an answer it is for.
                slot.map_or(!entry.is_live(), |slot| keys::slot(name) == slot)
            });
            channels
                .filter_map(|(name, entry)| forget(Some(entry)).then(|| Arc::clone(name)))
                .collect()
        };
        if slot.is_some() {
            self.moved(refused.iter().map(|channel| &**channel));
        }
    }

    /// Wakes those who wait for channels that are elsewhere now: they find out where.
    fn moved<'a>(&self, channels: impl IntoIterator<Item = &'a str>) {
        if let Some(on_move) = &self.on_move {
            on_move();
        }
        for channel in channels {
            self.notifier.have_look(channel);
        }
    }

    /// Gives up channels that nobody has waited on for a while. Returns whether any is left.
    pub(super) fn sweep(&self, state: &mut State) -> bool {
        let idle: Vec<Arc<str>> = state
            .channels
            .iter()
            .filter(|(_, channel)| {
                channel.waiters == 0
                    && channel.idle_since.is_none_or(|since| {
                        // Else a confirmation that is on its way would be taken for that of the next subscription.
                        let is_settled = channel.asked == channel.confirmed;
                        time::since(since) >= if is_settled { LINGER } else { LINGER * 10 }
                    })
            })
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if idle.is_empty() {
            return !state.channels.is_empty();
        }
        self.give_up(state, &idle);
        !state.channels.is_empty()
    }

    /// Listens to these channels no more.
    pub(super) fn give_up(&self, state: &mut State, idle: &[Arc<str>]) {
        let asked = |name: &&Arc<str>| state.channels.get(*name).is_some_and(|it| it.asked > 0);
        let asked: Vec<_> = idle.iter().filter(asked).collect();
        if self.on_move.is_some() {
            for name in &asked {
                *state.leaving.entry(Arc::clone(name)).or_default() += 1;
            }
        }
        let commands = [redis::cmd("UNSUBSCRIBE"), redis::cmd("SUNSUBSCRIBE")];
        let packed = self.packed(commands, asked);
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

/// How many waiters of this client an unlock message on this channel is for, in the order in which they came.
fn woken_by(channel: &str, words: &str) -> usize {
    let layouts = KINDS.into_iter().map(Layout::of);
    let mut of_channel = layouts.filter(|layout| layout.channel.begins(channel));
    let wakes = of_channel.find_map(|layout| layout.wakes);
    // A message is no more than a hint.
    wakes.map_or(1, |wakes| wakes(words))
}

/// Notes that a channel is not listened to. Returns whether it was, or was about to be.
fn forget(entry: Option<&mut Channel>) -> bool {
    entry.is_some_and(|entry| {
        entry.confirmed = 0;
        std::mem::take(&mut entry.asked) > 0
    })
}
