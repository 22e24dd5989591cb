//! The subscriber: one thread and one connection that listen for the unlock messages of one server.
//!
//! In a cluster a message may be sharded: it is heard at the server that has the slot of the channel. When the slot goes
//! to another server this one says so, and the waiters are woken: their next request finds where it went.
//!
//! What is wanted (channels with waiters) is kept apart from what is (subscriptions on the present connection), and
//! the two are brought together: by the waiter that writes its SUBSCRIBE itself, while the thread reads, and by the
//! thread after each reconnect. Whenever a subscription is confirmed all waiters of the channel try once more, because
//! messages before it were not heard. A server that does not answer a PING in time is taken for gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::backoff::Backoff;
use crate::ground::events;
use crate::ground::notify::Notifier;
use crate::ground::sync::{Condvar, Mutex};
use crate::stores::redis::keys;
use crate::stores::redis::topology::connector::{Connector, Hook};
use crate::stores::redis::transport::connection::{CallError, Connection, Writer};

/// A connection this long without a word is asked whether it lives.
const PING_AFTER: Duration = Duration::from_secs(5);

/// How long it has for the answer.
const PONG_WITHIN: Duration = Duration::from_secs(2);

/// A channel stays subscribed for this long after its last waiter, because contended names stay contended.
const LINGER: Duration = Duration::from_secs(2);

/// As long as something could not be sent, it is tried again this often, and after each message.
const FLUSH_EVERY: Duration = Duration::from_millis(10);

/// How long the names in one command are together, about.
const MOST_OF_A_COMMAND: usize = 2048;

/// The thread of something that listens, started when it is first needed.
#[derive(Default)]
pub(super) struct ListenerThread(Mutex<Option<JoinHandle<()>>>);

impl ListenerThread {
    pub(super) fn ensure_running(&self, name: &str, run: impl FnOnce() + Send + 'static) {
        let mut thread = self.0.lock();
        if thread.is_some() {
            return;
        }
        match thread::Builder::new().name(name.to_owned()).spawn(run) {
            Ok(handle) => *thread = Some(handle),
            // Waiters then look for themselves, once a second.
            Err(error) => events::subscriber_cannot_start(&error),
        }
    }

    fn is_over(&self) -> bool {
        self.0.lock().as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the thread, which was told to end.
    pub(super) fn join(&self) {
        if let Some(handle) = self.0.lock().take()
            && handle.thread().id() != thread::current().id()
        {
            // It does not panic; if it did, waiters had their own look once a second.
            let _ = handle.join();
        }
    }
}

pub(super) struct Subscriber {
    shared: Arc<Shared>,
    ear: ListenerThread,
}

struct Shared {
    connector: Arc<dyn Connector>,
    command_timeout: Duration,
    notifier: Arc<Notifier>,
    /// `None` if messages are not sharded.
    shards: Option<Shards>,
    state: Mutex<State>,
    wanted: Condvar,
}

/// What a subscriber of sharded messages needs.
pub(super) struct Shards {
    /// Called when the server says that a slot is elsewhere.
    pub(super) on_move: Hook,
}

#[derive(Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    /// The writing end of the present connection.
    writer: Option<Writer>,
    /// Sharded channels that were given up here and are still to be confirmed.
    leaving: HashMap<Arc<str>, u32>,
    is_closed: bool,
}

/// | waiters | asked == confirmed | meaning |
/// |---|---|---|
/// | > 0 | yes, > 0 | live: messages arrive |
/// | > 0 | no | a confirmation is on its way, or there is no connection |
/// | 0 | any | lingers until `idle_since + LINGER` |
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
        shards: Option<Shards>,
    ) -> Subscriber {
        let shared = Arc::new(Shared {
            connector,
            command_timeout,
            notifier,
            shards,
            state: Mutex::default(),
            wanted: Condvar::default(),
        });
        // What was the master may live on, and say nothing for ever.
        let weak = Arc::downgrade(&shared);
        shared.connector.on_change(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.hang_up();
            }
        }));
        Subscriber {
            shared,
            ear: ListenerThread::default(),
        }
    }

    /// Wishes for the messages of `channel`, until the wish is dropped. Returns whether they arrive already.
    pub(super) fn listen(&self, channel: &Arc<str>) -> (Interest, bool) {
        self.ensure_running();
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let entry = state.channels.entry(Arc::clone(channel)).or_default();
        entry.waiters += 1;
        entry.idle_since = None;
        self.shared.ask_for(channel, entry, state.writer.as_mut());
        let is_live = entry.is_live();
        self.shared.wanted.notify_one();
        let wish = Interest {
            shared: Arc::clone(&self.shared),
            channel: Arc::clone(channel),
        };
        (wish, is_live)
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

    fn ensure_running(&self) {
        if !self.shared.state.lock().is_closed {
            let shared = Arc::clone(&self.shared);
            self.ear
                .ensure_running("redlatch-subscribe", move || shared.run());
        }
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.dismiss();
        self.ear.join();
    }

    /// Has the thread end, and does not wait for it.
    pub(super) fn dismiss(&self) {
        self.shared.state.lock().is_closed = true;
        self.shared.hang_up();
        self.shared.wanted.notify_one();
    }

    /// Whether its thread has ended, or never begun.
    pub(super) fn is_over(&self) -> bool {
        self.ear.is_over()
    }
}

/// The wish of one waiter to hear the messages of one channel.
pub(super) struct Interest {
    shared: Arc<Shared>,
    channel: Arc<str>,
}

impl Drop for Interest {
    fn drop(&mut self) {
        if let Some(entry) = self.shared.state.lock().channels.get_mut(&self.channel) {
            entry.waiters = entry.waiters.saturating_sub(1);
            if entry.waiters == 0 {
                entry.idle_since = Some(Instant::now());
            }
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
        let mut packed = Vec::new();
        if self.shards.is_some() {
            // One command each, because they may be refused one by one.
            for channel in channels {
                let mut command = redis::cmd("SSUBSCRIBE");
                command.arg(&**channel).write_packed_command(&mut packed);
            }
        } else {
            pack_together(|| redis::cmd("SUBSCRIBE"), channels, &mut packed);
        }
        packed
    }

    /// Ends the present connection; its reader makes another one.
    fn hang_up(&self) {
        if let Some(writer) = &self.state.lock().writer {
            writer.shut_down();
        }
    }

    fn run(&self) {
        let mut backoff = Backoff::default();
        while self.until_wanted() {
            match self.connect() {
                Ok(mut connection) => {
                    backoff = Backoff::default();
                    let reason = self.listen(&mut connection);
                    events::subscriber_disconnected(&self.connector.node(), &reason);
                }
                Err(reason) => {
                    events::subscriber_cannot_connect(&self.connector.node(), &reason);
                    let state = self.state.lock();
                    if !state.is_closed {
                        let again_at = Instant::now() + backoff.next();
                        drop(self.wanted.wait(state, Some(again_at)));
                    }
                }
            }
            self.disconnect();
        }
    }

    /// Sleeps until somebody wants something; false when the client is closed.
    fn until_wanted(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return false;
            }
            state.channels.retain(|_, channel| channel.waiters > 0);
            if !state.channels.is_empty() {
                return true;
            }
            state = self.wanted.wait(state, None);
        }
    }

    /// Connects, and asks for all that is wanted.
    fn connect(&self) -> Result<Connection, String> {
        let deadline = Instant::now() + self.command_timeout;
        let connection = self
            .connector
            .connect(deadline)
            .map_err(|fault| super::reason_of(fault).into_words())?;
        let mut writer = connection.writer().map_err(|error| error.to_string())?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err("the client was shut down".to_owned());
        }
        if !state.channels.is_empty() {
            writer
                .send(&self.subscribe(state.channels.keys()))
                .map_err(|error| error.to_string())?;
        }
        for channel in state.channels.values_mut() {
            channel.asked = 1;
            channel.confirmed = 0;
        }
        state.writer = Some(writer);
        // Whoever found another master meanwhile has found no writer to hang up.
        if connection.generation != self.connector.generation() {
            return Err("the master changed".to_owned());
        }
        Ok(connection)
    }

    fn disconnect(&self) {
        let mut state = self.state.lock();
        state.writer = None;
        state.leaving.clear();
        for channel in state.channels.values_mut() {
            channel.asked = 0;
            channel.confirmed = 0;
        }
    }

    /// Reads until the connection ends. Returns why it did.
    fn listen(&self, connection: &mut Connection) -> String {
        let mut pinged = false;
        let mut deadline = Instant::now() + PING_AFTER;
        let mut sweep_at = Instant::now() + LINGER;
        loop {
            let has_rest = match self.flush() {
                Ok(has_rest) => has_rest,
                Err(error) => return format!("sending failed: {error}"),
            };
            let now = Instant::now();
            if now >= sweep_at {
                // However much is heard of others.
                self.sweep(&mut self.state.lock());
                sweep_at = now + LINGER;
            }
            let flush_at = now + FLUSH_EVERY;
            let part = if has_rest {
                deadline.min(flush_at)
            } else {
                deadline
            };
            match connection.receive(part) {
                Ok(message) => {
                    self.hear(message);
                    pinged = false;
                    deadline = Instant::now() + PING_AFTER;
                }
                Err(CallError::NoReply {
                    timed_out: true, ..
                }) if part < deadline => {}
                // A user without the right to a channel still hears the others, and looks for itself meanwhile.
                Err(CallError::Server(text)) => {
                    events::subscriber_refused(&self.connector.node(), &text);
                    self.refused(&text);
                    pinged = false;
                    deadline = Instant::now() + PING_AFTER;
                }
                Err(CallError::NoReply {
                    timed_out: true, ..
                }) if !pinged => {
                    let mut state = self.state.lock();
                    if state.is_closed {
                        return "closed".to_owned();
                    }
                    if !self.sweep(&mut state) {
                        return "nobody listens any more".to_owned();
                    }
                    let sent = state.writer.as_mut().is_some_and(|writer| {
                        writer
                            .send(&redis::cmd("PING").get_packed_command())
                            .is_ok()
                    });
                    if !sent {
                        return "the PING could not be sent".to_owned();
                    }
                    pinged = true;
                    deadline = Instant::now() + PONG_WITHIN;
                }
                Err(CallError::NoReply {
                    timed_out: true, ..
                }) => return "no answer to PING".to_owned(),
                Err(fault) => return super::reason_of(fault).into_words(),
            }
        }
    }

    /// Sends what could not be sent before. Returns whether there is still something.
    fn flush(&self) -> std::io::Result<bool> {
        match &mut self.state.lock().writer {
            Some(writer) => writer.flush().map(|()| writer.has_rest()),
            None => Ok(false),
        }
    }

    fn hear(&self, message: Value) {
        let Value::Array(parts) = message else { return };
        let mut parts = parts.into_iter().map(|part| match part {
            Value::BulkString(bytes) => String::from_utf8(bytes).unwrap_or_default(),
            _ => String::new(),
        });
        let (Some(kind), Some(channel)) = (parts.next(), parts.next()) else {
            return;
        };
        match kind.as_str() {
            "message" | "smessage" => match parts.next().as_deref() {
                // Redisson's "read unlock", which is for everybody.
                Some("1") => self.notifier.release_all(&channel),
                _ => self.notifier.release(&channel),
            },
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
                    self.notifier.release_all(&channel);
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
    fn refused(&self, text: &str) {
        if self.shards.is_none() {
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
        if let Some(shards) = &self.shards {
            (shards.on_move)();
        }
        for channel in channels {
            self.notifier.release_all(channel);
        }
    }

    /// Gives up channels that nobody has waited on for a while. Returns whether any is left.
    fn sweep(&self, state: &mut State) -> bool {
        let idle: Vec<Arc<str>> = state
            .channels
            .iter()
            .filter(|(_, channel)| {
                channel.waiters == 0
                    && channel.idle_since.is_none_or(|since| {
                        // Else a confirmation that is on its way would be taken for that of the next subscription.
                        let is_settled = channel.asked == channel.confirmed;
                        since.elapsed() >= if is_settled { LINGER } else { LINGER * 10 }
                    })
            })
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if idle.is_empty() {
            return !state.channels.is_empty();
        }
        let mut packed = Vec::new();
        if self.shards.is_some() {
            for name in &idle {
                if state.channels.get(name).is_some_and(|it| it.asked > 0) {
                    let mut unsubscribe = redis::cmd("SUNSUBSCRIBE");
                    unsubscribe.arg(&**name).write_packed_command(&mut packed);
                    *state.leaving.entry(Arc::clone(name)).or_default() += 1;
                }
            }
        } else {
            pack_together(|| redis::cmd("UNSUBSCRIBE"), &idle, &mut packed);
        }
        for name in &idle {
            state.channels.remove(name);
        }
        if let Some(writer) = &mut state.writer
            && writer.send(&packed).is_err()
        {
            writer.shut_down();
        }
        !state.channels.is_empty()
    }
}

/// Packs commands for all channels, each of a few: the server answers those that it has as a whole.
fn pack_together<'a>(
    command: fn() -> redis::Cmd,
    channels: impl IntoIterator<Item = &'a Arc<str>>,
    packed: &mut Vec<u8>,
) {
    let mut channels = channels.into_iter().peekable();
    while channels.peek().is_some() {
        let mut command = command();
        let mut length = 0;
        while let Some(channel) = channels.next_if(|_| length < MOST_OF_A_COMMAND) {
            length += channel.len();
            command.arg(&**channel);
        }
        command.write_packed_command(packed);
    }
}

/// Notes that a channel is not listened to. Returns whether it was, or was about to be.
fn forget(entry: Option<&mut Channel>) -> bool {
    entry.is_some_and(|entry| {
        entry.confirmed = 0;
        std::mem::take(&mut entry.asked) > 0
    })
}
