//! The subscriber: one thread and one connection that listen for the unlock messages of one server.
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

use super::route::Route;
use super::wire::{Fault, Wire, Writer};
use crate::signals::Signals;
use crate::sync::{Condvar, Mutex};
use crate::trace;
use crate::wait::Backoff;

/// A connection this long without a word is asked whether it lives.
const PING_AFTER: Duration = Duration::from_secs(5);

/// How long it has for the answer.
const PONG_WITHIN: Duration = Duration::from_secs(2);

/// A channel stays subscribed for this long after its last waiter, because contended names stay contended.
const LINGER: Duration = Duration::from_secs(2);

pub(super) struct Subscriber {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    route: Arc<dyn Route>,
    command_timeout: Duration,
    signals: Arc<Signals>,
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    /// The writing end of the present connection.
    writer: Option<Writer>,
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
        route: Arc<dyn Route>,
        command_timeout: Duration,
        signals: Arc<Signals>,
    ) -> Subscriber {
        Subscriber {
            shared: Arc::new(Shared {
                route,
                command_timeout,
                signals,
                state: Mutex::default(),
                wanted: Condvar::default(),
            }),
            thread: Mutex::default(),
        }
    }

    /// Wishes for the messages of `channel`, until the wish is dropped. Returns whether they arrive already.
    pub(super) fn listen(&self, channel: &Arc<str>) -> (Wish, bool) {
        self.ensure_running();
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let entry = state.channels.entry(Arc::clone(channel)).or_default();
        entry.waiters += 1;
        entry.idle_since = None;
        if entry.asked == 0
            && let Some(writer) = &state.writer
        {
            if writer.send(&subscribe(std::iter::once(channel))).is_ok() {
                entry.asked = 1;
            } else {
                // The thread sees the end of the connection, makes another and subscribes there.
                writer.shut_down();
            }
        }
        let is_live = entry.is_live();
        self.shared.wanted.notify_one();
        let wish = Wish {
            shared: Arc::clone(&self.shared),
            channel: Arc::clone(channel),
        };
        (wish, is_live)
    }

    /// Whether the present connection listens to `channel`.
    pub(super) fn hears(&self, channel: &str) -> bool {
        let state = self.shared.state.lock();
        state.channels.get(channel).is_some_and(Channel::is_live)
    }

    fn ensure_running(&self) {
        let mut thread = self.thread.lock();
        if thread.is_some() || self.shared.state.lock().is_closed {
            return;
        }
        let shared = Arc::clone(&self.shared);
        match thread::Builder::new()
            .name("redlatch-subscribe".to_owned())
            .spawn(move || shared.run())
        {
            Ok(handle) => *thread = Some(handle),
            // Waiters then look for themselves, once a second.
            Err(error) => trace::subscriber_cannot_start(&error),
        }
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            if let Some(writer) = state.writer.take() {
                writer.shut_down();
            }
        }
        self.shared.wanted.notify_one();
        if let Some(handle) = self.thread.lock().take()
            && handle.thread().id() != thread::current().id()
        {
            // It does not panic; if it did, waiters had their own look once a second.
            let _ = handle.join();
        }
    }
}

/// The wish of one waiter to hear the messages of one channel.
pub(super) struct Wish {
    shared: Arc<Shared>,
    channel: Arc<str>,
}

impl Drop for Wish {
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
    fn run(&self) {
        let mut backoff = Backoff::default();
        while self.until_wanted() {
            match self.connect() {
                Ok(mut wire) => {
                    backoff = Backoff::default();
                    let reason = self.listen(&mut wire);
                    trace::subscriber_disconnected(&self.route.node(), &reason);
                }
                Err(reason) => {
                    trace::subscriber_cannot_connect(&self.route.node(), &reason);
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
    fn connect(&self) -> Result<Wire, String> {
        let until = Instant::now() + self.command_timeout;
        let wire = self.route.connect(until).map_err(super::reason_of)?;
        let writer = wire.writer().map_err(|error| error.to_string())?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err("the client was shut down".to_owned());
        }
        if !state.channels.is_empty() {
            writer
                .send(&subscribe(state.channels.keys()))
                .map_err(|error| error.to_string())?;
        }
        for channel in state.channels.values_mut() {
            channel.asked = 1;
            channel.confirmed = 0;
        }
        state.writer = Some(writer);
        Ok(wire)
    }

    fn disconnect(&self) {
        let mut state = self.state.lock();
        state.writer = None;
        for channel in state.channels.values_mut() {
            channel.asked = 0;
            channel.confirmed = 0;
        }
    }

    /// Reads until the connection ends. Returns why it did.
    fn listen(&self, wire: &mut Wire) -> String {
        let mut pinged = false;
        let mut until = Instant::now() + PING_AFTER;
        loop {
            match wire.receive(until) {
                Ok(message) => {
                    self.hear(message);
                    pinged = false;
                    until = Instant::now() + PING_AFTER;
                }
                // A user without the right to a channel still hears the others, and looks for itself meanwhile.
                Err(Fault::Server(text)) => {
                    trace::subscriber_refused(&self.route.node(), &text);
                    pinged = false;
                    until = Instant::now() + PING_AFTER;
                }
                Err(Fault::NoReply {
                    timed_out: true, ..
                }) if !pinged => {
                    let mut state = self.state.lock();
                    if state.is_closed {
                        return "closed".to_owned();
                    }
                    if !sweep(&mut state) {
                        return "nobody listens any more".to_owned();
                    }
                    let sent = state.writer.as_ref().is_some_and(|writer| {
                        writer
                            .send(&redis::cmd("PING").get_packed_command())
                            .is_ok()
                    });
                    if !sent {
                        return "the PING could not be sent".to_owned();
                    }
                    pinged = true;
                    until = Instant::now() + PONG_WITHIN;
                }
                Err(Fault::NoReply {
                    timed_out: true, ..
                }) => return "no answer to PING".to_owned(),
                Err(fault) => return super::reason_of(fault),
            }
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
            "message" => match parts.next().as_deref() {
                // Redisson's "read unlock", which is for everybody.
                Some("1") => self.signals.release_all(&channel),
                _ => self.signals.release(&channel),
            },
            "subscribe" => {
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
                    self.signals.release_all(&channel);
                }
            }
            _ => {}
        }
    }
}

/// Gives up channels that nobody has waited on for a while. Returns whether any is left.
fn sweep(state: &mut State) -> bool {
    let idle: Vec<Arc<str>> = state
        .channels
        .iter()
        .filter(|(_, channel)| {
            channel.waiters == 0
                && channel
                    .idle_since
                    .is_none_or(|since| since.elapsed() >= LINGER)
        })
        .map(|(name, _)| Arc::clone(name))
        .collect();
    if !idle.is_empty() {
        let mut unsubscribe = redis::cmd("UNSUBSCRIBE");
        for name in &idle {
            unsubscribe.arg(&**name);
            state.channels.remove(name);
        }
        if let Some(writer) = &state.writer
            && writer.send(&unsubscribe.get_packed_command()).is_err()
        {
            writer.shut_down();
        }
    }
    !state.channels.is_empty()
}

fn subscribe<'a>(channels: impl Iterator<Item = &'a Arc<str>>) -> Vec<u8> {
    let mut command = redis::cmd("SUBSCRIBE");
    for channel in channels {
        command.arg(&**channel);
    }
    command.get_packed_command()
}
