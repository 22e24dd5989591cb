//! The subscriber: one thread and one connection that receive the unlock messages of one server.
//!
//! In a Cluster, messages may be sharded: the client receives them from the master of the channel's slot. When the slot
//! moves, the server ends the subscription, and the waiters are woken. Their next request finds the new server.
//!
//! A thread that begins to wait sends the SUBSCRIBE for its channel. After a reconnect, the subscriber's thread
//! subscribes to all channels that have waiters. When a subscription is confirmed, all waiters of the channel try
//! again, because messages before the confirmation were not received.

mod lazy_thread;
mod messages;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::notify::Notifier;
use crate::ground::sync::{Condvar, Mutex};
use crate::ground::time;
use crate::stores::redis::transport::{Connector, Hook, Writer};
pub(super) use lazy_thread::LazyThread;

/// A channel without waiters stays subscribed at least this long. A contended lock is likely to be contended again.
const LINGER: Duration = Duration::from_secs(2);

pub(super) struct Subscriber {
    shared: Arc<Shared>,
    thread: LazyThread,
}

struct Shared {
    connector: Arc<dyn Connector>,
    command_timeout: Duration,
    notifier: Arc<Notifier>,
    /// Called when the server reports that a slot has moved; `None` if messages are not sharded.
    on_move: Option<Hook>,
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    channels: BTreeMap<Arc<str>, Channel>,
    writer: Option<Writer>,
    is_closed: bool,
}

/// | waiters | `was_asked`, `is_live` | meaning |
/// |---|---|---|
/// | > 0 | true, true | messages arrive |
/// | > 0 | other | no confirmation yet, no connection, or the subscription was refused |
/// | 0 | any | kept for a later waiter until `Shared::sweep` or the end of the connection |
#[derive(Default)]
struct Channel {
    waiters: usize,
    /// Whether SUBSCRIBE was sent on the current connection.
    was_asked: bool,
    /// Whether the server has confirmed the subscription.
    is_live: bool,
    idle_since: Option<Instant>,
}

impl Subscriber {
    pub(super) fn new(
        connector: Arc<dyn Connector>,
        command_timeout: Duration,
        notifier: Arc<Notifier>,
        on_move: Option<Hook>,
    ) -> Subscriber {
        let shared = Arc::new(Shared {
            connector,
            command_timeout,
            notifier,
            on_move,
            state: Mutex::default(),
            wanted: Condvar::default(),
        });
        // A former master may run on, but sends no more unlock messages. So a change of master closes the connection.
        let weak = Arc::downgrade(&shared);
        shared.connector.master().on_change.add(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.hang_up();
            }
        }));
        Subscriber {
            shared,
            thread: LazyThread::default(),
        }
    }

    /// Subscribes to `channel` at least until the returned `Interest` is dropped. Also returns whether the subscription
    /// is already active. `lingers` is false for a channel of only one waiter: the drop then unsubscribes at once.
    pub(super) fn listen(&self, channel: &Arc<str>, lingers: bool) -> (Interest, bool) {
        if !self.shared.state.lock().is_closed {
            let shared = Arc::clone(&self.shared);
            self.thread
                .ensure_running("redlatch-subscribe", move || shared.run());
        }
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let entry = state.channels.entry(Arc::clone(channel)).or_default();
        entry.waiters += 1;
        entry.idle_since = None;
        self.shared.ask_for(channel, entry, state.writer.as_mut());
        let is_live = entry.is_live;
        if state.writer.is_none() {
            // Without a connection, the subscriber's thread sleeps until a channel has a waiter.
            self.shared.wanted.notify_one();
        }
        let interest = Interest {
            shared: Arc::clone(&self.shared),
            channel: Arc::clone(channel),
            lingers,
        };
        (interest, is_live)
    }

    /// Subscribes to `channel` again if its last subscription was refused.
    pub(super) fn ask_again(&self, channel: &Arc<str>) {
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        if let Some(entry) = state.channels.get_mut(channel) {
            self.shared.ask_for(channel, entry, state.writer.as_mut());
        }
    }

    pub(super) fn hears(&self, channel: &str) -> bool {
        let state = self.shared.state.lock();
        state.channels.get(channel).is_some_and(|it| it.is_live)
    }

    pub(super) fn is_down(&self) -> bool {
        let state = self.shared.state.lock();
        let mut channels = state.channels.values();
        state.writer.is_none() && channels.any(|channel| channel.waiters > 0)
    }

    pub(super) fn close(&self) {
        self.dismiss();
        self.thread.join();
    }

    /// Does not wait for the end of the thread.
    pub(super) fn dismiss(&self) {
        self.shared.state.lock().is_closed = true;
        self.shared.hang_up();
        self.shared.wanted.notify_one();
    }
}

pub(super) struct Interest {
    shared: Arc<Shared>,
    channel: Arc<str>,
    lingers: bool,
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let Some(entry) = state.channels.get_mut(&self.channel) else {
            return;
        };
        entry.waiters = entry.waiters.saturating_sub(1);
        if entry.waiters > 0 {
            return;
        }
        entry.idle_since = Some(time::now());
        // An unconfirmed subscription is kept for now. Otherwise its late confirmation could be treated as the
        // confirmation of the next subscription.
        if !self.lingers && entry.is_live {
            self.shared
                .give_up(&mut state, &[Arc::clone(&self.channel)]);
        }
    }
}

impl Shared {
    fn ask_for(&self, channel: &Arc<str>, entry: &mut Channel, writer: Option<&mut Writer>) {
        if !entry.was_asked
            && let Some(writer) = writer
        {
            if writer.send(&self.subscribe([channel])).is_ok() {
                entry.was_asked = true;
            } else {
                // The subscriber's thread notices the end of the connection, reconnects and subscribes again.
                writer.shut_down();
            }
        }
    }

    fn subscribe<'a>(&self, channels: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<u8> {
        let commands = [redis::cmd("SUBSCRIBE"), redis::cmd("SSUBSCRIBE")];
        self.packed(commands, channels)
    }

    /// Each channel has its own command, because the server may refuse one channel and accept another.
    fn packed<'a>(
        &self,
        [plain, sharded]: [redis::Cmd; 2],
        channels: impl IntoIterator<Item = &'a Arc<str>>,
    ) -> Vec<u8> {
        let is_sharded = self.on_move.is_some();
        let command = if is_sharded { sharded } else { plain };
        let mut packed = Vec::new();
        for channel in channels {
            let mut command = command.clone();
            command.arg(&**channel).write_packed_command(&mut packed);
        }
        packed
    }

    /// The thread then reconnects.
    fn hang_up(&self) {
        if let Some(writer) = &self.state.lock().writer {
            writer.shut_down();
        }
    }
}
