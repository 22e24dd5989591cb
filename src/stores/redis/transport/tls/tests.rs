//! TLS with a server that the test controls.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod configured;
mod refused;
mod told;

use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

use redis::ConnectionAddr;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::refusal::NO_TLS;
use super::*;
use crate::support::topology_fixtures::Certificates;
use crate::support::topology_fixtures::certificates::Pair;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn soon() -> Instant {
    Instant::now() + ms(20_000)
}

fn until(mut is_so: impl FnMut() -> bool) {
    let patience = soon();
    while !is_so() {
        assert!(Instant::now() < patience, "it takes too long");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Certificates of one authority. All tests share them, because child processes generate them slowly.
fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| {
        let certificates = Certificates::new();
        certificates.server();
        certificates.elsewhere();
        certificates.client();
        certificates
    })
}

fn authority() -> Vec<u8> {
    certificates().authority_pem().into_bytes()
}

fn trusting() -> TlsConfig {
    let mut config = TlsConfig::default();
    config.authorities = Some(Pem::text(&authority()));
    config
}

fn peer() -> Peer {
    trusting().for_host("localhost").unwrap()
}

/// Returns server settings with the certificate `pair`. If `asks`, the server requires a client certificate.
fn serving(pair: &Pair, asks: bool) -> Arc<ServerConfig> {
    let pem = pair.certificate_pem();
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match asks {
        true => {
            let mut roots = RootCertStore::empty();
            for it in CertificateDer::pem_slice_iter(&authority()) {
                roots.add(it.unwrap()).unwrap();
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        false => builder.with_no_client_auth(),
    };
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

struct End {
    connection: ServerConnection,
    stream: TcpStream,
}

impl End {
    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        self.connection.writer().write_all(plain).unwrap();
        let mut sealed = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut sealed).unwrap();
        }
        sealed
    }

    fn say(&mut self, plain: &[u8]) {
        let sealed = self.seal(plain);
        self.stream.write_all(&sealed).unwrap();
    }

    fn goodbye(&mut self) {
        self.connection.send_close_notify();
        self.say(b"");
    }

    fn hears(&mut self, length: usize) -> Vec<u8> {
        let mut heard = vec![0; length];
        let mut stream = rustls::Stream::new(&mut self.connection, &mut self.stream);
        stream.read_exact(&mut heard).unwrap();
        heard
    }
}

type Shaken = io::Result<End>;

fn server(config: Arc<ServerConfig>) -> (Socket, JoinHandle<Shaken>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = socket_to(&listener);
    let end = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        connection.set_buffer_limit(None);
        let mut end = End { connection, stream };
        end.say(b"");
        Ok(end)
    });
    (socket, end)
}

fn socket_to(listener: &TcpListener) -> Socket {
    let port = listener.local_addr().unwrap().port();
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
    Socket::connect(&address, soon()).unwrap()
}

fn session() -> (Session, Socket, End) {
    let (socket, end) = server(serving(&certificates().server(), false));
    let session = Session::open(&peer(), &socket, soon()).unwrap();
    (session, socket, end.join().unwrap().unwrap())
}

fn read(session: &mut Session, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match session.read(socket, buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
