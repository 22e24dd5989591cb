//! When a certificate ends.

use std::time::Duration;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A certificate that ends within so many days is reported.
const SOON: u32 = 14;

/// The days that are left of a certificate, if they are few.
pub(super) fn days_left(certificate: &CertificateDer<'_>) -> Option<u64> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let now = Duration::from_secs(UnixTime::now().as_secs());
    let then = UnixTime::since_unix_epoch(now + DAY * SOON);
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    // Its time is checked before its authority, of which there is none here.
    let roots = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], then, algorithms.all) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs().saturating_sub(now.as_secs()) / DAY.as_secs())
        }
        _ => None,
    }
}
