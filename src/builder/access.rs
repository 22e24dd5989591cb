//! The settings of a client that let it into a server: users and passwords, certificates.

#[cfg(feature = "tls")]
use std::path::Path;
use std::sync::Arc;

use crate::builder::{Builder, setters};
use crate::stores::redis::{Credentials, Provider};
#[cfg(feature = "tls")]
use crate::stores::redis::{Pem, TlsConfig};

setters! {
    Builder:
    /// Sets how sentinels are connected to, where that differs from the master.
    ///
    /// Of `settings` the settings of TLS and [`credentials_with`](Builder::credentials_with) are used, in place of those of
    /// this builder; its other settings are ignored. By default the settings of TLS are those of the master, and the user and
    /// the password are in the URLs.
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
    /// Sets the name that the certificate of every server must have, and that is sent to it (SNI), in place of its host.
    ///
    /// For servers behind a tunnel or a port-forward, and for clusters and sentinels that announce other hosts than those in
    /// the certificates. Only for `rediss://` and `mysqls://`. Defaults to the host of the URL, or to the host that a cluster
    /// or a sentinel announces; for an announced IP address the certificate may also be for the host of one of the URLs.
    tls_server_name(name: impl Into<String>) => settings.access.tls_config.server_name = Some(name.into());

    #[cfg(feature = "tls")]
    /// Sets whether connections to the master that sentinels name are encrypted.
    ///
    /// Only for [`sentinel`](Builder::sentinel). Defaults to the scheme of the URLs of the sentinels.
    master_tls(is_encrypted: bool) => settings.master_tls = Some(is_encrypted);
}

impl Builder {
    /// Sets the user and the password at the master that the sentinels name; `""` is the default user.
    ///
    /// The user and the password in the URLs of sentinels are for the sentinels alone. Without sentinels the URLs have both,
    /// and this setting is refused. Defaults to none.
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
    /// For passwords that are changed, and for tokens that expire. It is asked once more if the server refuses what it gave.
    /// If that is refused, too, the server counts as unavailable: waits go on for the
    /// [`outage_timeout`](Builder::outage_timeout), and holds are renewed as soon as the server accepts the connection. The
    /// same holds for an error or a panic of the function, whose text becomes part of the error.
    ///
    /// It runs on a thread of its own and has [`connect_timeout`](Builder::connect_timeout) for its answer. There is one call
    /// at a time; connections that are made meanwhile use its answer. Behind sentinels it is for the master; for the sentinels
    /// see [`sentinel_settings`](Builder::sentinel_settings). A URL with a password is refused with this setting. Defaults to
    /// none.
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
    /// Sets the certificate authorities that are trusted, one or several in PEM form, and no others.
    ///
    /// Only for `rediss://` and `mysqls://`; other URLs are refused with this setting. Defaults to the authorities that the
    /// system trusts.
    pub fn ca_certificate(self, pem: impl AsRef<[u8]>) -> Builder {
        self.with_tls(|tls| tls.authorities = Some(Pem::text(pem.as_ref())))
    }

    /// Sets the file with the certificate authorities, which is read again when it has changed.
    ///
    /// It is checked at each new connection. A file that cannot be used, such as one that is only half written, is read
    /// again later; what was read before is used until then. While files are given, a certificate that either side refuses
    /// counts as an outage, because it may be about to be replaced: waits go on for the
    /// [`outage_timeout`](Builder::outage_timeout). See [`ca_certificate`](Builder::ca_certificate).
    pub fn ca_certificate_file(self, path: impl AsRef<Path>) -> Builder {
        self.with_tls(|tls| tls.authorities = Some(Pem::file(path.as_ref())))
    }

    /// Sets the certificate of the client, which may be followed by those of its authorities, and its private key, both in
    /// PEM form.
    ///
    /// Only for `rediss://` and `mysqls://`; other URLs are refused with this setting. A Redis server with
    /// `tls-auth-clients yes`, which is its default, asks for a certificate. Defaults to none.
    pub fn client_certificate(
        self,
        certificate_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Builder {
        let pair = [certificate_pem.as_ref(), key_pem.as_ref()].map(Pem::text);
        self.with_tls(|tls| tls.identity = Some(pair.into()))
    }

    /// Sets the files with the certificate of the client and its private key, which are read again when they have changed,
    /// as [`ca_certificate_file`](Builder::ca_certificate_file) is.
    pub fn client_certificate_files(
        self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Builder {
        let pair = [certificate.as_ref(), key.as_ref()].map(Pem::file);
        self.with_tls(|tls| tls.identity = Some(pair.into()))
    }

    /// Sets a function that returns the certificate authorities and the certificate of the client for each new connection.
    ///
    /// Both are in PEM form; the private key of the certificate of the client follows it in the same text. An empty text
    /// stands for what is set otherwise. The function is asked, and its failures count, as those of
    /// [`credentials_with`](Builder::credentials_with); what it returns counts as a file does, see
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

    /// Adds the SHA-256 of a public key; a server must have one of those that were added.
    ///
    /// It is that of the `SubjectPublicKeyInfo`, in hexadecimal digits or in base64, as `curl --pinnedpubkey` has it. For
    /// servers whose certificate is signed by itself: without [`ca_certificate`](Builder::ca_certificate), the key is all
    /// that is checked of a certificate, not its authority, its names and its time. With it, all are checked. Only for
    /// `rediss://` and `mysqls://`. Defaults to none.
    pub fn tls_pin_sha256(self, pin: impl Into<String>) -> Builder {
        self.with_tls(|tls| tls.pins.push(pin.into()))
    }

    fn with_tls(mut self, set: impl FnOnce(&mut TlsConfig)) -> Builder {
        set(&mut self.settings.access.tls_config);
        self
    }
}
