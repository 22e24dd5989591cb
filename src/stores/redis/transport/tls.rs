//! TLS below a connection.
//!
//! The session is behind a mutex, because one thread may write while another one reads. Nobody holds it while the
//! socket is waited for: bytes are read first and decrypted then, encrypted first and written then. No goodbye is said
//! when a connection is dropped: in a forked child it would end the session of the parent.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore};

use crate::ground::error::{Error, Reason, Result};
use crate::ground::sync::Mutex;
use crate::stores::redis::transport::connection::{CallError, Socket, is_timeout, passes};

/// How much is read from a socket at once.
const BLOCK: usize = 4096;

/// A server that sends more than this many blocks unasked is not looked at any longer.
const MOST_UNASKED: u32 = 16;

/// After this much silence to a greeting it is found out whether the server speaks TLS at all.
const SILENCE: Duration = Duration::from_millis(200);

const NO_TLS: &str =
    "it does not speak TLS; use its TLS port, or redis:// for a connection without TLS";

/// Whom a client trusts, and what it shows of itself.
#[derive(Clone, Default)]
pub(crate) struct TlsConfig {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl TlsConfig {
    pub(crate) fn set_authorities(&mut self, pem: &[u8]) {
        self.authorities = Some(pem.to_vec());
    }

    pub(crate) fn set_identity(&mut self, certificate_pem: &[u8], key_pem: &[u8]) {
        self.identity = Some((certificate_pem.to_vec(), key_pem.to_vec()));
    }

    /// Fails if certificates were given for a connection that has none: whoever gave them counts on TLS.
    pub(crate) fn check_is_unused(&self) -> Result<()> {
        let setting = match self {
            TlsConfig {
                authorities: Some(_),
                ..
            } => "ca_certificate",
            TlsConfig {
                identity: Some(_), ..
            } => "client_certificate",
            _ => return Ok(()),
        };
        let reason = "the URL is not one with TLS; write rediss:// in place of redis://".to_owned();
        Err(Error::InvalidConfig { setting, reason })
    }

    /// What it takes to talk to `host`, by the name in the URL.
    pub(crate) fn toward(&self, host: &str) -> Result<Peer> {
        if ServerName::try_from(host).is_err() {
            return Err(Error::InvalidConfig {
                setting: "the Redis URL",
                reason: "its host is no name that a certificate can have".to_owned(),
            });
        }
        let config = match self.config.get() {
            Some(config) => config,
            None => {
                let config = self.configure()?;
                self.config.get_or_init(|| Arc::new(config))
            }
        };
        Ok(Peer {
            config: Arc::clone(config),
            host: host.into(),
            is_proven: Arc::default(),
        })
    }

    fn configure(&self) -> Result<ClientConfig> {
        let invalid = |setting, reason: String| Error::InvalidConfig { setting, reason };
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(pem) => {
                let setting = "ca_certificate";
                for certificate in certificates(pem).map_err(|reason| invalid(setting, reason))? {
                    roots
                        .add(certificate)
                        .map_err(|error| invalid(setting, error.to_string()))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    let reason = "this system has no certificate authorities that could be trusted; install them, or \
                                  give the server's with Builder::ca_certificate";
                    return Err(invalid("the Redis URL", reason.to_owned()));
                }
            }
        }
        // The provider of the process is left for the program to choose.
        let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("the Redis URL", error.to_string()))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let setting = "client_certificate";
        let chain = certificates(certificate).map_err(|reason| invalid(setting, reason))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            // What the parser says might repeat a part of the key.
            invalid(
                setting,
                "no private key in PEM form was found in it".to_owned(),
            )
        })?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => invalid(
                    setting,
                    "the private key is not that of the certificate".to_owned(),
                ),
                _ => invalid(
                    setting,
                    "the certificate or its private key is of a kind that cannot be used"
                        .to_owned(),
                ),
            })
    }
}

/// The certificates in `pem`, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("no certificate in PEM form was found in it".to_owned()),
        Err(error) => Err(format!("it is not in PEM form: {error}")),
    }
}

/// The other end of a connection: what its certificate has to say, and how that is checked.
#[derive(Clone)]
pub(crate) struct Peer {
    config: Arc<ClientConfig>,
    host: Arc<str>,
    /// Whether a handshake went well before, so that silence means nothing more.
    is_proven: Arc<AtomicBool>,
}

impl Peer {
    /// Another host that is to be talked to in the same way.
    pub(crate) fn at(&self, host: &str) -> Peer {
        Peer {
            config: Arc::clone(&self.config),
            host: host.into(),
            is_proven: Arc::default(),
        }
    }
}

/// The session of one connection, and its reading end.
pub(crate) struct Session {
    connection: Arc<Mutex<ClientConnection>>,
    incoming: Incoming,
    /// Why the other end, or we, will have nothing to do with each other.
    refusal: Option<String>,
}

/// What was read from the socket and is not decrypted yet.
#[derive(Default)]
struct Incoming {
    block: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Incoming {
    fn rest(&self) -> &[u8] {
        self.block.get(self.begin..self.end).unwrap_or_default()
    }

    /// Reads from the socket once. Returns false at the end of the stream.
    fn fill(&mut self, mut socket: &Socket) -> io::Result<bool> {
        self.block.resize(BLOCK, 0);
        self.begin = 0;
        self.end = 0;
        self.end = socket.read(&mut self.block)?;
        Ok(self.end > 0)
    }
}

impl Session {
    /// Shakes hands over `socket`, all by `deadline`.
    pub(crate) fn open(
        peer: &Peer,
        socket: &Socket,
        deadline: Instant,
    ) -> Result<Session, CallError> {
        let name = ServerName::try_from(String::from(&*peer.host)).map_err(|_| {
            CallError::Untrusted("its host is no name that a certificate can have".into())
        })?;
        let mut connection = ClientConnection::new(Arc::clone(&peer.config), name)
            .map_err(|error| CallError::NotSent(error.to_string().into()))?;
        // What is encrypted is taken out at once, so it piles up nowhere.
        connection.set_buffer_limit(None);
        let mut session = Session {
            connection: Arc::new(Mutex::new(connection)),
            incoming: Incoming::default(),
            refusal: None,
        };
        let is_proven = peer.is_proven.load(Ordering::Relaxed);
        match session.shake_hands(socket, is_proven, deadline) {
            Ok(()) => {
                peer.is_proven.store(true, Ordering::Relaxed);
                Ok(session)
            }
            Err(error) => Err(match session.refusal {
                Some(reason) => CallError::Untrusted(Reason::of_io(reason, error)),
                None if is_timeout(&error) => CallError::NotSent(
                    "the TLS handshake was not answered in time; is it the server's TLS port?"
                        .into(),
                ),
                None => CallError::NotSent(Reason::of_io(
                    format!("the TLS handshake failed: {error}"),
                    error,
                )),
            }),
        }
    }

    fn shake_hands(
        &mut self,
        mut socket: &Socket,
        is_proven: bool,
        deadline: Instant,
    ) -> io::Result<()> {
        // A server without TLS takes the greeting for the start of a line, and waits for its end.
        let mut is_silent = !is_proven;
        let left = || match deadline.saturating_duration_since(Instant::now()) {
            left if left.is_zero() => Err(io::Error::from(io::ErrorKind::TimedOut)),
            left => Ok(left),
        };
        loop {
            let outgoing = drain(&mut self.connection.lock())?;
            let mut rest = &*outgoing;
            while !rest.is_empty() {
                socket.set_write_timeout(left()?)?;
                match socket.write(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                    Err(error) if passes(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            if !self.connection.lock().is_handshaking() {
                return Ok(());
            }
            let patience = if is_silent {
                SILENCE.min(left()? / 3)
            } else {
                left()?
            };
            socket.set_read_timeout(patience.max(Duration::from_millis(1)))?;
            match self.incoming.fill(socket) {
                Ok(true) => {
                    is_silent = false;
                    self.decrypt(socket)?;
                }
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if is_timeout(&error) && std::mem::take(&mut is_silent) => {
                    if answers_plain(socket, left()? / 2) {
                        self.refusal = Some(NO_TLS.to_owned());
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Decrypts what was read, up to the first plain text.
    fn decrypt(&mut self, socket: &Socket) -> io::Result<()> {
        let mut connection = self.connection.lock();
        let mut rest = self.incoming.rest();
        let decrypted = decrypt(&mut connection, &mut rest);
        self.incoming.begin = self.incoming.end - rest.len();
        decrypted.map_err(|error| {
            // The other end hears why, if it still listens.
            if let Ok(alert) = drain(&mut connection) {
                let _ = socket.send_some(&alert);
            }
            self.refusal = refusal(&error);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    /// Reads decrypted bytes, after at most one read from the socket: whoever waits looks at the clock in between.
    pub(crate) fn read(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.lock().reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end of a reply is known by itself, so a stream may end without a goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.incoming.rest().is_empty() {
                break;
            }
            self.decrypt(socket)?;
        }
        if !self.incoming.fill(socket)? {
            return Ok(0);
        }
        self.decrypt(socket)?;
        match self.connection.lock().reader().read(buffer) {
            // It was not the whole of a record, or not for us.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::Interrupted.into())
            }
            read => read,
        }
    }

    /// Whether there is something to read for which the socket need not be waited for.
    pub(crate) fn has_buffered(&self) -> bool {
        !self.incoming.rest().is_empty() || has_something(&mut self.connection.lock())
    }

    /// Whether the connection has ended, or something came that nobody asked for. Session tickets come unasked.
    ///
    /// Nothing is buffered when this is asked.
    pub(crate) fn is_stale(&self, socket: &Socket) -> bool {
        let mut connection = self.connection.lock();
        let mut block = [0; BLOCK];
        for _ in 0..MOST_UNASKED {
            let mut rest = match socket.receive_now(&mut block) {
                Ok(0) => return true,
                Ok(received) => block.get(..received).unwrap_or_default(),
                Err(error) => return !passes(&error),
            };
            if decrypt(&mut connection, &mut rest).is_err() || has_something(&mut connection) {
                return true;
            }
        }
        true
    }

    /// Why this is not a connection to be tried again, if the other end has said so. It is asked after a failure.
    ///
    /// A server that misses a certificate of ours says so when we take the handshake for done.
    pub(crate) fn refusal(&mut self, socket: &Socket) -> Option<String> {
        let mut block = [0; BLOCK];
        if self.refusal.is_none()
            && let Ok(received) = socket.receive_now(&mut block)
        {
            let mut rest = block.get(..received).unwrap_or_default();
            if let Err(error) = decrypt(&mut self.connection.lock(), &mut rest) {
                self.refusal = refusal(&error);
            }
        }
        self.refusal.take()
    }

    /// Encrypts `plain`. What is returned has to be written as it is, and before what is encrypted later.
    pub(crate) fn seal(&self, plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut connection = self.connection.lock();
        seal(&mut connection, plain)
    }

    /// The writing end, for another thread.
    pub(crate) fn writing_end(&self) -> Session {
        Session {
            connection: Arc::clone(&self.connection),
            incoming: Incoming::default(),
            refusal: None,
        }
    }
}

/// Whether the server at the other end answers in plain text, asked on a connection of its own that carries nothing but
/// a PING.
fn answers_plain(socket: &Socket, patience: Duration) -> bool {
    let Socket::Tcp(stream) = socket else {
        return false;
    };
    let patience = patience.clamp(Duration::from_millis(1), SILENCE * 5);
    let answer = stream.peer_addr().and_then(|address| {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(b"PING\r\n")?;
        let mut sign = [0];
        stream.read_exact(&mut sign)?;
        Ok(sign)
    });
    // It may also want a password first.
    matches!(answer, Ok([b'+' | b'-']))
}

fn has_something(connection: &mut ClientConnection) -> bool {
    match connection.reader().fill_buf() {
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        // No bytes stand for the end.
        Ok(_) => true,
    }
}

/// Decrypts `rest`, up to the first plain text: more is not taken in before that is read.
fn decrypt(connection: &mut ClientConnection, rest: &mut &[u8]) -> Result<(), rustls::Error> {
    while !rest.is_empty() {
        let taken = connection.read_tls(rest);
        let state = connection.process_new_packets()?;
        if state.plaintext_bytes_to_read() > 0 {
            break;
        }
        match taken {
            // After the goodbye nothing more is read.
            Ok(0) => *rest = &[],
            Ok(_) => {}
            Err(error) => return Err(rustls::Error::General(error.to_string())),
        }
    }
    Ok(())
}

fn seal(connection: &mut ClientConnection, plain: &[u8]) -> io::Result<Vec<u8>> {
    connection.writer().write_all(plain)?;
    drain(connection)
}

/// Takes out all that is to be written.
fn drain(connection: &mut ClientConnection) -> io::Result<Vec<u8>> {
    let mut outgoing = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut outgoing)?;
    }
    Ok(outgoing)
}

/// Why there is no use in trying again before somebody changes something, and what; `None` if there is.
fn refusal(error: &rustls::Error) -> Option<String> {
    Some(match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error),
        rustls::Error::NoCertificatesPresented => "it has no certificate".to_owned(),
        rustls::Error::InvalidMessage(_) => NO_TLS.to_owned(),
        rustls::Error::PeerIncompatible(_) => {
            format!(
                "its TLS has nothing in common with ours: {error}; it has to allow TLS 1.2 or 1.3"
            )
        }
        rustls::Error::AlertReceived(alert) => of_alert(*alert)?,
        _ => return None,
    })
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        // A bad signature is that of an authority with the name of one that is trusted.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!(
                "its certificate comes from an authority that is not trusted here ({error}); give the authority's \
                 certificate with Builder::ca_certificate"
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "its certificate is for another host ({error}); use a name or an address that stands in the certificate"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!(
                "its certificate has expired ({error}); renew it, and see that the clock of this machine is right"
            )
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!(
                "its certificate is not valid yet ({error}); see that the clocks of both machines are right"
            )
        }
        error => {
            let text = error.to_string();
            if text.contains("UnsupportedCertVersion") {
                "its certificate is of version 1, which names no hosts; make one of version 3 with a subjectAltName \
                 (openssl x509 -req does so with -extfile)"
                    .to_owned()
            } else if text.contains("CaUsedAsEndEntity") {
                "its certificate is that of an authority; make one for the server, signed by it, with \
                 basicConstraints=CA:FALSE and a subjectAltName"
                    .to_owned()
            } else {
                format!("its certificate cannot be used: {text}")
            }
        }
    }
}

/// What the other end holds against us.
fn of_alert(alert: AlertDescription) -> Option<String> {
    Some(match alert {
        AlertDescription::CertificateRequired => {
            "it asks for a certificate of ours; give one with Builder::client_certificate"
                .to_owned()
        }
        AlertDescription::NoCertificate
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => {
            format!(
                "it does not accept our certificate ({alert:?}); give one that it trusts with \
                 Builder::client_certificate"
            )
        }
        AlertDescription::HandshakeFailure
        | AlertDescription::ProtocolVersion
        | AlertDescription::InsufficientSecurity
        | AlertDescription::UnrecognisedName => format!(
            "it refused the TLS handshake ({alert:?}); it may ask for a certificate of ours \
             (Builder::client_certificate), or for a version or a cipher that we lack"
        ),
        _ => return None,
    })
}
