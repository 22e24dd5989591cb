//! The writing end of a connection.

use std::io;

use crate::stores::redis::transport::socket::{is_timeout, passes};
use crate::stores::redis::transport::stream::Stream;

/// The writing end of a connection that another thread reads.
pub(crate) struct Writer {
    stream: Stream,
    /// The bytes that the socket has not taken yet, encrypted if they are to be.
    rest: Vec<u8>,
}

impl Writer {
    pub(super) fn new(stream: Stream) -> Writer {
        Writer {
            stream,
            rest: Vec::new(),
        }
    }

    /// Writes without blocking. The bytes that the socket does not take at once are kept for [`Writer::flush`].
    pub(crate) fn send(&mut self, packed: &[u8]) -> io::Result<()> {
        let sealed = self.stream.seal(packed)?;
        self.rest.extend_from_slice(&sealed);
        self.flush()
    }

    /// Writes of the rest what the socket takes now.
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

    /// Whether there is something to flush.
    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Ends the connection, which wakes its reader.
    pub(crate) fn shut_down(&self) {
        // It may be closed already, which is what is wanted.
        let _ = self.stream.socket.shutdown();
    }
}
