//! Checks a server's certificate: authority, name, public key, expiry.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    SupportedCipherSuite,
};

use crate::ground::sync::Mutex;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A certificate that expires within this many days is reported.
const SOON: u32 = 14;

/// The hosts of the URLs in the settings.
pub(super) type Hosts = Arc<Mutex<Vec<ServerName<'static>>>>;

#[derive(Debug)]
pub(super) struct Verifier {
    /// `None` if only the public key is checked.
    pub(super) chain: Option<Arc<WebPkiServerVerifier>>,
    /// The server's key must have one of these SHA-256 hashes. If the list is empty, any key is accepted.
    pub(super) pins: Vec<[u8; 32]>,
    pub(super) hosts: Hosts,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.pins.is_empty() {
            self.check_key(end_entity)?;
        }
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let check = |name: &ServerName<'_>| {
            chain.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
        };
        let checked = check(server_name);
        // Sentinels and cluster nodes announce IP addresses, which certificates rarely contain. So a certificate for
        // any configured host is accepted.
        match (&checked, server_name) {
            (
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )),
                ServerName::IpAddress(_),
            ) => {
                let hosts = self.hosts.lock();
                let found = hosts.iter().find_map(|it| check(it).ok());
                found.map_or(checked, Ok)
            }
            _ => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    fn check_key(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let SupportedCipherSuite::Tls13(suite) = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256
        else {
            return Err(Error::General("SHA-256 is not available".to_owned()));
        };
        let hash = suite.common.hash_provider.hash(&key);
        if self.pins.iter().any(|pin| pin == hash.as_ref()) {
            return Ok(());
        }
        let hash: String = hash.as_ref().iter().map(|it| format!("{it:02x}")).collect();
        let wrong = io::Error::other(format!("its public key has the SHA-256 {hash}"));
        let error = CertificateError::Other(OtherError(Arc::new(wrong)));
        Err(Error::InvalidCertificate(error))
    }
}

/// Parses a SHA-256 in hexadecimal or base64. Allows colons, and the prefix `sha256//` of curl.
pub(super) fn pin_in(text: &str) -> Option<[u8; 32]> {
    let text = text.trim();
    let text = text.strip_prefix("sha256//").unwrap_or(text);
    let digits = text.replace(':', "");
    if digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
        return bytes?.try_into().ok();
    }
    // The PEM parser serves as the base64 decoder.
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let bytes = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    bytes.as_ref().try_into().ok()
}

/// Returns `None` if the certificate is valid for more than `SOON` days.
pub(super) fn days_left(certificate: &CertificateDer<'_>) -> Option<u64> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let now = Duration::from_secs(UnixTime::now().as_secs());
    let then = UnixTime::since_unix_epoch(now + DAY * SOON);
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    // `roots` is empty, so the check always fails. If the certificate expires before `then`, the error is
    // `ExpiredContext`.
    let roots = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], then, algorithms.all) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs().saturating_sub(now.as_secs()) / DAY.as_secs())
        }
        _ => None,
    }
}
