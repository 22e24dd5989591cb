//! A proxy that delays requests by a millisecond, as a distant server would.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::harness::{Part, orders, say};

/// Each request is delayed by this time; replies are not delayed.
const DELAY: Duration = Duration::from_millis(1);

/// Proxies to some servers, in another process.
pub(crate) struct Proxies {
    _process: Part,
    urls: Vec<String>,
}

impl Proxies {
    /// Each listens on one of these ports.
    pub(crate) fn to(ports: &[u16]) -> Proxies {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        let mut process = Part::start("roads", &ports);
        let begins = process.receive();
        Proxies {
            urls: begins
                .iter()
                .map(|port| format!("redis://127.0.0.1:{port}"))
                .collect(),
            _process: process,
        }
    }

    /// The URLs of the proxies.
    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }
}

/// One connection, and its other half.
struct Lane {
    client: TcpStream,
    /// Whether more may come from the client.
    client_speaks: bool,
    server: TcpStream,
    /// Requests in flight, with their times of arrival; an empty one is the end.
    under_way: VecDeque<(Instant, Vec<u8>)>,
}

impl Lane {
    fn open(client: TcpStream, port: u16) -> std::io::Result<Lane> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok(Lane {
            client,
            client_speaks: true,
            server,
            under_way: VecDeque::new(),
        })
    }

    fn hear_client(&mut self, buffer: &mut [u8]) {
        let read = self.client.read(buffer).unwrap_or(0);
        self.client_speaks = read > 0;
        self.under_way
            .push_back((Instant::now() + DELAY, buffer[..read].to_vec()));
    }

    /// Returns whether the server may send more.
    fn hear_server(&mut self, buffer: &mut [u8]) -> bool {
        let read = self.server.read(buffer).unwrap_or(0);
        // Requests of a closed client are still forwarded.
        let _ = self.client.write_all(&buffer[..read]);
        read > 0
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        let arrived = |lane: &Lane| matches!(lane.under_way.front(), Some((at, _)) if *at <= now);
        while arrived(self)
            && let Some((_, bytes)) = self.under_way.pop_front()
        {
            // The reading side notices a closed server.
            let _ = if bytes.is_empty() {
                self.server.shutdown(Shutdown::Write)
            } else {
                self.server.write_all(&bytes)
            };
        }
    }
}

/// Runs the proxies until its input ends.
pub(crate) fn keep(ports: &[String]) {
    thread::spawn(|| {
        orders().for_each(drop);
        std::process::exit(0);
    });
    // Otherwise a millisecond could become one and a half.
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
    let begins: Vec<(TcpListener, u16)> = ports
        .iter()
        .map(|port| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            (listener, port.parse().expect("a port"))
        })
        .collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    let said: Vec<u64> = begins
        .iter()
        .map(|(listener, _)| port(listener).into())
        .collect();
    say(&said);

    let mut lanes: Vec<Lane> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut fds: Vec<PollFd<'_>> = begins
            .iter()
            .map(|(listener, _)| PollFd::new(listener, PollFlags::IN))
            .collect();
        for lane in &lanes {
            fds.push(PollFd::new(&lane.server, PollFlags::IN));
            if lane.client_speaks {
                fds.push(PollFd::from_borrowed_fd(lane.client.as_fd(), PollFlags::IN));
            }
        }
        let next = lanes.iter().filter_map(|lane| lane.under_way.front()).min();
        let timeout = next.map(|(arrives, _)| {
            let left = arrives.saturating_duration_since(Instant::now());
            Timespec::try_from(left).expect("a short time")
        });
        poll(&mut fds, timeout.as_ref()).expect("waiting works");
        let mut ready = fds
            .iter()
            .map(|fd| !fd.revents().is_empty())
            .collect::<Vec<_>>()
            .into_iter();
        drop(fds);

        lanes.iter_mut().for_each(Lane::deliver);
        let mut arrived = Vec::new();
        for (listener, port) in &begins {
            if ready.next() == Some(true) {
                let (client, _) = listener.accept().expect("a connection");
                // Without a server the client's connection is closed.
                arrived.extend(Lane::open(client, *port));
            }
        }
        lanes.retain_mut(|lane| {
            let is_open = ready.next() != Some(true) || lane.hear_server(&mut buffer);
            if lane.client_speaks && ready.next() == Some(true) {
                lane.hear_client(&mut buffer);
            }
            is_open
        });
        lanes.extend(arrived);
    }
}
