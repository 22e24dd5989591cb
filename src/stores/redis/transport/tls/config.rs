//! The settings of TLS, and what follows from them for one host.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::ground::error::{Error, Result};

/// The authorities that a client trusts, and the certificate that it shows.
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
        let reason = "the URL is not one with TLS; write rediss:// in place of redis://";
        Err(Error::config(setting, reason))
    }

    /// Returns the settings for `host`, by its name in the URL.
    pub(crate) fn toward(&self, host: &str) -> Result<Peer> {
        if ServerName::try_from(host).is_err() {
            let reason = "its host is no name that a certificate can have";
            return Err(Error::config("the Redis URL", reason));
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
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(pem) => {
                let setting = "ca_certificate";
                for certificate in
                    certificates(pem).map_err(|reason| Error::config(setting, reason))?
                {
                    roots
                        .add(certificate)
                        .map_err(|error| Error::config(setting, error.to_string()))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    let reason = "this system has no certificate authorities that could be trusted; install them, or \
                                  give the server's with Builder::ca_certificate";
                    return Err(Error::config("the Redis URL", reason));
                }
            }
        }
        // The provider of the process is left for the program to choose.
        let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config("the Redis URL", error.to_string()))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let setting = "client_certificate";
        let chain = certificates(certificate).map_err(|reason| Error::config(setting, reason))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            // The words of the parser might repeat a part of the key.
            Error::config(setting, "no private key in PEM form was found in it")
        })?;
        builder.with_client_auth_cert(chain, key).map_err(|error| {
            let reason = match error {
                rustls::Error::InconsistentKeys(_) => {
                    "the private key is not that of the certificate"
                }
                _ => "the certificate or its private key is of a kind that cannot be used",
            };
            Error::config(setting, reason)
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
    pub(super) config: Arc<ClientConfig>,
    pub(super) host: Arc<str>,
    /// Whether a handshake went well before, so that silence means nothing more.
    pub(super) is_proven: Arc<AtomicBool>,
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
