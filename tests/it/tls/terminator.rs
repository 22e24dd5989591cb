//! A TLS terminator in front of a plain server, which can inject faults into the TLS stream.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use crate::support::ms;
use crate::support::topology_fixtures::Certificates;

const PAUSE: Duration = ms(1);

pub(crate) struct Terminator {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    accepted: AtomicUsize,
    drips: AtomicBool,
    is_over: AtomicBool,
    /// Of the connections that are open.
    orders: Mutex<Vec<Arc<Mutex<Vec<Order>>>>>,
}

#[derive(Clone)]
enum Order {
    ChangeKeys,
    Say(Vec<u8>),
    Goodbye,
}

impl Terminator {
    pub(crate) fn before(plain: SocketAddr, certificates: &Certificates) -> Terminator {
        let pair = certificates.server();
        let chain = CertificateDer::pem_slice_iter(&fs::read(&pair.certificate).unwrap())
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_slice(&fs::read(&pair.key).unwrap()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_over.load(Ordering::Relaxed) {
                    return;
                }
                accepting.accepted.fetch_add(1, Ordering::Relaxed);
                let orders = Arc::default();
                accepting.orders.lock().unwrap().push(Arc::clone(&orders));
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let shared = Arc::clone(&accepting);
                // It ends with an error when either side has closed.
                thread::spawn(move || {
                    let _ = pump(connection, stream, plain, &shared, &orders);
                });
            }
        });
        Terminator { addr, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("rediss://{}", self.addr)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Whether the server's bytes reach the client one by one, with pauses.
    pub(crate) fn drip(&self, drips: bool) {
        self.shared.drips.store(drips, Ordering::Relaxed);
    }

    /// Sends a TLS key update to all clients, which programs do not notice.
    pub(crate) fn change_keys(&self) {
        self.order(&Order::ChangeKeys);
    }

    pub(crate) fn say(&self, text: &[u8]) {
        self.order(&Order::Say(text.to_vec()));
    }

    /// Closes all TLS sessions, and leaves the connections open.
    pub(crate) fn say_goodbye(&self) {
        self.order(&Order::Goodbye);
    }

    fn order(&self, order: &Order) {
        for orders in &*self.shared.orders.lock().unwrap() {
            orders.lock().unwrap().push(order.clone());
        }
    }
}

impl Drop for Terminator {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The listener checks its state when a client connects.
        let _ = TcpStream::connect(self.addr);
    }
}

fn pump(
    mut session: ServerConnection,
    mut client: TcpStream,
    plain: SocketAddr,
    shared: &Shared,
    orders: &Mutex<Vec<Order>>,
) -> io::Result<()> {
    let mut server = TcpStream::connect(plain)?;
    for stream in [&client, &server] {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
    }
    let mut block = [0; 4096];
    while !shared.is_over.load(Ordering::Relaxed) {
        if let Some(read) = unless_blocked(client.read(&mut block))? {
            if read == 0 {
                return Ok(());
            }
            let mut rest = &block[..read];
            while !rest.is_empty() {
                session.read_tls(&mut rest)?;
                session.process_new_packets().map_err(io::Error::other)?;
            }
        }
        if let Some(read) = unless_blocked(session.reader().read(&mut block))? {
            server.write_all(&block[..read])?;
        }
        if let Some(read) = unless_blocked(server.read(&mut block))? {
            if read == 0 {
                return Ok(());
            }
            session.writer().write_all(&block[..read])?;
        }
        for order in orders.lock().unwrap().drain(..) {
            match order {
                Order::ChangeKeys => session.refresh_traffic_keys().map_err(io::Error::other)?,
                Order::Say(text) => session.writer().write_all(&text)?,
                Order::Goodbye => session.send_close_notify(),
            }
        }
        let mut records = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut records)?;
        }
        let mut rest = &records[..];
        while !rest.is_empty() {
            let drips = shared.drips.load(Ordering::Relaxed);
            let size = if drips { 1 } else { rest.len() };
            match unless_blocked(client.write(&rest[..size]))? {
                Some(written) => rest = &rest[written..],
                None => thread::sleep(PAUSE),
            }
            if drips {
                thread::sleep(ms(50));
            }
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
