//! Connects to a host name, which a thread of its own resolves.
//!
//! `getaddrinfo` has no timeout and may block for half a minute. At most one thread per name calls it, and callers wait for
//! its result until their deadline. While it blocks, or after it failed, callers try the addresses of its last result and
//! those of the last successful connection.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::ground::process;
use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;

/// How long a caller waits for the resolver before it tries known addresses; at most a quarter of the caller's time.
const PROMPT: Duration = Duration::from_millis(200);

static NAMES: LazyLock<Names> = LazyLock::new(Names::default);

#[derive(Default)]
struct Names {
    /// By process id and name: a forked child does not have the threads of its parent.
    known: Mutex<HashMap<(u32, String), Name>>,
    answered: Condvar,
}

/// The state of one name. The addresses have port 0.
#[derive(Default)]
struct Name {
    /// When the running lookup began.
    asked_at: Option<Instant>,
    /// The number of finished lookups.
    answers: u64,
    /// The error of the last lookup.
    failure: Option<(io::ErrorKind, String)>,
    /// The addresses of the last successful lookup.
    told: Vec<SocketAddr>,
    /// The addresses with which the last connection was made.
    worked: Vec<SocketAddr>,
}

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
    let key = (process::id(), host.to_owned());
    let mut try_all = |addresses: &[SocketAddr], deadline| {
        let mut at_port = addresses.to_vec();
        at_port.iter_mut().for_each(|it| it.set_port(port));
        let connected = first_of(&at_port, deadline, &mut connect);
        if connected.is_ok() {
            NAMES.known.lock().entry(key.clone()).or_default().worked = addresses.to_vec();
        }
        connected
    };
    let (answer, asked_at) = ask(&key);
    let left = deadline.saturating_duration_since(time::now());
    let prompt = wait(&key, answer, deadline.min(asked_at + PROMPT.min(left / 4)));
    if let Some(Ok(addresses)) = prompt {
        return try_all(&addresses, deadline);
    }
    let known = known(&key);
    if !known.is_empty() {
        let left = deadline.saturating_duration_since(time::now());
        let by = match prompt {
            None => time::now() + left / 2,
            Some(_) => deadline,
        };
        if let Ok(connected) = try_all(&known, by) {
            return Ok(connected);
        }
    }
    let late = prompt.or_else(|| wait(&key, answer, deadline));
    let addresses = late.unwrap_or_else(|| {
        let words = format!(
            "the system's resolver did not answer for {host:?} in time; check its name servers (/etc/resolv.conf), or use the \
             server's IP address"
        );
        Err(io::Error::new(io::ErrorKind::NotFound, words))
    })?;
    try_all(&addresses, deadline)
}

/// Starts a lookup unless one is running. Returns the number that its answer will have, and when it began.
fn ask(key: &(u32, String)) -> (u64, Instant) {
    let mut known = NAMES.known.lock();
    let name = known.entry(key.clone()).or_default();
    let answer = name.answers + 1;
    if let Some(asked_at) = name.asked_at {
        return (answer, asked_at);
    }
    let now = time::now();
    name.asked_at = Some(now);
    drop(known);
    let asked = key.clone();
    let run = move || {
        let told = (asked.1.as_str(), 0).to_socket_addrs();
        note(&asked, told.map(Iterator::collect));
    };
    if let Err(error) = sync::spawn("redlatch-resolver", run) {
        note(key, Err(error));
    }
    (answer, now)
}

/// Records the result of a lookup.
fn note(key: &(u32, String), told: io::Result<Vec<SocketAddr>>) {
    let mut known = NAMES.known.lock();
    let name = known.entry(key.clone()).or_default();
    name.asked_at = None;
    name.answers += 1;
    match told {
        Ok(addresses) if !addresses.is_empty() => {
            name.failure = None;
            name.told = addresses;
        }
        Ok(_) => {
            let words = "the name has no address".to_owned();
            name.failure = Some((io::ErrorKind::NotFound, words));
        }
        Err(error) => name.failure = Some((error.kind(), error.to_string())),
    }
    drop(known);
    NAMES.answered.notify_all();
}

/// Waits until lookup number `answer` has finished, and returns the latest result; `None` at `deadline`.
fn wait(
    key: &(u32, String),
    answer: u64,
    deadline: Instant,
) -> Option<io::Result<Vec<SocketAddr>>> {
    let mut known = NAMES.known.lock();
    loop {
        let name = known.entry(key.clone()).or_default();
        if name.answers >= answer {
            return Some(match &name.failure {
                Some((kind, words)) => Err(io::Error::new(*kind, words.clone())),
                None => Ok(name.told.clone()),
            });
        }
        if time::now() >= deadline {
            return None;
        }
        known = NAMES.answered.wait(known, Some(deadline));
    }
}

/// The addresses to try without a result: those of the last lookup, then those of the last connection.
fn known(key: &(u32, String)) -> Vec<SocketAddr> {
    let mut known = NAMES.known.lock();
    let name = known.entry(key.clone()).or_default();
    let mut addresses = name.told.clone();
    let others = name.worked.iter().filter(|it| !name.told.contains(it));
    addresses.extend(others);
    addresses
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
