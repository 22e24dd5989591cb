//! The subscriber: one thread and one connection that listen for the unlock messages of one server.
//!
//! In a cluster a message may be sharded: it is heard at the server that has the slot of the channel. When the slot goes
//! to another server this one says so, and the waiters are woken: their next request finds where it went.
//!
//! The channels that are wanted (those with waiters) are kept apart from the subscriptions on the present connection,
//! and the two are brought together: by the waiter that writes its SUBSCRIBE itself, while the thread reads, and by the
//! thread after each reconnect. Whenever a subscription is confirmed all waiters of the channel try once more, because
//! messages before it were not heard. A server that does not answer a PING in time is taken for gone.

mod listener_thread;
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
pub(super) use listener_thread::ListenerThread;

/// A channel stays subscribed for this long after its last waiter, because contended names stay contended.
const LINGER: Duration = Duration::from_secs(2);

pub(super) struct Subscriber {
    shared: Arc<Shared>,
    thread: ListenerThread,
}

struct Shared {
    connector: Arc<dyn Connector>,
    command_timeout: Duration,
    notifier: Arc<Notifier>,
    /// Called when the server says that a slot is elsewhere; `None` if messages are not sharded.
    on_move: Option<Hook>,
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    channels: BTreeMap<Arc<str>, Channel>,
    /// The writing end of the present connection.
    writer: Option<Writer>,
    /// Sharded channels that were given up here and are still to be confirmed.
    leaving: BTreeMap<Arc<str>, u32>,
    is_closed: bool,
}

/// | waiters | asked == confirmed | meaning |
/// |---|---|---|
/// | > 0 | yes, > 0 | live: messages arrive |
/// | > 0 | no | a confirmation is on its way, or there is no connection |
/// | 0 | any | lingers until `idle_since + linger`, unless it is for one waiter alone |
#[derive(Default)]
struct Channel {
    waiters: usize,
    /// SUBSCRIBEs sent on the present connection, and those confirmed.
    asked: u32,
    confirmed: u32,
    idle_since: Option<Instant>,
}

impl Channel {
    fn is_live(&self) -> bool {
        self.asked > 0 && self.asked == self.confirmed
    }
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
        // The former master may live on, and say nothing for ever.
        let weak = Arc::downgrade(&shared);
        shared.connector.master().on_change(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.hang_up();
            }
        }));
        Subscriber {
            shared,
            thread: ListenerThread::default(),
        }
    }

    /// Asks for the messages of `channel`, until the interest is dropped. Returns whether they arrive already. One that does
    /// not linger is for one waiter alone.
    pub(super) fn listen(&self, channel: &Arc<str>, lingers: bool) -> (Interest, bool) {
        self.ensure_running();
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let entry = state.channels.entry(Arc::clone(channel)).or_default();
        entry.waiters += 1;
        entry.idle_since = None;
        self.shared.ask_for(channel, entry, state.writer.as_mut());
        let is_live = entry.is_live();
        if state.writer.is_none() {
            // The thread sleeps until somebody wants something, or until it connects again.
            self.shared.wanted.notify_one();
        }
        let interest = Interest {
            shared: Arc::clone(&self.shared),
            channel: Arc::clone(channel),
            lingers,
        };
        (interest, is_live)
    }

    /// Asks for the messages of `channel` once more, if somebody waits for them and they were refused here.
    pub(super) fn ask_again(&self, channel: &Arc<str>) {
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        if let Some(entry) = state.channels.get_mut(channel) {
            self.shared.ask_for(channel, entry, state.writer.as_mut());
        }
    }

    /// Whether the present connection listens to `channel`.
    pub(super) fn hears(&self, channel: &str) -> bool {
        let state = self.shared.state.lock();
        state.channels.get(channel).is_some_and(Channel::is_live)
    }

    /// Whether somebody waits for messages, and there is no connection that they come over.
    pub(super) fn is_down(&self) -> bool {
        let state = self.shared.state.lock();
        let mut channels = state.channels.values();
        state.writer.is_none() && channels.any(|channel| channel.waiters > 0)
    }

    fn ensure_running(&self) {
        if !self.shared.state.lock().is_closed {
            let shared = Arc::clone(&self.shared);
            self.thread
                .ensure_running("redlatch-subscribe", move || shared.run());
        }
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.dismiss();
        self.thread.join();
    }

    /// Has the thread end, and does not wait for it.
    pub(super) fn dismiss(&self) {
        self.shared.state.lock().is_closed = true;
        self.shared.hang_up();
        self.shared.wanted.notify_one();
    }

    /// Whether its thread has ended, or never begun.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_over()
    }
}

/// The interest of one waiter in the messages of one channel.
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
        // The confirmation of one that comes back so soon would not be known from that of this one.
        if !self.lingers && entry.is_live() {
            self.shared
                .give_up(&mut state, &[Arc::clone(&self.channel)]);
        }
    }
}

impl Shared {
    /// Asks for the messages of a channel, if that was not done yet.
    fn ask_for(&self, channel: &Arc<str>, entry: &mut Channel, writer: Option<&mut Writer>) {
        if entry.asked == 0
            && let Some(writer) = writer
        {
            if writer.send(&self.subscribe([channel])).is_ok() {
                entry.asked = 1;
            } else {
                // The thread sees the end of the connection, makes another and subscribes there.
                writer.shut_down();
            }
        }
    }

    fn subscribe<'a>(&self, channels: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<u8> {
        self.packed(
            [redis::cmd("SUBSCRIBE"), redis::cmd("SSUBSCRIBE")],
            channels,
        )
    }

    /// One command for each channel, because they are refused one by one: the slot is elsewhere, or the user has no right to
    /// it.
    fn packed<'a>(
        &self,
        [plain, sharded]: [redis::Cmd; 2],
        channels: impl IntoIterator<Item = &'a Arc<str>>,
    ) -> Vec<u8> {
        let command = if self.on_move.is_some() {
            sharded
        } else {
            plain
        };
        let mut packed = Vec::new();
        for channel in channels {
            let mut command = command.clone();
            command.arg(&**channel).write_packed_command(&mut packed);
        }
        packed
    }

    /// Ends the present connection; its reader makes another one.
    fn hang_up(&self) {
        if let Some(writer) = &self.state.lock().writer {
            writer.shut_down();
        }
    }
}
