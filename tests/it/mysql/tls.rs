//! TLS to a database: which settings work, which are refused, and with which words.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use redlatch::mysql::{RowTarget, Wait};
use redlatch::{Builder, Client, Error};

use super::make_tables;
use crate::invariants::{Class, ends_within, fails};
use crate::support::mariadb::password;
use crate::support::topology_fixtures::certificates::{Certificates, Pair};
use crate::support::{Database, MariaDb, eventually, ms};

fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES.get_or_init(|| {
        let certificates = Certificates::new();
        // They are files in one directory, so they are made before threads race for them.
        certificates.server();
        certificates.client();
        certificates.elsewhere();
        certificates.expired();
        certificates
    })
}

fn server(pair: &Pair, more: &[&str]) -> MariaDb {
    MariaDb::encrypted(certificates(), pair, more)
}

/// The server that most tests here share, which accepts connections without TLS, too.
fn shared() -> &'static MariaDb {
    static SHARED: OnceLock<MariaDb> = OnceLock::new();
    SHARED.get_or_init(|| server(&certificates().server(), &[]))
}

fn encrypted(url: &str) -> String {
    url.replacen("mysql://", "mysqls://", 1)
}

fn trusting() -> Builder {
    Client::builder()
        .command_timeout(ms(20_000))
        .connect_timeout(ms(10_000))
        .ca_certificate(certificates().authority_pem())
}

/// Each kind of lock once, over connections that the server calls encrypted.
fn all_works(database: &Database<'_>, builder: Builder, url: &str) {
    let client = builder.watchdog_timeout(ms(3000)).open(url).unwrap();
    client.create_tables().unwrap();
    let guard = client.lock("orders").guard().unwrap();
    thread::sleep(ms(3500));
    assert!(guard.is_valid(), "it is renewed");
    let large = "x".repeat(300_000);
    let cipher: (String, String, usize) = guard
        .transaction(|tx| {
            let found = tx.query_first("SHOW SESSION STATUS LIKE 'Ssl_cipher'", ())?;
            let (name, cipher): (String, String) = found.unwrap_or_default();
            // Longer than a TLS record, in both directions.
            let back: Option<String> = tx.query_first("SELECT ?", (&large,))?;
            Ok::<_, Error>((name, cipher, back.unwrap_or_default().len()))
        })
        .unwrap();
    assert!(
        !cipher.1.is_empty() && cipher.2 == large.len(),
        "{cipher:?}"
    );
    guard.unlock().unwrap();
    database.run(
        "CREATE TABLE IF NOT EXISTS stock (id INT PRIMARY KEY);\nREPLACE INTO stock VALUES (1)",
    );
    let rows = RowTarget::table("stock", "id").unwrap();
    let row = client.row_lock(&rows, 1).lock(Wait::Forever).unwrap();
    row.commit().unwrap();
    assert_eq!(client.locks("").count(), 0);
}

#[test]
fn locks_work_where_tls_is_required() {
    let server = server(&certificates().server(), &["--require-secure-transport=ON"]);
    let database = server.database();
    all_works(&database, trusting(), &encrypted(&database.url()));
    let by_name = database.url().replace("127.0.0.1", "localhost");
    all_works(&database, trusting(), &encrypted(&by_name));
    // The server reports only that the user is refused.
    let plain = Client::open(&database.url()).unwrap();
    let error = fails(plain.lock("orders").try_lock(), Class::Permission);
    assert!(error.to_string().contains("use mysqls://"), "{error}");
    assert!(!error.to_string().contains(password()), "{error}");
}

#[test]
fn a_user_that_requires_tls_or_a_certificate_is_reported() {
    let database = shared().database();
    make_tables(&database);
    for (user, needs) in [("encrypted", "SSL"), ("certified", "X509")] {
        database.run(&format!(
            "CREATE OR REPLACE USER {user}@'%' IDENTIFIED BY 'canary-user' REQUIRE {needs};\n\
             GRANT ALL ON {}.* TO {user}@'%'",
            database.name
        ));
    }
    let url = |user: &str| database.url_of(user, "canary-user");
    let said = |builder: Builder, url: &str| {
        let lock = builder.open(url).unwrap().lock("orders");
        fails(lock.try_lock(), Class::Permission).to_string()
    };
    let plain = said(Client::builder(), &url("encrypted"));
    assert!(
        plain.contains("REQUIRE SSL") && plain.contains("mysqls://"),
        "{plain}"
    );
    all_works(&database, trusting(), &encrypted(&url("encrypted")));
    let alone = said(trusting(), &encrypted(&url("certified")));
    assert!(
        alone.contains("X509") && alone.contains("client_certificate"),
        "{alone}"
    );
    let pair = certificates().client();
    let certified = trusting().client_certificate(pair.certificate_pem(), pair.key_pem());
    all_works(&database, certified, &encrypted(&url("certified")));
    let files = trusting().client_certificate_files(&pair.certificate, &pair.key);
    all_works(&database, files, &encrypted(&url("certified")));
    let wrong = said(
        trusting(),
        &encrypted(&database.url_of("encrypted", "canary")),
    );
    assert!(
        wrong.contains("correct the password") && !wrong.contains("canary"),
        "{wrong}"
    );
}

/// A connection that is refused at once, with these words, which ends a wait.
#[track_caller]
fn is_refused(builder: Builder, database: &Database<'_>, url: &str, words: &[&str]) {
    let lock = builder.open(url).unwrap().lock("orders");
    let error = ends_within(ms(0), || fails(lock.try_lock(), Class::Untrusted)).to_string();
    for word in words.iter().chain(&["orders", &*database.name]) {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
    assert!(!error.contains(password()), "{error}");
    ends_within(ms(0), || {
        fails(lock.try_lock_for(Duration::from_secs(60)), Class::Untrusted)
    });
}

#[test]
fn an_untrusted_database_is_refused() {
    let another = || Client::builder().ca_certificate(Certificates::new().authority_pem());
    let database = shared().database();
    let url = encrypted(&database.url());
    is_refused(another(), &database, &url, &["untrusted", "ca_certificate"]);
    let pin = "ab".repeat(32);
    is_refused(
        Client::builder().tls_pin_sha256(pin),
        &database,
        &url,
        &["tls_pin_sha256"],
    );
    let name = trusting().tls_server_name("shop.example");
    is_refused(name, &database, &url, &["another host", "shop.example"]);
    // A client certificate that the server does not trust.
    let unknown = Certificates::new();
    let pair = unknown.client();
    let untrusted = trusting().client_certificate(pair.certificate_pem(), pair.key_pem());
    is_refused(
        untrusted,
        &database,
        &url,
        &["refused the handshake", "client_certificate"],
    );
    // A file may be changing.
    let strange = Certificates::new();
    let file = Client::builder().ca_certificate_file(strange.authority());
    let lock = file.open(&url).unwrap().lock("orders");
    fails(lock.try_lock(), Class::Unreachable);

    let expired = server(&certificates().expired(), &[]);
    let database = expired.database();
    let url = encrypted(&database.url());
    is_refused(trusting(), &database, &url, &["expired", "renew it"]);

    let elsewhere = server(&certificates().elsewhere(), &[]);
    let database = elsewhere.database();
    let url = encrypted(&database.url());
    is_refused(trusting(), &database, &url, &["another host", "127.0.0.1"]);
    let by_name = url.replace("127.0.0.1", "localhost");
    is_refused(
        trusting(),
        &database,
        &by_name,
        &["another host", "localhost"],
    );
    all_works(
        &database,
        trusting().tls_server_name("elsewhere.example"),
        &url,
    );

    let database = MariaDb::shared().database();
    let url = encrypted(&database.url());
    is_refused(
        trusting(),
        &database,
        &url,
        &["does not speak TLS", "certificate", "mysql://"],
    );
}

#[test]
fn a_silent_or_slow_database_ends_a_call_in_time() {
    let database = shared().database();
    let builder = || {
        trusting()
            .command_timeout(ms(1500))
            .connect_timeout(ms(800))
    };
    for answer in ["", "greeting", "drip"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let greeting = b"\x4a\0\0\0\x0a5.5.5-fake\0\x01\0\0\0abcdefgh\0\xfe\xff\x21\x02\0\xff\x81\x15\0\0\0\0\0\0\0\0\0\0abcdefghijkl\0mysql_native_password\0";
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let greeting = match answer {
                    "greeting" => {
                        let mut whole = greeting.to_vec();
                        whole[0] = u8::try_from(greeting.len() - 4).unwrap();
                        stream.write_all(&whole).unwrap();
                        kept.push(stream);
                        continue;
                    }
                    "drip" => greeting,
                    _ => {
                        kept.push(stream);
                        continue;
                    }
                };
                thread::spawn(move || {
                    for byte in greeting {
                        if stream.write_all(&[*byte]).is_err() {
                            return;
                        }
                        thread::sleep(ms(50));
                    }
                    let _ = stream.read(&mut [0; 64]);
                });
            }
        });
        let client = builder()
            .open(&format!("mysqls://u:canary@127.0.0.1:{port}/db"))
            .unwrap();
        let error = ends_within(ms(1500), || {
            fails(client.lock("orders").try_lock(), Class::Unreachable)
        });
        let said = format!("{error:?}");
        assert!(
            said.contains("time") && !said.contains("canary"),
            "{answer}: {said}"
        );
    }
    make_tables(&database);
    let client = builder().open(&encrypted(&database.url())).unwrap();
    let guard = client.lock("orders").guard().unwrap();
    assert!(!database.connections().is_empty());
    drop(guard);
    drop(client);
    eventually(ms(5000), "the carriers end with the client", || {
        database.connections().is_empty()
    });
}
