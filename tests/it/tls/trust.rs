//! Which certificates are trusted, and which are refused.

use super::*;

#[test]
fn an_unknown_authority_is_refused() {
    let server = Server::start();
    let words = ["untrusted authority", "Builder::ca_certificate"];
    let another = quick().ca_certificate(Certificates::new().authority_pem());
    is_refused(&server.lock(another), server.port, &words);
    // By default the system's authorities are trusted, which do not include the test's.
    match quick().open(&server.url()) {
        Ok(client) => is_refused(&client.lock("orders"), server.port, &words),
        Err(error) => {
            let error = fails::<()>(Err(error), Class::Config);
            assert!(error.to_string().contains("ca_certificate"), "{error}");
        }
    }
    is_empty(&server.plain);
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let server = Server::with(&certificates().elsewhere(), false, &[]);
    let words = ["another host", "127.0.0.1", "elsewhere.example"];
    is_refused(&server.lock(trusting()), server.port, &words);
    let by_name = format!("rediss://localhost:{}", server.port);
    let lock = trusting().open(&by_name).unwrap().lock("orders");
    is_refused(&lock, server.port, &["another host", "\"localhost\""]);
    is_empty(&server.plain);
}

#[test]
fn an_expired_certificate_is_refused() {
    let server = Server::with(&Certificates::expired(certificates()), false, &[]);
    is_refused(
        &server.lock(trusting()),
        server.port,
        &["expired", "renew it", "clock"],
    );
    is_empty(&server.plain);
}

#[test]
fn certificates_in_unsupported_formats_are_named() {
    // A separate authority, because the files of the shared one exist already.
    let certificates = Certificates::new();
    let trusting = || quick().ca_certificate(certificates.authority_pem());
    for (pair, words) in [
        (
            certificates.first_version(),
            ["cannot be used", "UnsupportedCertVersion"],
        ),
        (
            certificates.of_itself(),
            ["cannot be used", "CaUsedAsEndEntity"],
        ),
    ] {
        let server = Server::with(&pair, false, &[]);
        is_refused(&server.lock(trusting()), server.port, &words);
        is_empty(&server.plain);
    }
}

#[test]
fn tls_and_plain_addresses_cannot_be_mixed() {
    let (tls, plain) = ("rediss://:canary@10.0.0.1", "redis://:canary@10.0.0.2");
    for urls in [[tls, plain], [plain, tls]] {
        for opened in [
            quick().cluster(urls),
            quick().master_replicas(urls),
            quick().sentinel("shop", urls),
        ] {
            let text = fails(opened, Class::Config).to_string();
            assert!(text.contains("plain text"), "{text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }
    let again = tls.replace("10.0.0.1", "10.0.0.3");
    quick().cluster([tls, &again]).unwrap();
}

#[test]
fn a_server_may_require_a_client_certificate() {
    for version in ["TLSv1.3", "TLSv1.2"] {
        let protocols = ["--tls-protocols", version];
        let server = Server::with(&certificates().server(), true, &protocols);
        let words = ["client certificate", "Builder::client_certificate"];
        is_refused(&server.lock(trusting()), server.port, &words);
        let others = Certificates::new();
        let untrusted = others.client();
        let untrusted =
            trusting().client_certificate(untrusted.certificate_pem(), untrusted.key_pem());
        let words = ["refused the handshake", "Builder::client_certificate"];
        is_refused(&server.lock(untrusted), server.port, &words);
        is_empty(&server.plain);

        let ours = certificates().client();
        let ours = trusting().client_certificate(ours.certificate_pem(), ours.key_pem());
        let client = ours.watchdog_timeout(LEASE).open(&server.url()).unwrap();
        all_works(&server.plain, &client);
    }
}

#[test]
fn certificates_that_cannot_be_used_are_refused_at_once() {
    let server = certificates().server();
    let client = certificates().client();
    let (certificate, key) = (client.certificate_pem(), client.key_pem());
    let secret = key.lines().nth(1).unwrap().to_owned();
    let half_key = key.replace("-----END", "-----");
    let refused = |builder: Builder, words: &str| {
        let error = fails(builder.open("rediss://127.0.0.1:1"), Class::Config);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(words), "{shown}");
        assert!(!shown.contains(&secret), "the key is shown: {shown}");
    };
    refused(quick().ca_certificate(""), "ca_certificate");
    refused(quick().ca_certificate(&key), "ca_certificate");
    refused(
        quick().ca_certificate("-----BEGIN CERTIFICATE-----\nx"),
        "PEM",
    );
    refused(trusting().client_certificate("", &key), "no certificate");
    refused(
        trusting().client_certificate(&certificate, ""),
        "no private key",
    );
    refused(
        trusting().client_certificate(&certificate, &half_key),
        "no private key",
    );
    refused(
        trusting().client_certificate(&certificate, &certificate),
        "no private key",
    );
    refused(
        trusting().client_certificate(&certificate, server.key_pem()),
        "does not belong to the certificate",
    );
    let builder = trusting().client_certificate(&certificate, &key);
    let shown = format!("{builder:?}");
    assert!(!shown.contains(&secret), "{shown}");
}

#[test]
fn certificates_for_a_plain_connection_are_refused() {
    let server = RedisServer::start();
    let client = certificates().client();
    for url in [server.url(), server.unix_url()] {
        let error = fails(trusting().open(&url), Class::Config);
        assert!(error.to_string().contains("rediss://"), "{error}");
        let identity = quick().client_certificate(client.certificate_pem(), client.key_pem());
        fails(identity.open(&url), Class::Config);
    }
    assert!(connections(&server).is_empty());
}

#[test]
fn the_check_cannot_be_switched_off() {
    let server = Server::start();
    let error = fails(
        trusting().open(&format!("{}/#insecure", server.url())),
        Class::Config,
    );
    assert!(error.to_string().contains("always checked"), "{error}");
}
