//! Settings for authentication and TLS.

#[cfg(feature = "tls")]
use std::path::Path;
use std::sync::Arc;

use crate::builder::{Builder, setters};
use crate::stores::redis::{Credentials, Provider};
#[cfg(feature = "tls")]
use crate::stores::redis::{Pem, TlsConfig};

setters! {
    Builder:
    /// Sets separate TLS settings and credentials for the sentinels.
    ///
    /// For connections to sentinels, the TLS settings and [`credentials_with`](Builder::credentials_with) of `settings`
    /// replace those of this builder. The other settings of `settings` are ignored. Defaults to the TLS settings of the
    /// master, and the user and the password in the URLs of the sentinels.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let sentinels = Client::builder().credentials_with(|| std::env::var("SENTINEL_TOKEN").map(|token| ("", token)));
    /// let client = Client::builder()
    ///     .credentials("locks", "secret")
    ///     .sentinel_settings(sentinels)
    ///     .sentinel("mymaster", ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"])?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    sentinel_settings(settings: Builder) => settings.sentinel_access = Some(settings.settings.access);

    #[cfg(feature = "tls")]
    /// Sets the name that the certificate of every server must have, and that is sent to it (SNI).
    ///
    /// Use this setting for servers behind a tunnel or a forwarded port, and for clusters and sentinels that announce other
    /// hosts than the certificates name. Only for `rediss://` and `mysqls://`. Defaults to the host of the URL or the
    /// announced host; for an announced IP address the host of one of the URLs is accepted, too.
    tls_server_name(name: impl Into<String>) => settings.access.tls_config.server_name = Some(name.into());

    #[cfg(feature = "tls")]
    /// Sets whether connections to the master that the sentinels name are encrypted.
    ///
    /// Only for [`sentinel`](Builder::sentinel). Defaults to the scheme of the URLs of the sentinels.
    master_tls(is_encrypted: bool) => settings.master_tls = Some(is_encrypted);
}

impl Builder {
    /// Sets the user and the password for the master that the sentinels name; `""` is the default user.
    ///
    /// Without sentinels this setting is refused: the URL has both. Defaults to none.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Builder {
        self.settings.credentials = Some(Credentials {
            user: user.into(),
            password: password.into(),
        });
        self.settings.access.provider = None;
        self
    }

    /// Sets a function that returns the user and the password for each new connection; `""` is the default user.
    ///
    /// Use this setting for passwords that change and tokens that expire. The function is called again if the server refuses
    /// its result. If the second result is refused, too, or the function returns an error or panics, the server counts as
    /// unavailable: waits continue for the [`outage_timeout`](Builder::outage_timeout), and renewals resume when the server
    /// accepts a connection.
    ///
    /// The function runs on a separate thread, one call at a time, for at most
    /// [`connect_timeout`](Builder::connect_timeout). Behind sentinels the function is for the master; for the sentinels see
    /// [`sentinel_settings`](Builder::sentinel_settings). A URL with a password is refused. Defaults to none.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::fs;
    /// use redlatch::Client;
    ///
    /// let client = Client::builder()
    ///     .credentials_with(|| fs::read_to_string("/run/secrets/redis").map(|password| ("locks", password)))
    ///     .open("redis://10.0.0.1:6379")?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn credentials_with<U, P, E>(
        mut self,
        provider: impl Fn() -> Result<(U, P), E> + Send + Sync + 'static,
    ) -> Builder
    where
        U: Into<String>,
        P: Into<String>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let ask = move || {
            provider().map(|(user, password)| Credentials {
                user: user.into(),
                password: password.into(),
            })
        };
        self.settings.access.provider = Some(Arc::new(Provider::new("credentials", ask)));
        self.settings.credentials = None;
        self
    }
}

#[cfg(feature = "tls")]
impl Builder {
    /// Sets the only trusted certificate authorities, one or several in PEM form.
    ///
    /// Only for `rediss://` and `mysqls://`; other URLs are refused with this setting. Defaults to the authorities
    /// that the system trusts.
    pub fn ca_certificate(self, pem: impl AsRef<[u8]>) -> Builder {
        self.with_tls(|tls| tls.authorities = Some(Pem::text(pem.as_ref())))
    }

    /// Sets the file with the trusted certificate authorities; see [`ca_certificate`](Builder::ca_certificate).
    ///
    /// After a change the file is read again at the next new connection. While its content is invalid, such as half written,
    /// the last valid content is used. A certificate that either side refuses counts as an outage, because the file may be
    /// replaced soon: waits continue for the [`outage_timeout`](Builder::outage_timeout).
    pub fn ca_certificate_file(self, path: impl AsRef<Path>) -> Builder {
        self.with_tls(|tls| tls.authorities = Some(Pem::file(path.as_ref())))
    }

    /// Sets the certificate of the client and its private key, in PEM form; the certificate may be followed by its
    /// authorities.
    ///
    /// Only for `rediss://` and `mysqls://`; other URLs are refused with this setting. A Redis server with
    /// `tls-auth-clients yes`, the default, requires one. Defaults to none.
    pub fn client_certificate(
        self,
        certificate_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Builder {
        let pair = [certificate_pem.as_ref(), key_pem.as_ref()].map(Pem::text);
        self.with_tls(|tls| tls.identity = Some(pair.into()))
    }

    /// Sets the files with the certificate of the client and its private key, which are read again after a change, as
    /// by [`ca_certificate_file`](Builder::ca_certificate_file).
    pub fn client_certificate_files(
        self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Builder {
        let pair = [certificate.as_ref(), key.as_ref()].map(Pem::file);
        self.with_tls(|tls| tls.identity = Some(pair.into()))
    }

    /// Sets a function that returns the certificate authorities and the client certificate for each new connection.
    ///
    /// Both are in PEM form; the private key follows the client certificate in the same text. An empty text leaves
    /// the other settings in force. The function is called like the function of
    /// [`credentials_with`](Builder::credentials_with). A refused certificate counts as an outage, as for
    /// [`ca_certificate_file`](Builder::ca_certificate_file). Only for `rediss://` and `mysqls://`. Defaults to none.
    pub fn certificates_with<A, C, E>(
        self,
        provider: impl Fn() -> Result<(A, C), E> + Send + Sync + 'static,
    ) -> Builder
    where
        A: AsRef<[u8]>,
        C: AsRef<[u8]>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let bytes = |(authorities, client): (A, C)| {
            (authorities.as_ref().to_vec(), client.as_ref().to_vec())
        };
        let provider = Provider::new("certificates", move || provider().map(bytes));
        self.with_tls(|tls| tls.provider = Some(Arc::new(provider)))
    }

    /// Adds the SHA-256 of a public key; a server must have one of the added keys.
    ///
    /// `pin` is the hash of the `SubjectPublicKeyInfo`, in hexadecimal digits or base64, as in `curl --pinnedpubkey`. Use
    /// this setting for self-signed certificates: without [`ca_certificate`](Builder::ca_certificate) only the key is
    /// checked, and not the authority, the names or the validity period of the certificate. With authorities set, all of
    /// these are checked. Only for `rediss://` and `mysqls://`. Defaults to none.
    pub fn tls_pin_sha256(self, pin: impl Into<String>) -> Builder {
        self.with_tls(|tls| tls.pins.push(pin.into()))
    }

    fn with_tls(mut self, set: impl FnOnce(&mut TlsConfig)) -> Builder {
        set(&mut self.settings.access.tls_config);
        self
    }
}
