//! Connects to a host name, which a thread of its own resolves.
//!
//! `getaddrinfo` has no timeout and may block for half a minute. At most one thread per name calls it, and callers wait for
//! its result until their deadline. While it blocks, or after it failed, callers try the addresses of its last result and
//! those of the last successful connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::ground::background::Background;
use crate::ground::process;
use crate::ground::sync::Mutex;
use crate::ground::time;

/// How long a caller waits for the resolver before it tries known addresses; at most a quarter of the caller's time.
const PROMPT: Duration = Duration::from_millis(200);

/// So many addresses of a name are remembered.
const MOST: usize = 16;

/// A process id and a name: a forked child does not have the threads of its parent.
type Name = (u32, String);

static LOOKUPS: LazyLock<Arc<Background<Name, Vec<SocketAddr>>>> = LazyLock::new(Arc::default);

/// The addresses of each name, with port 0: those of lookups since the last connection, and those of that connection.
static KNOWN: LazyLock<Mutex<HashMap<Name, Vec<SocketAddr>>>> = LazyLock::new(Mutex::default);

/// Connects to a host name or IP address by `deadline`. `connect` gets one address after the other, each with its share of
/// the time, until one succeeds.
pub(crate) fn connect<T>(
    host: &str,
    port: u16,
    deadline: Instant,
    mut connect: impl FnMut(SocketAddr, Duration) -> io::Result<T>,
) -> io::Result<T> {
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return first_of(&[SocketAddr::new(ip, port)], deadline, connect);
    }
    let name = (process::id(), host.to_owned());
    let mut try_all = |addresses: Vec<SocketAddr>, deadline| {
        let mut at_port = addresses.clone();
        at_port.iter_mut().for_each(|it| it.set_port(port));
        let connected = first_of(&at_port, deadline, &mut connect)?;
        KNOWN.lock().insert(name.clone(), addresses);
        Ok(connected)
    };
    let asked = name.clone();
    let (number, began) = LOOKUPS.start(&name, move || resolve(&asked));
    let left = deadline.saturating_duration_since(time::now());
    let prompt = deadline.min(began + PROMPT.min(left / 4));
    let mut result = LOOKUPS.wait(&name, number, prompt);
    let known = KNOWN.lock().get(&name).cloned().unwrap_or_default();
    if !matches!(result, Some(Ok(_))) && !known.is_empty() {
        let left = deadline.saturating_duration_since(time::now());
        let half = time::now() + left / 2;
        let by = if result.is_none() { half } else { deadline };
        if let Ok(connected) = try_all(known, by) {
            return Ok(connected);
        }
    }
    if result.is_none() {
        result = LOOKUPS.wait(&name, number, deadline);
    }
    let addresses = result.unwrap_or_else(|| {
        let words = format!(
            "the system's resolver did not answer for {host:?} in time; check its name servers (/etc/resolv.conf), or use the \
             server's IP address"
        );
        Err(io::Error::new(io::ErrorKind::NotFound, words))
    })?;
    try_all(addresses, deadline)
}

fn resolve(name: &Name) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<_> = (name.1.as_str(), 0).to_socket_addrs()?.collect();
    let mut known = KNOWN.lock();
    let known = known.entry(name.clone()).or_default();
    known.retain(|it| !addresses.contains(it));
    known.splice(..0, addresses.iter().copied());
    known.truncate(MOST);
    Ok(addresses)
}

/// Connects to the first of the addresses of one name that answers.
pub(crate) fn first_of<T>(
    addresses: &[SocketAddr],
    deadline: Instant,
    mut connect: impl FnMut(SocketAddr, Duration) -> io::Result<T>,
) -> io::Result<T> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        // A dead address must leave time for those behind it.
        let left = deadline.saturating_duration_since(time::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        if share.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match connect(*address, share) {
            Ok(connected) => return Ok(connected),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}
