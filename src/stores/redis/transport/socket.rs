//! A plain socket to one server, whose calls have time-outs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
#[cfg(feature = "in-memory")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::ConnectionAddr;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Protocol, SockAddr, SockRef, TcpKeepalive, Type};

use crate::ground::poll::Source;
use crate::ground::time;
use crate::stores::names;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::{Link, World};

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// To a server in this process: what is read, and what is written to.
    #[cfg(feature = "in-memory")]
    InMemory(UnixStream, Arc<Link>),
}

impl Socket {
    pub(super) fn connect(address: &ConnectionAddr, deadline: Instant) -> io::Result<Socket> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                names::connect(host, *port, deadline, connect_to_one_of).map(Socket::Tcp)
            }
            ConnectionAddr::Unix(path) => {
                // std's connect has no time-out, and blocks when the server's backlog is full.
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None::<Protocol>)?;
                let left = deadline
                    .saturating_duration_since(time::now())
                    .max(Duration::from_millis(1));
                socket.connect_timeout(&SockAddr::unix(path)?, left)?;
                Ok(Socket::Unix(socket.into()))
            }
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kind of address is not supported",
            )),
        }
    }

    #[cfg(feature = "in-memory")]
    pub(super) fn in_memory(world: &Arc<World>) -> io::Result<Socket> {
        let (link, near) = world.connect()?;
        Ok(Socket::InMemory(near, link))
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Socket::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(stream, _) => stream.set_read_timeout(Some(timeout)),
        }
    }

    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
            Socket::Unix(stream) => stream.set_write_timeout(Some(timeout)),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(stream, _) => stream.set_write_timeout(Some(timeout)),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(stream, link) => {
                let stream = stream.try_clone()?;
                Ok(Socket::InMemory(stream, Arc::clone(link)))
            }
        }
    }

    pub(super) fn shutdown(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(stream, _) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Writes what the socket's buffer takes, without blocking.
    pub(super) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "in-memory")]
        if let Socket::InMemory(_, link) = self {
            return link.write(bytes);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(self.source(), bytes, flags)?)
    }

    /// Reads without blocking.
    pub(super) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = rustix::net::recv(self.source(), buffer, RecvFlags::DONTWAIT);
        self.received(
            received
                .map(|(received, _)| received)
                .map_err(io::Error::from),
        )
    }

    /// Whether there is something to read, the end of the stream included.
    pub(super) fn has_arrived(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = rustix::net::recv(self.source(), &mut [0; 1], flags);
        peeked != Err(rustix::io::Errno::AGAIN)
    }

    fn received(&self, received: io::Result<usize>) -> io::Result<usize> {
        match self {
            #[cfg(feature = "in-memory")]
            Socket::InMemory(_, link) => link.received(received),
            _ => received,
        }
    }

    pub(super) fn source(&self) -> Source<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(stream, _) => stream.as_fd(),
        }
    }
}

/// Connects to the first of the addresses of one name that answers.
fn connect_to_one_of(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        // A dead address must leave time for those behind it.
        let left = deadline.saturating_duration_since(time::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        if share.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, share).and_then(tuned) {
            Ok(stream) => return Ok(stream),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// Sets what bounds the life of a connection whose other end is gone without a word.
fn tuned(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2));
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = match self {
            Socket::Tcp(stream) => (&mut &*stream).read(buffer),
            Socket::Unix(stream) => (&mut &*stream).read(buffer),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(stream, _) => (&mut &*stream).read(buffer),
        };
        self.received(received)
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(buffer),
            Socket::Unix(stream) => (&mut &*stream).write(buffer),
            #[cfg(feature = "in-memory")]
            Socket::InMemory(_, link) => link.write(buffer),
        }
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

/// Whether what failed may go well when it is tried again at once.
pub(super) fn passes(error: &io::Error) -> bool {
    is_timeout(error) || error.kind() == io::ErrorKind::Interrupted
}

#[cfg(test)]
pub(super) mod tests;
