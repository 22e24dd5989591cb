#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::stores::redis::transport::address::Address;

fn flaw(config: &TlsConfig, host: &str) -> String {
    config.for_host(host).err().unwrap().to_string()
}

fn with_identity(certificate: &str, key: &str) -> TlsConfig {
    let mut config = trusting();
    config.identity = Some((Pem::text(certificate.as_bytes()), Pem::text(key.as_bytes())));
    config
}

#[test]
fn certificates_without_tls_are_refused() {
    TlsConfig::default().check_is_unused().unwrap();
    let mut trusting = TlsConfig::default();
    trusting.authorities = Some(Pem::text(b"a"));
    let error = trusting.check_is_unused().unwrap_err().to_string();
    assert!(
        error.contains("ca_certificate") && error.contains("write rediss://"),
        "{error}"
    );
    let mut identified = TlsConfig::default();
    identified.identity = Some((Pem::text(b"a"), Pem::text(b"b")));
    let error = identified.check_is_unused().unwrap_err().to_string();
    assert!(error.contains("client_certificate"), "{error}");
}

#[test]
fn one_configuration_serves_all_hosts() {
    let config = trusting();
    let [one, other] = ["localhost", "127.0.0.1"].map(|host| config.for_host(host).unwrap());
    assert!(Arc::ptr_eq(&one.shared, &other.shared));
    assert_eq!((&*one.host, &*other.host), ("localhost", "127.0.0.1"));
    assert!(Arc::ptr_eq(&one.at("x").shared, &one.shared));
    assert!(flaw(&config, "no host").contains("its host cannot be the name in a certificate"));
}

#[test]
fn errors_about_authorities_name_the_cause() {
    let mut config = TlsConfig::default();
    config.authorities = Some(Pem::text(b"nothing"));
    let words = "no certificate in PEM form was found in it";
    assert!(flaw(&config, "h").contains(words));
    config.authorities = Some(Pem::text(
        b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ));
    let error = flaw(&config, "h");
    assert!(
        error.contains("ca_certificate") && error.contains("it is not in PEM form"),
        "{error}"
    );
    config.authorities = Some(Pem::text(
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ));
    assert!(flaw(&config, "h").contains("ca_certificate"));
}

#[test]
fn client_certificates_need_their_own_key() {
    let (client, server) = (certificates().client(), certificates().server());
    let (pem, key) = (client.certificate_pem(), client.key_pem());
    assert!(with_identity(&pem, &key).for_host("h").is_ok());
    let error = flaw(&with_identity(&pem, &server.key_pem()), "h");
    assert!(
        error.contains("the private key does not belong to the certificate"),
        "{error}"
    );
    let error = flaw(&with_identity(&pem, "secret"), "h");
    assert!(
        error.contains("no private key in PEM form was found in it"),
        "{error}"
    );
    assert!(!error.contains("secret"));
    let error = flaw(&with_identity("nothing", &key), "h");
    assert!(
        error.contains("no certificate in PEM form was found in it"),
        "{error}"
    );
    let odd = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let error = flaw(&with_identity(&pem, odd), "h");
    let words = "the certificate or its private key has an unsupported type";
    assert!(error.contains(words), "{error}");
}

#[test]
fn certificates_are_checked_for_the_connected_host() {
    let address = Address::parse("rediss://localhost:1", ms(1000), &trusting()).unwrap();
    let peer = address.peer.as_ref().unwrap();
    assert_eq!(&*peer.host, "localhost");
    let elsewhere = address.at_host("other", 2).peer.unwrap();
    assert_eq!(&*elsewhere.host, "other");
}
