//! The names in certificates, and keys pinned by their hash.

use super::*;
use crate::support::free_port;
use crate::support::topology_fixtures::FakeSentinel;

fn takes(lock: &Lock) {
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
}

#[test]
fn the_certificate_must_have_the_given_name() {
    let server = Server::with(&certificates().elsewhere(), false, &[]);
    takes(&server.lock(trusting().tls_server_name("elsewhere.example")));
    let other = server.lock(trusting().tls_server_name("other.example"));
    is_refused(&other, server.port, &["another host", "other.example"]);
    let none = trusting().tls_server_name("no name");
    let error = fails(none.open(&server.url()), Class::Config);
    assert!(error.to_string().contains("tls_server_name"), "{error}");
}

/// A server that is a whole cluster, and announces an IP address.
fn cluster(pair: &Pair) -> Server {
    let more = [
        "--tls-cluster",
        "yes",
        "--cluster-enabled",
        "yes",
        "--cluster-announce-ip",
        "127.0.0.1",
        "--cluster-config-file",
        "nodes-of-a-test.conf",
        "--dir",
    ];
    let dir = pair.certificate.parent().unwrap().to_str().unwrap();
    let bus = free_port().to_string();
    let own = [dir, "--cluster-port", &bus];
    let server = Server::with(pair, false, &[&more[..], &own].concat());
    let slots = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    server.plain.cmd(&slots);
    eventually(ms(20_000), "the cluster is well", || {
        let told = server.plain.text(&["CLUSTER", "INFO"]);
        told.is_some_and(|told| told.contains("cluster_state:ok"))
    });
    server
}

#[test]
fn an_announced_address_may_have_the_certificate_of_the_host() {
    let certificates = Certificates::new();
    let server = cluster(&certificates.of("name", "DNS:localhost"));
    let trusting = || trusting().ca_certificate(certificates.authority_pem());
    let by_name = format!("rediss://localhost:{}", server.port);
    takes(&trusting().cluster([&by_name]).unwrap().lock("orders"));
    let named = trusting().tls_server_name("localhost");
    takes(&named.cluster([server.url()]).unwrap().lock("orders"));
    // An address in the settings is not an announced address.
    let lock = trusting().cluster([server.url()]).unwrap().lock("orders");
    let error = ends_within(ms(0), || fails(lock.lock(), Class::Untrusted));
    assert!(error.to_string().contains("tls_server_name"), "{error}");
}

#[test]
fn sentinels_may_talk_plain_text_and_their_master_tls() {
    let server = Server::start();
    let sentinel = FakeSentinel::naming(([127, 0, 0, 1], server.port).into());
    let open = |builder: Builder| builder.sentinel("shop", [sentinel.url()]);
    takes(&open(trusting().master_tls(true)).unwrap().lock("orders"));
    // No connection falls back to plain text.
    fails(open(trusting()), Class::Config);
    fails(open(trusting().master_tls(false)), Class::Config);
    let lock = open(quick()).unwrap().lock("orders");
    fails(lock.try_lock(), Class::Unreachable);
    let untrusted = Certificates::new().authority_pem();
    let lock = open(quick().ca_certificate(untrusted).master_tls(true)).unwrap();
    fails(lock.lock("orders").try_lock(), Class::Untrusted);
    // The reverse: the fixture's port is not a sentinel, which shows only after the handshake.
    let sentinels = Server::start();
    let own = quick().sentinel_settings(trusting());
    let error = match own.sentinel("shop", [sentinels.url()]) {
        Ok(client) => client.lock("orders").try_lock().unwrap_err(),
        Err(error) => error,
    };
    assert!(
        error.to_string().contains("it is not a sentinel"),
        "{error}"
    );
}

#[test]
fn a_pinned_key_is_sufficient() {
    let certificates = Certificates::new();
    // Self-signed, and for no host.
    let server = Server::with(&certificates.of_itself(), false, &[]);
    let [hex, base64] = certificates.authority_pin();
    for pin in [
        &hex,
        &base64,
        &hex.to_uppercase(),
        &format!("sha256//{base64}"),
    ] {
        takes(&server.lock(quick().connect_timeout(ms(5000)).tls_pin_sha256(pin)));
    }
    let two = hurried_pin(&"0".repeat(64)).tls_pin_sha256(&hex);
    takes(&server.lock(two));
    let other = server.lock(hurried_pin(&"0".repeat(64)));
    is_refused(
        &other,
        server.port,
        &["has the SHA-256", &hex, "tls_pin_sha256"],
    );
    // With an authority both are checked.
    let server = Server::with(&certificates.server(), false, &[]);
    let both = || quick().ca_certificate(certificates.authority_pem());
    takes(&server.lock(both()));
    is_refused(
        &server.lock(both().tls_pin_sha256(&hex)),
        server.port,
        &["has the SHA-256"],
    );
    is_empty(&server.plain);
}

fn hurried_pin(pin: &str) -> Builder {
    quick().connect_timeout(ms(5000)).tls_pin_sha256(pin)
}

#[test]
fn a_pin_that_cannot_be_used_is_refused_at_once() {
    for pin in ["", "abc", &"g".repeat(64), &"00".repeat(31)] {
        let error = fails(
            quick().tls_pin_sha256(pin).open("rediss://h"),
            Class::Config,
        );
        assert!(error.to_string().contains("tls_pin_sha256"), "{error}");
    }
    let pinned = quick().tls_pin_sha256("00".repeat(32));
    fails(pinned.open("redis://127.0.0.1:1"), Class::Config);
}
