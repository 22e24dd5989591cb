//! The interface of `src/stores/redis/transport/socket.rs` on the network of the world.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use redis::ConnectionAddr;
use redlatch_world::network;

use crate::ground::poll::Source;
use crate::ground::time;

pub(super) struct Socket {
    end: network::Socket,
    read_timeout: Cell<Option<Duration>>,
    write_timeout: Cell<Option<Duration>>,
}

impl Socket {
    pub(super) fn connect(address: &ConnectionAddr, deadline: Instant) -> io::Result<Socket> {
        let ConnectionAddr::Tcp(host, port) = address else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let end = network::connect(host, *port, time::moment(deadline))?;
        Ok(Socket::of(end))
    }

    fn of(end: network::Socket) -> Socket {
        Socket {
            end,
            read_timeout: Cell::new(None),
            write_timeout: Cell::new(None),
        }
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.read_timeout.set(Some(timeout));
        Ok(())
    }

    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.write_timeout.set(Some(timeout));
        Ok(())
    }

    pub(super) fn try_clone(&self) -> io::Result<Socket> {
        Ok(Socket::of(self.end.clone()))
    }

    #[allow(clippy::unnecessary_wraps, reason = "a socket of the system can fail")]
    pub(super) fn shutdown(&self) -> io::Result<()> {
        self.end.shut_down();
        Ok(())
    }

    pub(super) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        self.end.write(bytes)
    }

    pub(super) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.end.read_now(buffer)
    }

    pub(super) fn has_arrived(&self) -> bool {
        self.end.has_arrived()
    }

    pub(super) fn source(&self) -> Source<'_> {
        &self.end
    }
}

fn end_of(timeout: Option<Duration>) -> Option<u64> {
    timeout.map(|timeout| time::moment(time::now() + timeout))
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.end.read(buffer, end_of(self.read_timeout.get()))
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.end.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

pub(super) fn passes(error: &io::Error) -> bool {
    is_timeout(error) || error.kind() == io::ErrorKind::Interrupted
}
