//! The settings of TLS, and what follows from them for one host.

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::verifier::{Hosts, Verifier, days_left, pin_in};
use crate::ground::error::{Error, Result};
use crate::ground::events;
use crate::ground::sync::Mutex;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::credentials::Provider;

/// The authorities that a client trusts, and the certificate that it shows.
#[derive(Clone, Default)]
pub(crate) struct TlsConfig {
    authorities: Option<Pem>,
    identity: Option<(Pem, Pem)>,
    /// The name that every certificate has to have.
    pub(crate) server_name: Option<String>,
    /// The hashes of the keys of which a server has to have one, as they were given.
    pub(crate) pins: Vec<String>,
    /// What gives the authorities and the identity, each empty for that above.
    pub(crate) provider: Option<Arc<Provider<Given>>>,
    shared: OnceLock<Arc<Shared>>,
}

type Given = (Vec<u8>, Vec<u8>);

/// Text in PEM form, or the file that has it and may change.
#[derive(Clone)]
enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

/// By which a file is known to be the one that was read: its number, size and time.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Pem {
    /// The program may go to another folder before the file is read again.
    fn file(path: &Path) -> Pem {
        Pem::File(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    fn read(&self) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Pem::Text(pem) => Ok(pem.into()),
            Pem::File(path) => fs::read(path).map(Cow::Owned).map_err(|it| it.to_string()),
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        let Pem::File(path) = self else {
            return None;
        };
        let of = |it: fs::Metadata| (it.ino(), it.len(), it.mtime(), it.mtime_nsec());
        Some(fs::metadata(path).ok().map(of))
    }

    /// The error of a setting with this text.
    fn error(&self, setting: &'static str, reason: impl Into<String>) -> Error {
        let reason = reason.into();
        Error::config(
            setting,
            match self {
                Pem::Text(_) => reason,
                Pem::File(path) => format!("{}: {reason}", path.display()),
            },
        )
    }

    /// The certificates in it, at least one.
    fn certificates(&self, setting: &'static str) -> Result<Vec<CertificateDer<'static>>> {
        let pem = self.read().map_err(|reason| self.error(setting, reason))?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) => Err(self.error(setting, "no certificate in PEM form was found in it")),
            Err(error) => Err(self.error(setting, format!("it is not in PEM form: {error}"))),
        }
    }
}

const AUTHORITY: &str = "ca_certificate";
const IDENTITY: &str = "client_certificate";

impl TlsConfig {
    pub(crate) fn set_authorities(&mut self, pem: &[u8]) {
        self.authorities = Some(Pem::Text(pem.to_vec()));
    }

    pub(crate) fn set_authorities_file(&mut self, path: &Path) {
        self.authorities = Some(Pem::file(path));
    }

    pub(crate) fn set_identity(&mut self, certificate_pem: &[u8], key_pem: &[u8]) {
        let text = |pem: &[u8]| Pem::Text(pem.to_vec());
        self.identity = Some((text(certificate_pem), text(key_pem)));
    }

    pub(crate) fn set_identity_files(&mut self, certificate: &Path, key: &Path) {
        self.identity = Some((Pem::file(certificate), Pem::file(key)));
    }

    /// Fails if certificates were given for a connection that has none: whoever gave them counts on TLS.
    pub(crate) fn check_is_unused(&self) -> Result<()> {
        let given = [
            (AUTHORITY, self.authorities.is_some()),
            (IDENTITY, self.identity.is_some()),
            ("tls_server_name", self.server_name.is_some()),
            ("tls_pin_sha256", !self.pins.is_empty()),
            ("certificates_with", self.provider.is_some()),
        ];
        let Some((setting, _)) = given.into_iter().find(|(_, is_given)| *is_given) else {
            return Ok(());
        };
        let reason = "the URL is not one with TLS; write rediss:// in place of redis://, mysqls:// in place of mysql://";
        Err(Error::config(setting, reason))
    }

    /// Returns the settings for `host`, by its name in the URL.
    pub(crate) fn toward(&self, host: &str) -> Result<Peer> {
        let (setting, name) = match self.server_name.as_deref() {
            Some(name) => ("tls_server_name", name),
            None => ("the URL", host),
        };
        if ServerName::try_from(name).is_err() {
            let reason = "its host cannot be the name in a certificate";
            return Err(Error::config(setting, reason));
        }
        let shared = match self.shared.get() {
            Some(shared) => shared,
            None => {
                let shared = Shared::new(self.clone())?;
                self.shared.get_or_init(|| Arc::new(shared))
            }
        };
        shared
            .hosts
            .lock()
            .extend(ServerName::try_from(host.to_owned()));
        Ok(Peer::of(shared, host))
    }

    /// The files and their states.
    fn stamps(&self) -> Vec<Stamp> {
        let identity = self.identity.iter().flat_map(|(pem, key)| [pem, key]);
        let all = self.authorities.iter().chain(identity);
        all.filter_map(Pem::stamp).collect()
    }

    /// The same with what was given.
    fn with(mut self, (authorities, identity): &Given) -> TlsConfig {
        if !authorities.is_empty() {
            self.set_authorities(authorities);
        }
        if !identity.is_empty() {
            self.set_identity(identity, identity);
        }
        self
    }

    fn configure(&self, hosts: &Hosts) -> Result<ClientConfig> {
        // The provider of the process is left for the program to choose.
        let provider: Arc<CryptoProvider> = aws_lc_rs::default_provider().into();
        let pins: Option<Vec<_>> = self.pins.iter().map(|text| pin_in(text)).collect();
        let verifier = Verifier {
            chain: self.chain(&provider)?,
            pins: pins.ok_or_else(|| {
                let reason = "it has to be the SHA-256 of a public key: 64 hexadecimal digits or 44 characters of \
                    base64";
                Error::config("tls_pin_sha256", reason)
            })?,
            hosts: Arc::clone(hosts),
            algorithms: provider.signature_verification_algorithms,
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config("the URL", error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificate.certificates(IDENTITY)?;
        let pem = key.read().map_err(|reason| key.error(IDENTITY, reason))?;
        let parsed = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
            // The words of the parser might repeat a part of the key.
            key.error(IDENTITY, "no private key in PEM form was found in it")
        })?;
        builder
            .with_client_auth_cert(chain, parsed)
            .map_err(|error| {
                let reason = match error {
                    rustls::Error::InconsistentKeys(_) => {
                        "the private key does not belong to the certificate"
                    }
                    _ => "the certificate or its private key has an unsupported type",
                };
                key.error(IDENTITY, reason)
            })
    }

    /// What checks a certificate by its authorities; `None` where it is known by its key alone.
    fn chain(&self, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<WebPkiServerVerifier>>> {
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(pem) => {
                for certificate in pem.certificates(AUTHORITY)? {
                    roots
                        .add(certificate)
                        .map_err(|error| pem.error(AUTHORITY, error.to_string()))?;
                }
            }
            None if !self.pins.is_empty() => return Ok(None),
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    let reason = "this system has no trusted certificate authorities; install them, or give the \
                        server's with Builder::ca_certificate";
                    return Err(Error::config("the URL", reason));
                }
            }
        }
        WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider))
            .build()
            .map(Some)
            .map_err(|error| Error::config(AUTHORITY, error.to_string()))
    }

    /// Whether it is read from files or given, and so may be about to change.
    pub(super) fn may_change(&self) -> bool {
        self.provider.is_some() || !self.stamps().is_empty()
    }

    /// The days until our certificates end, of those that end soon, with the settings that have them.
    pub(super) fn ending(&self) -> Vec<(&'static str, u64)> {
        let days = |setting, pem: &Pem, count| {
            let found = pem.certificates(setting).ok()?;
            // An authority that ends is no trouble beside one that does not.
            let days: Option<Vec<u64>> = found.iter().take(count).map(days_left).collect();
            Some((setting, days?.into_iter().max()?))
        };
        let authorities = self.authorities.as_ref();
        let authorities = authorities.and_then(|pem| days(AUTHORITY, pem, usize::MAX));
        let identity = self.identity.as_ref();
        let identity = identity.and_then(|(pem, _)| days(IDENTITY, pem, 1));
        authorities.into_iter().chain(identity).collect()
    }
}

/// What all connections with the same settings have in common.
pub(super) struct Shared {
    pub(super) source: TlsConfig,
    /// The hosts of the URLs.
    hosts: Hosts,
    /// `None` before anything was given.
    current: Mutex<Option<Current>>,
}

/// The certificates as they were read last.
struct Current {
    source: TlsConfig,
    stamps: Vec<Stamp>,
    given: Given,
    config: Arc<ClientConfig>,
}

impl Shared {
    fn new(source: TlsConfig) -> Result<Shared> {
        let shared = Shared {
            source,
            hosts: Hosts::default(),
            current: Mutex::default(),
        };
        if shared.source.provider.is_none() {
            let read = shared.read(shared.source.stamps(), Given::default())?;
            *shared.current.lock() = Some(read);
        }
        Ok(shared)
    }

    fn read(&self, stamps: Vec<Stamp>, given: Given) -> Result<Current> {
        let source = self.source.clone().with(&given);
        Ok(Current {
            config: Arc::new(source.configure(&self.hosts)?),
            source,
            stamps,
            given,
        })
    }

    /// The settings for the next handshake. Files that have changed are read again, and who gives certificates is asked; while
    /// they are of no use, as a file that is half written, what was read before is used.
    pub(super) fn config(&self, deadline: Instant) -> Result<Arc<ClientConfig>, CallError> {
        let given = self.source.provider.as_ref().map(|it| it.get(deadline));
        let given = given.transpose()?.unwrap_or_default();
        let stamps = self.source.stamps();
        if let Some(current) = &*self.current.lock()
            && (&current.stamps, &current.given) == (&stamps, &given)
        {
            return Ok(Arc::clone(&current.config));
        }
        let read = self.read(stamps, given);
        let mut current = self.current.lock();
        match (read, &mut *current) {
            (Ok(read), current) => Ok(Arc::clone(&current.insert(read).config)),
            (Err(error), Some(current)) => {
                events::certificates_kept(&error);
                Ok(Arc::clone(&current.config))
            }
            (Err(error), None) => Err(CallError::NotSent(error.to_string().into())),
        }
    }

    /// See [`TlsConfig::ending`].
    pub(super) fn ending(&self) -> Vec<(&'static str, u64)> {
        let current = self.current.lock();
        current.iter().flat_map(|it| it.source.ending()).collect()
    }
}

/// The other end of a connection: what its certificate has to say, and how that is checked.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(super) shared: Arc<Shared>,
    /// The name that its certificate has to have.
    pub(super) host: Arc<str>,
}

impl Peer {
    fn of(shared: &Arc<Shared>, host: &str) -> Peer {
        Peer {
            host: shared.source.server_name.as_deref().unwrap_or(host).into(),
            shared: Arc::clone(shared),
        }
    }

    /// Another host that is to be talked to in the same way.
    pub(crate) fn at(&self, host: &str) -> Peer {
        Peer::of(&self.shared, host)
    }
}
