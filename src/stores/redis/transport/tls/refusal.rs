//! TLS failures that a retry does not cure, with advice.

use std::io;

use rustls::{AlertDescription, CertificateError, OtherError};

pub(super) const NO_TLS: &str = "it does not speak TLS; use its TLS port, give it a certificate, or connect without \
    TLS (redis://, mysql://)";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) words: String,
    /// Whether a retry with other certificates may succeed.
    pub(super) may_pass: bool,
}

/// Returns `None` if a retry may succeed.
pub(super) fn refusal(error: &rustls::Error) -> Option<Refusal> {
    let (words, may_pass) = match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error),
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => (
                "it requires a client certificate; set one with Builder::client_certificate"
                    .to_owned(),
                false,
            ),
            AlertDescription::CloseNotify
            | AlertDescription::UnexpectedMessage
            | AlertDescription::BadRecordMac
            | AlertDescription::DecodeError
            | AlertDescription::InternalError
            | AlertDescription::UserCanceled => return None,
            alert => (
                format!(
                    "it refused the handshake ({alert:?}); if it requires a client certificate, set one that it \
                        trusts with Builder::client_certificate"
                ),
                true,
            ),
        },
        rustls::Error::NoCertificatesPresented => ("it has no certificate".to_owned(), false),
        rustls::Error::InvalidMessage(_) => (NO_TLS.to_owned(), false),
        rustls::Error::PeerIncompatible(_) => (
            format!(
                "no common TLS version or cipher: {error}; the server has to allow TLS 1.2 or 1.3"
            ),
            false,
        ),
        _ => return None,
    };
    Some(Refusal { words, may_pass })
}

fn of_certificate(error: &CertificateError) -> (String, bool) {
    use CertificateError::*;
    let (what, advice, may_pass) = match error {
        // `BadSignature` means that an untrusted authority has the same name as a trusted authority.
        UnknownIssuer | BadSignature => (
            "was issued by an untrusted authority",
            "give the authority's certificate with Builder::ca_certificate",
            true,
        ),
        NotValidForName | NotValidForNameContext { .. } => (
            "is for another host",
            "use a name or address from the certificate, or set one with Builder::tls_server_name",
            false,
        ),
        Expired | ExpiredContext { .. } => (
            "has expired",
            "renew it, and check the clock of this machine",
            true,
        ),
        Other(OtherError(error)) if error.is::<io::Error>() => (
            "has a key that Builder::tls_pin_sha256 does not list",
            "check which server answers there, or pin this key",
            false,
        ),
        NotValidYet | NotValidYetContext { .. } => {
            ("cannot be used", "check the clocks of both machines", true)
        }
        _ => ("cannot be used", "replace it", false),
    };
    let words = format!("its certificate {what} ({error}); {advice}");
    (words, may_pass)
}
