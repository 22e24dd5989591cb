//! The simulated server behind a real socket, for clients as they are.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redlatch_spec::{Config, Delivery, Persistence, Server};

use crate::support::ms;

/// A simulated server that listens until it is dropped.
pub(crate) struct Front {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: Mutex<Server>,
    streams: Mutex<HashMap<u64, TcpStream>>,
    has_ended: AtomicBool,
}

impl Front {
    pub(crate) fn start() -> Front {
        Front::of(Server::new(Config::default(), now()))
    }

    pub(crate) fn sentinel() -> Front {
        Front::of(Server::sentinel(Config::default(), now()))
    }

    fn of(mut server: Server) -> Front {
        // Each holds what a long queue was before and after it, and gigabytes come together in thousands of rounds.
        server.remember(500);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            streams: Mutex::default(),
            has_ended: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            while !own.has_ended() {
                // A WAIT may be over.
                own.deliver(|server, now| server.tick(now));
                thread::sleep(ms(10));
            }
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for (number, stream) in (1..).zip(listener.incoming()) {
                if own.has_ended() {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), Arc::clone(&own));
                thread::spawn(move || shared.serve(number, stream));
            }
        });
        Front { addr, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Does something to the server by which its clients hear something.
    pub(crate) fn deliver(&self, change: impl FnOnce(&mut Server, i64) -> Vec<Delivery>) {
        self.shared.deliver(change);
    }

    /// Cuts all connections, and brings the server back.
    pub(crate) fn restart(&self, persistence: Persistence) {
        self.cut();
        self.with(|server, now| server.restart(now, persistence));
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for (_, stream) in lock(&self.shared.streams).drain() {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Does something to the server.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Server, i64) -> T) -> T {
        change(&mut lock(&self.shared.server), now())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.with(|server, now| server.stop(now));
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.cut();
        // So that the thread that accepts looks up; a failure leaves it to the end of the process.
        let _ = TcpStream::connect(self.addr);
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn serve(&self, number: u64, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        lock(&self.server).connect(number);
        lock(&self.streams).insert(number, stream.try_clone().unwrap());
        if self.has_ended() {
            // It may have come too late to be cut.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let mut block = [0; 16 * 1024];
        while let Ok(read @ 1..) = stream.read(&mut block) {
            self.deliver(|server, now| server.feed(now, number, &block[..read]));
            if !lock(&self.server).is_connected(number) {
                break;
            }
        }
        lock(&self.streams).remove(&number);
        lock(&self.server).disconnect(number);
    }

    fn deliver(&self, change: impl FnOnce(&mut Server, i64) -> Vec<Delivery>) {
        // Under the lock of the server, so that messages keep their order.
        let mut server = lock(&self.server);
        let deliveries = change(&mut server, now());
        let mut streams = lock(&self.streams);
        for Delivery { connection, bytes } in deliveries {
            if let Some(stream) = streams.get_mut(&connection) {
                // One that is gone hears nothing.
                let _ = stream.write_all(&bytes);
            }
        }
    }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_micros()).unwrap()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
