//! Failures of TLS that last until somebody changes something, in words that say what.

use std::io;

use rustls::{AlertDescription, CertificateError, OtherError};

pub(super) const NO_TLS: &str = "it does not speak TLS; use its TLS port or give it a certificate, or leave TLS out (redis://, mysql://)";

/// Why there is no use in trying again before somebody changes something, and what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) words: String,
    /// Whether other certificates may be on their way.
    pub(super) may_pass: bool,
}

/// Why there is no use in trying again now; `None` if there is.
pub(super) fn refusal(error: &rustls::Error) -> Option<Refusal> {
    let may_pass = match error {
        rustls::Error::AlertReceived(alert) => *alert != AlertDescription::CertificateRequired,
        rustls::Error::InvalidCertificate(error) => matches!(
            error,
            CertificateError::UnknownIssuer
                | CertificateError::BadSignature
                | CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        ),
        _ => false,
    };
    let words = words(error)?;
    Some(Refusal { words, may_pass })
}

fn words(error: &rustls::Error) -> Option<String> {
    Some(match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error),
        rustls::Error::NoCertificatesPresented => "it has no certificate".to_owned(),
        rustls::Error::InvalidMessage(_) => NO_TLS.to_owned(),
        rustls::Error::PeerIncompatible(_) => {
            format!(
                "its TLS has nothing in common with ours: {error}; it has to allow TLS 1.2 or 1.3"
            )
        }
        rustls::Error::AlertReceived(alert) => of_alert(*alert)?,
        _ => return None,
    })
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        // A bad signature is that of an authority with the name of one that is trusted.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!(
                "its certificate comes from an authority that is not trusted here ({error}); give the authority's \
                 certificate with Builder::ca_certificate"
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "its certificate is for another host ({error}); use a name or an address that stands in the certificate, or give one \
                 with Builder::tls_server_name"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!(
                "its certificate has expired ({error}); renew it, and see that the clock of this machine is right"
            )
        }
        CertificateError::Other(OtherError(error)) if error.is::<io::Error>() => {
            format!(
                "{error}, which Builder::tls_pin_sha256 does not have; look who answers there, or give that"
            )
        }
        error => format!("its certificate cannot be used: {error}"),
    }
}

/// Returns the reason for which the other end refuses us, if it lasts.
fn of_alert(alert: AlertDescription) -> Option<String> {
    match alert {
        AlertDescription::CertificateRequired => Some(
            "it asks for a certificate of ours; give one with Builder::client_certificate"
                .to_owned(),
        ),
        AlertDescription::CloseNotify
        | AlertDescription::UnexpectedMessage
        | AlertDescription::BadRecordMac
        | AlertDescription::DecodeError
        | AlertDescription::InternalError
        | AlertDescription::UserCanceled => None,
        alert => Some(format!(
            "it refused the handshake ({alert:?}); if it asks for a certificate of ours, give one that it trusts with \
             Builder::client_certificate"
        )),
    }
}
