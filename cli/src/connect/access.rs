//! Users, passwords and certificates.

use std::path::{Path, PathBuf};

use redlatch::{Builder, Client};

use super::files::{load_secret, read_secret};
use super::url::{self, Credentials};
use super::variable;
use crate::errors::Failure;

#[derive(clap::Args, Clone, Debug)]
#[group(id = "access")]
pub(super) struct AccessArgs {
    /// The user [REDLATCH_USER]
    #[arg(long)]
    user: Option<String>,
    /// A file with the password, read for each connection; without it REDLATCH_PASSWORD is used
    /// [REDLATCH_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// A file with the trusted CA certificates for rediss:// and mysqls://; reread when it changes [REDLATCH_CA]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A file with the client certificate; reread when it changes [REDLATCH_CERT]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// A file with the private key of the client certificate [REDLATCH_KEY]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The name that each server certificate must have, instead of the host name [REDLATCH_TLS_NAME]
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
    /// The SHA-256 of the server's public key, in hex or base64; without --ca nothing else is checked
    /// [REDLATCH_TLS_PIN]
    #[arg(long, value_name = "HASH")]
    tls_pin: Option<String>,
    /// Whether the master behind sentinels uses TLS; by default as the sentinels do [REDLATCH_MASTER_TLS]
    #[arg(long, value_name = "yes|no")]
    master_tls: Option<String>,
    /// The user for the sentinels, with --sentinel-password-file [REDLATCH_SENTINEL_USER]
    #[arg(long, value_name = "USER")]
    sentinel_user: Option<String>,
    /// A file with the password for the sentinels [REDLATCH_SENTINEL_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    sentinel_password_file: Option<PathBuf>,
    /// The CA certificates for the sentinels, if not --ca [REDLATCH_SENTINEL_CA]
    #[arg(long, value_name = "FILE")]
    sentinel_ca: Option<PathBuf>,
    /// The client certificate for the sentinels, if not --cert [REDLATCH_SENTINEL_CERT]
    #[arg(long, value_name = "FILE", requires = "sentinel_key")]
    sentinel_cert: Option<PathBuf>,
    /// The private key of the certificate for the sentinels [REDLATCH_SENTINEL_KEY]
    #[arg(long, value_name = "FILE", requires = "sentinel_cert")]
    sentinel_key: Option<PathBuf>,
}

struct TlsSettings {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    name: Option<String>,
    pin: Option<String>,
}

fn path_setting(given: &Option<PathBuf>, name: &str) -> Option<PathBuf> {
    given.clone().or_else(|| variable(name).map(PathBuf::from))
}

fn text_setting(given: &Option<String>, name: &str) -> Option<String> {
    given.clone().or_else(|| variable(name))
}

fn certificate_pair(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    names: &str,
) -> Result<Option<(PathBuf, PathBuf)>, Failure> {
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, None) => Ok(None),
        _ => Err(Failure::usage(format!(
            "a client certificate needs its key and a key its certificate; set both {names}"
        ))),
    }
}

/// Each connection reads the file again, so the password may change.
pub(super) fn with_password_file(builder: Builder, user: String, file: &Path) -> Builder {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    builder.credentials_with(move || {
        let password = read_secret(&file).map_err(|failure| failure.to_string())?;
        Ok::<_, String>((user.clone(), password))
    })
}

impl AccessArgs {
    pub(super) fn credentials(&self) -> Result<Credentials, Failure> {
        let file = path_setting(&self.password_file, "REDLATCH_PASSWORD_FILE");
        let password = match &file {
            Some(file) => Some(load_secret(file)?),
            None => variable("REDLATCH_PASSWORD"),
        };
        Ok(Credentials {
            user: text_setting(&self.user, "REDLATCH_USER"),
            password,
            file,
        })
    }

    fn tls(&self) -> Result<TlsSettings, Failure> {
        let cert = path_setting(&self.cert, "REDLATCH_CERT");
        let key = path_setting(&self.key, "REDLATCH_KEY");
        Ok(TlsSettings {
            ca: path_setting(&self.ca, "REDLATCH_CA"),
            identity: certificate_pair(cert, key, "REDLATCH_CERT and REDLATCH_KEY")?,
            name: text_setting(&self.tls_name, "REDLATCH_TLS_NAME"),
            pin: text_setting(&self.tls_pin, "REDLATCH_TLS_PIN"),
        })
    }

    pub(super) fn certificates(&self, builder: Builder) -> Result<Builder, Failure> {
        self.tls()?.apply(builder)
    }

    pub(super) fn has_sentinel_settings(&self) -> bool {
        let paths = [
            &self.sentinel_password_file,
            &self.sentinel_ca,
            &self.sentinel_cert,
        ];
        paths.into_iter().any(Option::is_some)
            || self.sentinel_user.is_some()
            || self.master_tls.is_some()
    }

    pub(super) fn sentinel_settings(
        &self,
        mut builder: Builder,
        urls: &[String],
    ) -> Result<Builder, Failure> {
        let file = path_setting(
            &self.sentinel_password_file,
            "REDLATCH_SENTINEL_PASSWORD_FILE",
        );
        let ca = path_setting(&self.sentinel_ca, "REDLATCH_SENTINEL_CA");
        let cert = path_setting(&self.sentinel_cert, "REDLATCH_SENTINEL_CERT");
        let key = path_setting(&self.sentinel_key, "REDLATCH_SENTINEL_KEY");
        let identity = certificate_pair(
            cert,
            key,
            "REDLATCH_SENTINEL_CERT and REDLATCH_SENTINEL_KEY",
        )?;
        if file.is_some() || ca.is_some() || identity.is_some() {
            let mut sentinels = Client::builder();
            if let Some(file) = file {
                load_secret(&file)?;
                let user = text_setting(&self.sentinel_user, "REDLATCH_SENTINEL_USER");
                sentinels = with_password_file(sentinels, user.unwrap_or_default(), &file);
            }
            let of_master = self.tls()?;
            let own = match urls.iter().any(|url| url::uses_tls(url)) {
                // The sentinels have a CA of their own. So the TLS name and the pinned key, which belong to the master, do
                // not apply.
                true if ca.is_some() => TlsSettings {
                    ca,
                    identity: identity.or(of_master.identity),
                    name: None,
                    pin: None,
                },
                true => TlsSettings {
                    identity: identity.or(of_master.identity.clone()),
                    ..of_master
                },
                false => TlsSettings {
                    ca,
                    identity,
                    name: None,
                    pin: None,
                },
            };
            builder = builder.sentinel_settings(own.apply(sentinels)?);
        }
        let is_encrypted = match text_setting(&self.master_tls, "REDLATCH_MASTER_TLS").as_deref() {
            None => return Ok(builder),
            Some("yes") => true,
            Some("no") => false,
            Some(other) => {
                return Err(Failure::usage(format!(
                    "--master-tls is {other:?}; use yes or no"
                )));
            }
        };
        master_tls(builder, is_encrypted)
    }
}

#[cfg(feature = "tls")]
fn master_tls(builder: Builder, is_encrypted: bool) -> Result<Builder, Failure> {
    Ok(builder.master_tls(is_encrypted))
}

#[cfg(not(feature = "tls"))]
fn master_tls(builder: Builder, is_encrypted: bool) -> Result<Builder, Failure> {
    match is_encrypted {
        false => Ok(builder),
        true => Err(Failure::usage(
            "this redlatch was built without TLS; build it with the feature tls",
        )),
    }
}

impl TlsSettings {
    #[cfg(feature = "tls")]
    fn apply(self, mut builder: Builder) -> Result<Builder, Failure> {
        if let Some(file) = self.ca {
            builder = builder.ca_certificate_file(file);
        }
        if let Some((cert, key)) = self.identity {
            builder = builder.client_certificate_files(cert, key);
        }
        if let Some(name) = self.name {
            builder = builder.tls_server_name(name);
        }
        if let Some(pin) = self.pin {
            builder = builder.tls_pin_sha256(pin);
        }
        Ok(builder)
    }

    #[cfg(not(feature = "tls"))]
    fn apply(self, builder: Builder) -> Result<Builder, Failure> {
        match self {
            TlsSettings {
                ca: None,
                identity: None,
                name: None,
                pin: None,
            } => Ok(builder),
            _ => Err(Failure::usage(
                "this redlatch was built without TLS; build it with the feature tls",
            )),
        }
    }
}
