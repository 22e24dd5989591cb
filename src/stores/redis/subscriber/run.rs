//! The thread of a subscriber: connects, subscribes, and reads until the connection ends.

use std::time::{Duration, Instant};

use super::{LINGER, Shared};
use crate::ground::backoff::Backoff;
use crate::ground::{events, metrics, time};
use crate::stores::redis::transport::{CallError, Connection, encode};

const FLUSH_EVERY: Duration = Duration::from_millis(10);

const PING_AFTER: Duration = Duration::from_secs(5);

const PONG_WITHIN: Duration = Duration::from_secs(2);

/// A connection that lasted this long resets the backoff.
const LASTING: Duration = Duration::from_secs(1);

impl Shared {
    pub(super) fn run(&self) {
        let mut backoff = Backoff::default();
        while self.until_wanted() {
            let connected = self.connect();
            let begun = time::now();
            let is_connected = connected.is_ok();
            let failure = match connected {
                Ok(mut connection) => self.listen(&mut connection).inspect_err(|reason| {
                    events::subscriber_disconnected(&self.connector.master().node(), reason);
                }),
                Err(reason) => {
                    events::subscriber_cannot_connect(&self.connector.master().node(), &reason);
                    Err(reason)
                }
            };
            if failure.is_err() {
                metrics::subscriber_failed();
            }
            self.disconnect();
            // A middlebox may end each connection that subscribes, so a short connection does not reset the backoff.
            if is_connected && time::since(begun) >= LASTING {
                backoff = Backoff::default();
            } else {
                self.pause_until(begun + backoff.next());
            }
        }
    }

    /// A new waiter does not end the sleep, because the waiter polls until it is subscribed.
    fn pause_until(&self, end: Instant) {
        let mut state = self.state.lock();
        while !state.is_closed && time::now() < end {
            state = self.wanted.wait(state, Some(end));
        }
    }

    /// Returns `false` when the client is closed.
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

    pub(super) fn connect(&self) -> Result<Connection, String> {
        let deadline = time::now() + self.command_timeout;
        let connection = self.connector.connect(deadline);
        let connection = connection.map_err(|fault| fault.into_reason().into_words())?;
        let mut writer = connection.writer().map_err(|error| error.to_string())?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err("the client was shut down".to_owned());
        }
        if !state.channels.is_empty() {
            let sent = writer.send(&self.subscribe(state.channels.keys()));
            sent.map_err(|error| error.to_string())?;
        }
        for channel in state.channels.values_mut() {
            (channel.was_asked, channel.is_live) = (true, false);
        }
        state.writer = Some(writer);
        // If the master changed before `state.writer` was set, the `on_change` hook did not end this connection.
        if connection.generation != self.connector.master().generation() {
            state.writer = None;
            return Err("the master changed".to_owned());
        }
        Ok(connection)
    }

    pub(super) fn disconnect(&self) {
        let mut state = self.state.lock();
        state.writer = None;
        for channel in state.channels.values_mut() {
            (channel.was_asked, channel.is_live) = (false, false);
        }
    }

    /// Returns `Ok` if no channel is left, or if the client is closed.
    pub(super) fn listen(&self, connection: &mut Connection) -> Result<(), String> {
        let mut pinged = false;
        let mut deadline = time::now() + PING_AFTER;
        let mut sweep_at = time::now() + LINGER;
        loop {
            let has_rest = match self.flush() {
                Ok(has_rest) => has_rest,
                Err(error) => return Err(format!("sending failed: {error}")),
            };
            let now = time::now();
            if now >= sweep_at {
                // On a busy connection `receive` never times out, so idle channels are also removed here.
                self.sweep(&mut self.state.lock());
                sweep_at = now + LINGER;
            }
            let flush_at = if has_rest {
                now + FLUSH_EVERY
            } else {
                deadline
            };
            let part = deadline.min(flush_at);
            match connection.receive(part) {
                Ok(message) => {
                    self.handle(message);
                    pinged = false;
                    deadline = time::now() + PING_AFTER;
                }
                Err(fault) if fault.is_timeout() && part < deadline => {}
                // If a channel is refused, its waiters poll. The connection stays open for the other channels.
                Err(CallError::Server(text)) => {
                    events::subscriber_refused(&self.connector.master().node(), &text);
                    self.refused(&text);
                    pinged = false;
                    deadline = time::now() + PING_AFTER;
                }
                Err(fault) if fault.is_timeout() && !pinged => {
                    let mut state = self.state.lock();
                    if state.is_closed || !self.sweep(&mut state) {
                        return Ok(());
                    }
                    let writer = state.writer.as_mut();
                    if writer.is_none_or(|it| it.send(&encode(&["PING"])).is_err()) {
                        return Err("the PING could not be sent".to_owned());
                    }
                    pinged = true;
                    deadline = time::now() + PONG_WITHIN;
                }
                Err(fault) if fault.is_timeout() => return Err("no answer to PING".to_owned()),
                Err(fault) => return Err(fault.into_reason().into_words()),
            }
        }
    }

    fn flush(&self) -> std::io::Result<bool> {
        match &mut self.state.lock().writer {
            Some(writer) => writer.flush().map(|()| writer.has_rest()),
            None => Ok(false),
        }
    }
}
