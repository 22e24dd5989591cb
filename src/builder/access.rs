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
    /// Connections to sentinels use the TLS settings and the [`credentials_with`](Builder::credentials_with) function of
    /// `settings`. The other settings of `settings` are ignored. Defaults to the TLS settings of the master, and to the user
    /// and the password in the URLs of the sentinels.
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
    /// Sets the name that the certificate of every server must contain. The client also sends this name to the server (SNI).
    ///
    /// Use this setting for servers behind a tunnel or a forwarded port. Also use it if a Cluster or sentinels announce
    /// hosts that the servers' certificates do not contain. Only `rediss://` and `mysqls://` URLs accept this setting.
    /// Defaults to the host of the URL or the announced host. If the announced host is an IP address, the certificate
    /// may instead contain the host of one of the URLs.
    tls_server_name(name: impl Into<String>) => settings.access.tls_config.server_name = Some(name.into());

    #[cfg(feature = "tls")]
    /// Sets whether connections to the master that the sentinels name are encrypted.
    ///
    /// Only [`sentinel`](Builder::sentinel) accepts this setting. With true, the TLS settings are accepted even if the URLs
    /// of the sentinels are `redis://`. Defaults to true if these URLs are `rediss://`.
    master_tls(is_encrypted: bool) => settings.master_tls = Some(is_encrypted);
}

impl Builder {
    /// Sets the user and the password for the master that the sentinels name. `""` is the default user.
    ///
    /// Only [`sentinel`](Builder::sentinel) accepts this setting. For other servers the URL contains the user and the
    /// password. Defaults to none.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Builder {
        self.settings.credentials = Some(Credentials {
            user: user.into(),
            password: password.into(),
        });
        self.settings.access.provider = None;
        self
    }

    /// Sets a function that returns the user and the password for each new connection. `""` is the default user.
    ///
    /// Use this setting for passwords that change, and for access tokens that expire. If the server refuses the returned
    /// credentials, the client calls the function once more. If the server refuses the credentials of this second call,
    /// or if the function fails or panics, this counts as an outage. Waits then continue for the
    /// [`outage_timeout`](Builder::outage_timeout), and renewals resume when the server accepts a connection.
    ///
    /// The function runs on a separate thread, one call at a time. A connection waits for the result for at most
    /// [`connect_timeout`](Builder::connect_timeout). With sentinels, the result is for the master;
    /// [`sentinel_settings`](Builder::sentinel_settings) sets the credentials for the sentinels. A URL with a password
    /// is refused, unless it is the URL of a sentinel. Defaults to none.
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
    /// Sets the trusted certificate authorities, one or several in PEM form. No other authority is trusted.
    ///
    /// Only `rediss://` and `mysqls://` URLs accept this setting. Defaults to the authorities that the system trusts.
    pub fn ca_certificate(self, pem: impl AsRef<[u8]>) -> Builder {
        self.with_tls(|tls| tls.authorities = Some(Pem::text(pem.as_ref())))
    }

    /// Sets the file with the trusted certificate authorities; see [`ca_certificate`](Builder::ca_certificate).
    ///
    /// A changed file is read again before the next new connection. While the content is invalid, such as half written, the
    /// last valid content is used. TLS failures that another file may cure, such as an expired certificate or an
    /// unknown authority, count as an outage. Waits then continue for the [`outage_timeout`](Builder::outage_timeout).
    pub fn ca_certificate_file(self, path: impl AsRef<Path>) -> Builder {
        self.with_tls(|tls| tls.authorities = Some(Pem::file(path.as_ref())))
    }

    /// Sets the certificate of the client and its private key, in PEM form. Certificates of intermediate authorities may
    /// follow the certificate.
    ///
    /// Only `rediss://` and `mysqls://` URLs accept this setting. A Redis server with `tls-auth-clients yes`, the default,
    /// requires a client certificate. Defaults to none.
    pub fn client_certificate(
        self,
        certificate_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Builder {
        let pair = [certificate_pem.as_ref(), key_pem.as_ref()].map(Pem::text);
        self.with_tls(|tls| tls.identity = Some(pair.into()))
    }

    /// Sets the files with the certificate of the client and its private key. For changes of the files, see
    /// [`ca_certificate_file`](Builder::ca_certificate_file).
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
    /// Both results are texts in PEM form. The text with the client certificate also contains the private key. For an empty
    /// text, the other certificate settings apply, such as [`ca_certificate`](Builder::ca_certificate). The function
    /// runs on a separate thread, one call at a time. A connection waits for the result for at most
    /// [`connect_timeout`](Builder::connect_timeout). [`ca_certificate_file`](Builder::ca_certificate_file) lists the
    /// TLS failures that count as outages. Only `rediss://` and `mysqls://` URLs accept this setting. Defaults to none.
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

    /// Adds the SHA-256 hash of a public key. Then the public key of every server must have one of the added hashes.
    ///
    /// `pin` is the hash of the `SubjectPublicKeyInfo`, in hexadecimal digits or base64, as in `curl --pinnedpubkey`. Use
    /// this setting for self-signed certificates. Without [`ca_certificate`](Builder::ca_certificate), the client checks
    /// only the key. If authorities are set, the client also checks the authority, the names and the validity period of
    /// the certificate. Only `rediss://` and `mysqls://` URLs accept this setting. Defaults to none.
    pub fn tls_pin_sha256(self, pin: impl Into<String>) -> Builder {
        self.with_tls(|tls| tls.pins.push(pin.into()))
    }

    fn with_tls(mut self, set: impl FnOnce(&mut TlsConfig)) -> Builder {
        set(&mut self.settings.access.tls_config);
        self
    }
}
