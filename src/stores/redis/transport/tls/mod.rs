//! TLS sessions, with rustls.
//!
//! The session is behind a mutex, because one thread may write while another thread reads. The mutex is not held during
//! blocking socket calls. A dropped connection sends no `close_notify`, because a forked child would thereby end the
//! session of its parent.

mod config;
mod refusal;
mod verifier;

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::ground::error::Reason;
use crate::ground::sync::Mutex;
use crate::ground::time;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::socket::{Socket, is_timeout, passes};
use config::Shared;
pub(crate) use config::{Peer, Pem, TlsConfig};
use refusal::{Refusal, refusal};
use verifier::days_left;

const BLOCK: usize = 4096;

/// `is_stale` reads at most this many blocks of [`BLOCK`] bytes from an idle connection.
const MOST_UNASKED: u32 = 16;

pub(super) struct Session {
    connection: Arc<Mutex<ClientConnection>>,
    /// The bytes that were read from the socket and are not decrypted yet.
    incoming: Vec<u8>,
    refusal: Option<Refusal>,
    shared: Arc<Shared>,
}

impl Session {
    pub(super) fn open(
        peer: &Peer,
        socket: &Socket,
        deadline: Instant,
    ) -> Result<Session, CallError> {
        let name = ServerName::try_from(String::from(&*peer.host)).map_err(|_| {
            CallError::Untrusted("its host cannot be the name in a certificate".into())
        })?;
        let mut connection = ClientConnection::new(peer.shared.config(deadline)?, name)
            .map_err(|error| CallError::NotSent(error.to_string().into()))?;
        // No limit is necessary, because `drain` removes encrypted bytes at once.
        connection.set_buffer_limit(None);
        let mut session = Session {
            connection: Arc::new(Mutex::new(connection)),
            incoming: Vec::new(),
            refusal: None,
            shared: Arc::clone(&peer.shared),
        };
        match session.shake_hands(socket, deadline) {
            Ok(()) => Ok(session),
            Err(error) => Err(match session.refusal.take() {
                Some(refusal) => session.fault_of(refusal, Some(error)),
                None if is_timeout(&error) => CallError::NotSent(
                    "the TLS handshake got no reply in time; check that this is the server's TLS port"
                        .into(),
                ),
                None => CallError::NotSent(Reason::of_io(
                    format!(
                        "the TLS handshake failed (a server at maxclients ends it like this, too): {error}"
                    ),
                    error,
                )),
            }),
        }
    }

    /// The deadline is necessary: a server without TLS may read the ClientHello as a part of a line, and never reply.
    fn shake_hands(&mut self, mut socket: &Socket, deadline: Instant) -> io::Result<()> {
        let left = || match deadline.saturating_duration_since(time::now()) {
            left if left.is_zero() => Err(io::Error::from(io::ErrorKind::TimedOut)),
            left => Ok(left),
        };
        loop {
            let outgoing = drain(&mut self.connection.lock())?;
            let mut rest = &*outgoing;
            while !rest.is_empty() {
                socket.set_write_timeout(left()?)?;
                match socket.write(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                    Err(error) if passes(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            if !self.connection.lock().is_handshaking() {
                return Ok(());
            }
            socket.set_read_timeout(left()?.max(Duration::from_millis(1)))?;
            match self.fill(socket) {
                Ok(true) => self.decrypt(socket)?,
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns false at the end of the stream.
    fn fill(&mut self, mut socket: &Socket) -> io::Result<bool> {
        self.incoming.resize(BLOCK, 0);
        let read = socket.read(&mut self.incoming);
        self.incoming.truncate(*read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    fn decrypt(&mut self, socket: &Socket) -> io::Result<()> {
        let mut connection = self.connection.lock();
        let mut rest = &*self.incoming;
        let decrypted = decrypt(&mut connection, &mut rest);
        let taken = self.incoming.len() - rest.len();
        self.incoming.drain(..taken);
        decrypted.map_err(|error| {
            if let Ok(alert) = drain(&mut connection) {
                let _ = socket.send_some(&alert);
            }
            self.refusal = refusal(&error);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    /// Reads from the socket at most once, so that the caller can check its deadline between two calls.
    pub(super) fn read(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.lock().reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // RESP marks the end of each reply, so a stream may end without close_notify.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.incoming.is_empty() {
                break;
            }
            self.decrypt(socket)?;
        }
        if !self.fill(socket)? {
            return Ok(0);
        }
        self.decrypt(socket)?;
        match self.connection.lock().reader().read(buffer) {
            // The record is incomplete, or has no application data.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::Interrupted.into())
            }
            read => read,
        }
    }

    /// Whether `read` may return bytes without a read from the socket.
    pub(super) fn has_buffered(&self) -> bool {
        !self.incoming.is_empty() || has_something(&mut self.connection.lock())
    }

    /// Session tickets are read and ignored. The caller must check first that no bytes are buffered.
    pub(super) fn is_stale(&self, socket: &Socket) -> bool {
        let mut connection = self.connection.lock();
        let mut block = [0; BLOCK];
        for _ in 0..MOST_UNASKED {
            let mut rest = match socket.receive_now(&mut block) {
                Ok(0) => return true,
                Ok(received) => block.get(..received).unwrap_or_default(),
                Err(error) => return !passes(&error),
            };
            if decrypt(&mut connection, &mut rest).is_err() || has_something(&mut connection) {
                return true;
            }
        }
        true
    }

    /// Called after a failure. In TLS 1.3, the server refuses a client certificate only after the client has completed
    /// its handshake, so the refusal may still be unread.
    pub(super) fn refusal(&mut self, socket: &Socket) -> Option<CallError> {
        let mut block = [0; BLOCK];
        if self.refusal.is_none()
            && let Ok(received) = socket.receive_now(&mut block)
        {
            let mut rest = block.get(..received).unwrap_or_default();
            if let Err(error) = decrypt(&mut self.connection.lock(), &mut rest) {
                self.refusal = refusal(&error);
            }
        }
        let refusal = self.refusal.take()?;
        Some(self.fault_of(refusal, None))
    }

    /// Files and providers may supply other certificates later. So a refusal may be `NotSent`, which allows a retry.
    fn fault_of(&self, refusal: Refusal, error: Option<io::Error>) -> CallError {
        let mut words = refusal.words;
        if let Some(trouble) = self.shared.trouble() {
            words += &format!(" (the certificates read before are used, because {trouble})");
        }
        let reason = match error {
            Some(error) => Reason::of_io(words, error),
            None => words.into(),
        };
        match refusal.may_pass && self.shared.source.may_change() {
            true => CallError::NotSent(reason),
            false => CallError::Untrusted(reason),
        }
    }

    pub(super) fn ending(&self) -> Vec<(&'static str, u64)> {
        let mut ending = self.shared.ending();
        let connection = self.connection.lock();
        let server = connection.peer_certificates().and_then(<[_]>::first);
        let days = server.and_then(days_left);
        ending.extend(days.map(|days| ("the server", days)));
        ending
    }

    /// The results must be written to the socket in the order of the calls.
    pub(super) fn seal(&self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut connection = self.connection.lock();
        connection.writer().write_all(plain)?;
        drain(&mut connection)
    }

    pub(super) fn writing_end(&self) -> Session {
        Session {
            connection: Arc::clone(&self.connection),
            incoming: Vec::new(),
            refusal: None,
            shared: Arc::clone(&self.shared),
        }
    }
}

fn has_something(connection: &mut ClientConnection) -> bool {
    match connection.reader().fill_buf() {
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        // An empty buffer marks the end of the stream.
        Ok(_) => true,
    }
}

/// Decrypts `rest` until plain text is available. The plain text must be read before the next call.
fn decrypt(connection: &mut ClientConnection, rest: &mut &[u8]) -> Result<(), rustls::Error> {
    while !rest.is_empty() {
        let taken = connection.read_tls(rest);
        let state = connection.process_new_packets()?;
        if state.plaintext_bytes_to_read() > 0 {
            break;
        }
        match taken {
            // After close_notify, rustls reads no more bytes, and the rest is ignored.
            Ok(0) => *rest = &[],
            Ok(_) => {}
            Err(error) => return Err(rustls::Error::General(error.to_string())),
        }
    }
    Ok(())
}

fn drain(connection: &mut ClientConnection) -> io::Result<Vec<u8>> {
    let mut outgoing = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut outgoing)?;
    }
    Ok(outgoing)
}

#[cfg(all(test, feature = "test-util"))]
mod tests;
