//! The writing end of a connection that another thread reads.

use std::io;

use crate::stores::redis::transport::socket::{is_timeout, passes};
use crate::stores::redis::transport::stream::Stream;

pub(crate) struct Writer {
    stream: Stream,
    /// The bytes that the socket has not accepted yet. On a TLS connection they are encrypted.
    rest: Vec<u8>,
}

impl Writer {
    pub(super) fn new(stream: Stream) -> Writer {
        Writer {
            stream,
            rest: Vec::new(),
        }
    }

    /// Writes without blocking. Bytes that the socket does not accept are kept for [`Writer::flush`].
    pub(crate) fn send(&mut self, packed: &[u8]) -> io::Result<()> {
        let sealed = self.stream.seal(packed)?;
        self.rest.extend_from_slice(&sealed);
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        while let Some(rest @ [_, ..]) = self.rest.get(written..) {
            match self.stream.socket.send_some(rest) {
                Ok(sent) => written += sent,
                Err(error) if is_timeout(&error) => break,
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.rest.drain(..written);
        Ok(())
    }

    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Wakes the thread that reads from the connection.
    pub(crate) fn shut_down(&self) {
        // An error means that the socket is closed already.
        let _ = self.stream.socket.shutdown();
    }
}
