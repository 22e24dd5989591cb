//! Certificate files that change while a client uses them.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// The files configured in a client.
struct Files {
    dir: TempDir,
}

impl Files {
    /// The files of a client of these certificates.
    fn of(certificates: &Certificates) -> Files {
        let files = Files {
            dir: tempfile::tempdir().unwrap(),
        };
        files.change(certificates);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn change(&self, certificates: &Certificates) {
        let pair = certificates.client();
        self.write("ca.pem", &certificates.authority_pem());
        self.write("client.pem", &pair.certificate_pem());
        self.write("client.key", &pair.key_pem());
    }

    /// Replaces a file atomically.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    fn to(&self, builder: Builder) -> Builder {
        builder
            .ca_certificate_file(self.path("ca.pem"))
            .client_certificate_files(self.path("client.pem"), self.path("client.key"))
    }
}

/// Gives the server the certificates of another authority from now on, and ends all connections.
fn rotate(server: &Server, certificates: &Certificates) {
    let pair = certificates.server();
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    server.plain.cmd(&[
        "CONFIG",
        "SET",
        "tls-cert-file",
        &path(&pair.certificate),
        "tls-key-file",
        &path(&pair.key),
        "tls-ca-cert-file",
        &path(&certificates.authority()),
    ]);
    cut(server);
}

fn cut(server: &Server) {
    for kind in ["normal", "pubsub"] {
        let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
        server.plain.cmd(&kill);
    }
    thread::sleep(ms(100));
}

fn patient() -> Builder {
    quick()
        .connect_timeout(ms(5000))
        .command_timeout(ms(5000))
        .outage_timeout(Duration::from_secs(30))
}

#[test]
fn changed_certificates_end_no_hold_and_no_wait() {
    let (old, new) = (Certificates::new(), Certificates::new());
    new.server();
    let files = Files::of(&old);
    let server = Server::with(
        &old.server(),
        true,
        &["--tls-ca-cert-file", old.authority().to_str().unwrap()],
    );
    let client = files.to(patient().watchdog_timeout(LEASE));
    let client = client.open(&server.url()).unwrap();
    let other = plain(&server.plain);
    let guard = client.lock("held").guard().unwrap();
    let theirs = other.lock("orders");
    theirs.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.lock("orders").guard().map(drop));
        somebody_waits(&server.plain, "orders");
        rotate(&server, &new);
        thread::sleep(LEASE / 4);
        assert!(guard.is_valid() && !waiting.is_finished());
        // Neither side trusts the other.
        let error = fails(client.lock("free").try_lock(), Class::Unreachable);
        assert!(error.to_string().contains("untrusted authority"), "{error}");
        files.write("ca.pem", &new.authority_pem());
        let error = fails(client.lock("free").try_lock(), Class::Unreachable);
        assert!(
            error.to_string().contains("refused the handshake"),
            "{error}"
        );
        // One after another, so that they do not match for a moment.
        let pair = new.client();
        files.write("client.pem", &pair.certificate_pem());
        let error = fails(client.lock("free").try_lock(), Class::Unreachable);
        assert!(
            error
                .to_string()
                .contains("does not belong to the certificate"),
            "{error}"
        );
        files.write("client.key", &pair.key_pem());
        thread::sleep(LEASE * 3 / 2);
        assert!(guard.is_valid(), "it is renewed");
        theirs.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
    guard.unlock().unwrap();
}

#[test]
fn a_half_written_file_changes_nothing() {
    let certificates = Certificates::new();
    let files = Files::of(&certificates);
    let server = Server::with(
        &certificates.server(),
        true,
        &[
            "--tls-ca-cert-file",
            certificates.authority().to_str().unwrap(),
        ],
    );
    let client = files.to(patient()).open(&server.url()).unwrap();
    let lock = client.lock("orders");
    let works = || {
        cut(&server);
        assert!(lock.try_lock().unwrap());
        lock.unlock().unwrap();
    };
    works();
    let authority = certificates.authority_pem();
    files.write("ca.pem", &authority[..authority.len() / 2]);
    works();
    fs::remove_file(files.path("ca.pem")).unwrap();
    works();
    files.write("client.key", "");
    works();
    files.change(&certificates);
    works();
}

#[test]
fn files_that_cannot_be_used_at_first_are_named() {
    let missing = quick().ca_certificate_file("/nowhere/ca.pem");
    let error = fails(missing.open("rediss://127.0.0.1:1"), Class::Config).to_string();
    assert!(
        error.contains("ca_certificate") && error.contains("/nowhere/ca.pem"),
        "{error}"
    );
    let pair = certificates().client();
    let swapped = trusting().client_certificate_files(&pair.key, &pair.certificate);
    let error = fails(swapped.open("rediss://127.0.0.1:1"), Class::Config).to_string();
    assert!(error.contains("client.key: no certificate"), "{error}");
}

#[test]
fn a_certificate_that_expires_soon_is_reported() {
    let certificates = Certificates::new();
    let found = |server: &Server, builder: Builder| {
        let client = builder.open(&server.url()).unwrap();
        let found = client.check().unwrap();
        let found = found.into_iter().filter(|it| it.code == "certificate");
        found.map(|it| it.message).collect::<Vec<_>>()
    };
    let authority = || patient().ca_certificate(certificates.authority_pem());
    let server = Server::with(&certificates.lasting(13), false, &[]);
    let told = found(&server, authority());
    assert!(
        told.iter().any(|it| it.contains("the server ends in 1")),
        "{told:?}"
    );
    let server = Server::with(
        &certificates.lasting(30),
        true,
        &[
            "--tls-ca-cert-file",
            certificates.authority().to_str().unwrap(),
        ],
    );
    let pair = certificates.client();
    let told = found(
        &server,
        authority().client_certificate_files(&pair.certificate, &pair.key),
    );
    assert!(!told.iter().any(|it| it.contains("the server")), "{told:?}");
    assert!(
        told.iter()
            .any(|it| it.contains("client_certificate ends in ")),
        "{told:?}"
    );
}
