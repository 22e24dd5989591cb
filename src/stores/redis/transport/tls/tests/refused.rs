use std::error::Error;
use std::fmt;

use rustls::{AlertDescription, CertificateError, InvalidMessage, OtherError, PeerIncompatible};

use super::*;

struct Words(&'static str);

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Words {}

fn begins(error: rustls::Error, words: &str) {
    let told = refusal(&error);
    let is_so = told
        .as_ref()
        .is_some_and(|told| told.words.starts_with(words));
    assert!(is_so, "{error:?}: {told:?}");
}

#[test]
fn certificate_errors_have_advice() {
    let other = |words| CertificateError::Other(OtherError(Arc::new(Words(words))));
    let stranger = "its certificate was issued by an untrusted authority";
    for (error, words) in [
        (CertificateError::UnknownIssuer, stranger),
        (CertificateError::BadSignature, stranger),
        (
            CertificateError::NotValidForName,
            "its certificate is for another host",
        ),
        (CertificateError::Expired, "its certificate has expired"),
        (
            CertificateError::NotValidYet,
            "its certificate cannot be used (",
        ),
        (other("else"), "its certificate cannot be used ("),
        (
            CertificateError::Revoked,
            "its certificate cannot be used (",
        ),
    ] {
        begins(rustls::Error::InvalidCertificate(error), words);
    }
}

#[test]
fn lasting_alerts_are_reported_others_are_retried() {
    let asks = "it requires a client certificate";
    let shakes = "it refused the handshake";
    for (alert, words) in [
        (AlertDescription::CertificateRequired, asks),
        (AlertDescription::NoCertificate, shakes),
        (AlertDescription::BadCertificate, shakes),
        (AlertDescription::UnknownCA, shakes),
        (AlertDescription::AccessDenied, shakes),
        (AlertDescription::HandshakeFailure, shakes),
        (AlertDescription::ProtocolVersion, shakes),
        (AlertDescription::UnrecognisedName, shakes),
    ] {
        begins(rustls::Error::AlertReceived(alert), words);
    }
    for passing in [
        AlertDescription::InternalError,
        AlertDescription::CloseNotify,
        AlertDescription::BadRecordMac,
    ] {
        assert_eq!(refusal(&rustls::Error::AlertReceived(passing)), None);
    }
}

#[test]
fn servers_without_usable_tls_are_reported() {
    begins(
        rustls::Error::NoCertificatesPresented,
        "it has no certificate",
    );
    begins(
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
        NO_TLS,
    );
    let old = PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig;
    let words = "no common TLS version or cipher: ";
    begins(rustls::Error::PeerIncompatible(old), words);
    for passing in [
        rustls::Error::DecryptError,
        rustls::Error::General("x".into()),
    ] {
        assert_eq!(refusal(&passing), None);
    }
}
