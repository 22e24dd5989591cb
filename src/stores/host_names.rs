//! Resolves host names within a deadline.
//!
//! `getaddrinfo` has no timeout and may block for half a minute. So at most one thread per name calls `getaddrinfo`,
//! and callers wait for the result until their deadline. If the call is slow or fails, callers first try the addresses
//! of the last successful call.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use crate::ground::background::Background;
use crate::ground::{process, time};

/// A process id and a host name. With the process id, a forked child does not wait for lookups of its parent.
type Name = (u32, String);
type Addresses = Vec<SocketAddr>;

static LOOKUPS: LazyLock<Arc<Background<Name, Addresses>>> = LazyLock::new(Arc::default);

pub(crate) fn connect<T>(
    host: &str,
    port: u16,
    deadline: Instant,
    mut connect: impl FnMut(&[SocketAddr], Instant) -> io::Result<T>,
) -> io::Result<T> {
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return connect(&[SocketAddr::new(ip, port)], deadline);
    }
    let mut connect = |mut addresses: Addresses, by| {
        addresses.iter_mut().for_each(|it| it.set_port(port));
        connect(&addresses, by)
    };
    let name = (process::id(), host.to_owned());
    let asked = host.to_owned();
    let resolve = move || Ok((asked.as_str(), 0).to_socket_addrs()?.collect());
    let (number, prompt) = LOOKUPS.start(&name, deadline, resolve);
    let found = LOOKUPS.wait(&name, number, prompt);
    let known = LOOKUPS.known(&name);
    if let Some(known) = known.filter(|_| !matches!(found, Some(Ok(_))))
        && let Ok(connected) = connect(
            known,
            time::now() + deadline.saturating_duration_since(time::now()) / 2,
        )
    {
        return Ok(connected);
    }
    let found = found.or_else(|| LOOKUPS.wait(&name, number, deadline));
    let addresses = found.unwrap_or_else(|| {
        let words = format!(
            "the system's resolver did not answer for {host:?} in time; check its name servers (/etc/resolv.conf), or use the \
             server's IP address"
        );
        Err(io::Error::new(io::ErrorKind::NotFound, words))
    })?;
    connect(addresses, deadline)
}
