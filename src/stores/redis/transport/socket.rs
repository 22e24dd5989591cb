//! A TCP or Unix socket with time-outs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
#[cfg(feature = "in-memory")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::ConnectionAddr;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Protocol, SockAddr, SockRef, TcpKeepalive, Type};

use crate::ground::poll::Source;
use crate::ground::time;
use crate::stores::host_names;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::{Link, World};

/// `socket2` rounds a timeout down to microseconds, and the system takes 0 for "no timeout".
const SHORTEST: Duration = Duration::from_micros(1);

pub(super) struct Socket {
    inner: socket2::Socket,
    /// The in-process server, which receives the written bytes.
    #[cfg(feature = "in-memory")]
    link: Option<Arc<Link>>,
}

impl<S: Into<socket2::Socket>> From<S> for Socket {
    fn from(socket: S) -> Socket {
        Socket {
            inner: socket.into(),
            #[cfg(feature = "in-memory")]
            link: None,
        }
    }
}

impl Socket {
    pub(super) fn connect(address: &ConnectionAddr, deadline: Instant) -> io::Result<Socket> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                host_names::connect(host, *port, deadline, connect_to_one_of).map(Socket::from)
            }
            ConnectionAddr::Unix(path) => {
                // `UnixStream::connect` has no time-out and blocks while the server's backlog is full.
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None::<Protocol>)?;
                let left = deadline
                    .saturating_duration_since(time::now())
                    .max(Duration::from_millis(1));
                socket.connect_timeout(&SockAddr::unix(path)?, left)?;
                Ok(socket.into())
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
        Ok(Socket {
            inner: near.into(),
            link: Some(link),
        })
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.inner.set_read_timeout(Some(timeout.max(SHORTEST)))
    }

    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.inner.set_write_timeout(Some(timeout.max(SHORTEST)))
    }

    pub(super) fn try_clone(&self) -> io::Result<Socket> {
        Ok(Socket {
            inner: self.inner.try_clone()?,
            #[cfg(feature = "in-memory")]
            link: self.link.clone(),
        })
    }

    pub(super) fn shutdown(&self) -> io::Result<()> {
        self.inner.shutdown(Shutdown::Both)
    }

    pub(super) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes, SendFlags::DONTWAIT)
    }

    fn send(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        #[cfg(feature = "in-memory")]
        if let Some(link) = &self.link {
            return link.write(bytes);
        }
        let flags = flags | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.inner, bytes, flags)?)
    }

    pub(super) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, RecvFlags::DONTWAIT)
    }

    fn receive(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let received = rustix::net::recv(&self.inner, buffer, flags);
        let received = received.map(|(count, _)| count).map_err(io::Error::from);
        #[cfg(feature = "in-memory")]
        if let Some(link) = &self.link {
            return link.received(received);
        }
        received
    }

    /// Whether bytes or the end of the stream can be read.
    pub(super) fn has_arrived(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = rustix::net::recv(&self.inner, &mut [0; 1], flags);
        peeked != Err(rustix::io::Errno::AGAIN)
    }

    pub(super) fn source(&self) -> Source<'_> {
        self.inner.as_fd()
    }
}

fn connect_to_one_of(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last_error = io::Error::new(
        io::ErrorKind::NotFound,
        "the name does not resolve to an address",
    );
    for (tried, address) in addresses.iter().enumerate() {
        // Each address gets a share of the time, because an earlier address may be unreachable.
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

/// Sets time-outs that detect half-open connections.
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
        self.receive(buffer, RecvFlags::empty())
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.send(buffer, SendFlags::empty())
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

/// Whether the I/O call that returned `error` can be repeated.
pub(super) fn passes(error: &io::Error) -> bool {
    is_timeout(error) || error.kind() == io::ErrorKind::Interrupted
}

#[cfg(test)]
pub(super) mod tests;
