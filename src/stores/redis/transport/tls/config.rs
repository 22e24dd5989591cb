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
use crate::stores::redis::transport::{CallError, Provider};

#[derive(Clone, Default)]
pub(crate) struct TlsConfig {
    pub(crate) authorities: Option<Pem>,
    /// The client certificate and its private key.
    pub(crate) identity: Option<(Pem, Pem)>,
    pub(crate) server_name: Option<String>,
    pub(crate) pins: Vec<String>,
    /// Returns the authorities and the identity. An empty text stands for the field `authorities` or `identity`.
    pub(crate) provider: Option<Arc<Provider<Given>>>,
    shared: OnceLock<Arc<Shared>>,
}

type Given = (Vec<u8>, Vec<u8>);

/// PEM as text, or in a file that may change.
#[derive(Clone)]
pub(crate) enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

/// Inode, size and modification time of a file, to detect changes.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Pem {
    pub(crate) fn text(pem: &[u8]) -> Pem {
        Pem::Text(pem.to_vec())
    }

    /// Makes the path absolute, because the process may change its working directory.
    pub(crate) fn file(path: &Path) -> Pem {
        Pem::File(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    fn read(&self) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Pem::Text(pem) => Ok(pem.into()),
            Pem::File(path) => fs::read(path).map(Cow::Owned).map_err(|it| it.to_string()),
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        let Pem::File(path) = self else { return None };
        let of = |it: fs::Metadata| (it.ino(), it.len(), it.mtime(), it.mtime_nsec());
        Some(fs::metadata(path).ok().map(of))
    }

    fn error(&self, setting: &'static str, reason: impl Into<String>) -> Error {
        let file = match self {
            Pem::Text(_) => String::new(),
            Pem::File(path) => format!("{}: ", path.display()),
        };
        Error::config(setting, file + &reason.into())
    }

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
    /// A user with a TLS setting expects encryption, so the setting is an error on a connection without TLS.
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

    pub(crate) fn for_host(&self, host: &str) -> Result<Peer> {
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
        let name = ServerName::try_from(host.to_owned());
        shared.hosts.lock().extend(name);
        Ok(Peer::of(shared, host))
    }

    fn stamps(&self) -> Vec<Stamp> {
        let identity = self.identity.iter().flat_map(|(pem, key)| [pem, key]);
        let all = self.authorities.iter().chain(identity);
        all.filter_map(Pem::stamp).collect()
    }

    fn with(mut self, (authorities, identity): &Given) -> TlsConfig {
        if !authorities.is_empty() {
            self.authorities = Some(Pem::text(authorities));
        }
        if !identity.is_empty() {
            self.identity = Some((Pem::text(identity), Pem::text(identity)));
        }
        self
    }

    fn configure(&self, hosts: &Hosts) -> Result<ClientConfig> {
        // The process-wide `CryptoProvider` is the program's: this library does not set or use it.
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
            // The text of the parser error may contain a part of the key.
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

    /// `None` if only pinned keys are checked.
    fn chain(&self, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<WebPkiServerVerifier>>> {
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(pem) => {
                for certificate in pem.certificates(AUTHORITY)? {
                    let added = roots.add(certificate);
                    added.map_err(|error| pem.error(AUTHORITY, error.to_string()))?;
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

    pub(super) fn may_change(&self) -> bool {
        self.provider.is_some() || !self.stamps().is_empty()
    }

    /// Returns the configured certificates that expire soon: the name of the setting, and the days left.
    pub(super) fn ending(&self) -> Vec<(&'static str, u64)> {
        let days = |setting, pem: &Pem, count| {
            let found = pem.certificates(setting).ok()?;
            // If one of several authorities stays valid, no expiry is reported.
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

pub(super) struct Shared {
    pub(super) source: TlsConfig,
    hosts: Hosts,
    /// `None` until the provider has returned usable certificates.
    current: Mutex<Option<Current>>,
}

/// The newest usable certificates.
struct Current {
    source: TlsConfig,
    stamps: Vec<Stamp>,
    given: Given,
    config: Arc<ClientConfig>,
    /// Why newer certificates could not be used.
    trouble: Option<String>,
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
            trouble: None,
        })
    }

    /// If the new certificates are unusable, for example a half-written file, the previous certificates are used.
    pub(super) fn config(&self, deadline: Instant) -> Result<Arc<ClientConfig>, CallError> {
        let given = self.source.provider.as_ref().map(|it| it.get(deadline));
        let given = given.transpose()?.unwrap_or_default();
        let stamps = self.source.stamps();
        if let Some(current) = &mut *self.current.lock()
            && (&current.stamps, &current.given) == (&stamps, &given)
        {
            current.trouble = None;
            return Ok(Arc::clone(&current.config));
        }
        let read = self.read(stamps, given);
        let mut current = self.current.lock();
        match (read, &mut *current) {
            (Ok(read), current) => Ok(Arc::clone(&current.insert(read).config)),
            (Err(error), Some(current)) => {
                events::certificates_kept(&error);
                current.trouble = Some(error.to_string());
                Ok(Arc::clone(&current.config))
            }
            (Err(error), None) => Err(CallError::NotSent(error.to_string().into())),
        }
    }

    pub(super) fn ending(&self) -> Vec<(&'static str, u64)> {
        let current = self.current.lock();
        current.iter().flat_map(|it| it.source.ending()).collect()
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.current.lock().as_ref()?.trouble.clone()
    }
}

#[derive(Clone)]
pub(crate) struct Peer {
    pub(super) shared: Arc<Shared>,
    pub(super) host: Arc<str>,
}

impl Peer {
    fn of(shared: &Arc<Shared>, host: &str) -> Peer {
        Peer {
            host: shared.source.server_name.as_deref().unwrap_or(host).into(),
            shared: Arc::clone(shared),
        }
    }

    pub(crate) fn at(&self, host: &str) -> Peer {
        Peer::of(&self.shared, host)
    }
}
