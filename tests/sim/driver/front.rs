//! The simulated server behind a real socket, for clients as they are.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redlatch_spec::{Config, Delivery, Server};

/// A simulated server that listens; it goes on until the process ends, and its connections are cut when it is dropped.
pub(crate) struct Front {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: Mutex<Server>,
    streams: Mutex<HashMap<u64, TcpStream>>,
}

impl Front {
    pub(crate) fn start() -> Front {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: Mutex::new(Server::new(Config::default(), now())),
            streams: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for (number, stream) in (1..).zip(listener.incoming()) {
                let (stream, shared) = (stream.unwrap(), Arc::clone(&own));
                thread::spawn(move || shared.serve(number, stream));
            }
        });
        Front { addr, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Does something to the server.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Server, i64) -> T) -> T {
        change(&mut lock(&self.shared.server), now())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        lock(&self.shared.server).stop(now());
        lock(&self.shared.streams).clear();
    }
}

impl Shared {
    fn serve(&self, number: u64, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        lock(&self.server).connect(number);
        lock(&self.streams).insert(number, stream.try_clone().unwrap());
        let mut block = [0; 16 * 1024];
        while let Ok(read @ 1..) = stream.read(&mut block) {
            let mut server = lock(&self.server);
            // Under the lock of the server, so that messages keep their order.
            self.deliver(server.feed(now(), number, &block[..read]));
            if !server.is_connected(number) {
                break;
            }
        }
        lock(&self.streams).remove(&number);
        lock(&self.server).disconnect(number);
    }

    fn deliver(&self, deliveries: Vec<Delivery>) {
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
