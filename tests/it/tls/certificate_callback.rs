//! Certificates from a callback of the program.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use super::*;

/// The result of the callback: authorities, and a certificate with its key; or an error.
type Answer = Result<(String, String), String>;

/// A callback that returns a settable result, and counts its calls.
#[derive(Clone)]
struct CertificateStore {
    answer: Arc<Mutex<Answer>>,
    asked: Arc<AtomicU32>,
}

impl CertificateStore {
    fn new(answer: Answer) -> CertificateStore {
        CertificateStore {
            answer: Arc::new(Mutex::new(answer)),
            asked: Arc::default(),
        }
    }

    fn change(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn to(&self, builder: Builder) -> Builder {
        let store = self.clone();
        builder.certificates_with(move || {
            store.asked.fetch_add(1, Ordering::Relaxed);
            store.answer.lock().unwrap().clone()
        })
    }
}

fn all_of(certificates: &Certificates) -> Answer {
    let pair = certificates.client();
    let identity = pair.certificate_pem() + &pair.key_pem();
    Ok((certificates.authority_pem(), identity))
}

fn builder() -> Builder {
    quick()
        .connect_timeout(ms(2000))
        .command_timeout(ms(3000))
        .outage_timeout(Duration::from_secs(30))
        .watchdog_timeout(LEASE)
}

fn cut(server: &Server) {
    for kind in ["normal", "pubsub"] {
        server
            .plain
            .cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
    thread::sleep(ms(100));
}

#[test]
fn the_certificate_callback_runs_at_each_handshake() {
    let pair = certificates().server();
    let server = Server::with(&pair, true, &[]);
    let strange = Certificates::new();
    let store = CertificateStore::new(all_of(certificates()));
    let client = store.to(builder()).open(&server.url()).unwrap();
    assert_eq!(
        store.asked.load(Ordering::Relaxed),
        0,
        "nothing is connected yet"
    );
    let guard = client.lock("orders").guard().unwrap();
    let asked = store.asked.load(Ordering::Relaxed);
    assert!(asked > 0);
    // The server refuses the certificate for a while, which is an outage: the wait continues, and the hold stays.
    let (ca, _) = all_of(certificates()).unwrap();
    store.change(Ok((ca.clone(), all_of(&strange).unwrap().1)));
    cut(&server);
    let error = fails(client.lock("stock").try_lock(), Class::Unreachable);
    assert!(
        error.to_string().contains("refused the handshake"),
        "{error}"
    );
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.lock("stock").lock());
        thread::sleep(ms(300));
        store.change(all_of(certificates()));
        waiting.join().unwrap().unwrap();
    });
    assert!(store.asked.load(Ordering::Relaxed) > asked + 1);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    // An empty text leaves the setting unchanged.
    let pair = certificates().client();
    let store = CertificateStore::new(Ok((ca, String::new())));
    let mixed = builder().client_certificate(pair.certificate_pem(), pair.key_pem());
    let client = store.to(mixed).open(&server.url()).unwrap();
    client.lock("orders").lock().unwrap();
}

#[test]
fn a_failing_certificate_callback_ends_the_call_with_its_cause() {
    let server = Server::with(&certificates().server(), true, &[]);
    let nonsense = || Ok(("canary no PEM".to_owned(), String::new()));
    let (_, identity) = all_of(certificates()).unwrap();
    let without_key = certificates().client().certificate_pem();
    for (answer, word) in [
        (Err("the store is closed".to_owned()), "the store is closed"),
        (nonsense(), "no certificate in PEM form"),
        (Ok((String::new(), without_key)), "no private key"),
        (
            Ok((Certificates::new().authority_pem(), identity)),
            "untrusted authority",
        ),
    ] {
        let store = CertificateStore::new(answer);
        let client = store.to(builder()).open(&server.url()).unwrap();
        let error = ends_within(ms(3000), || {
            fails(client.lock("orders").try_lock(), Class::Unreachable)
        });
        assert!(error.to_string().contains(word), "{word}: {error}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        // Its later results are used.
        store.change(all_of(certificates()));
        assert!(client.lock("orders").try_lock().unwrap());
        client.lock("orders").unlock().unwrap();
        // The last valid result is used while it returns invalid ones.
        store.change(nonsense());
        cut(&server);
        assert!(client.lock("orders").try_lock().unwrap());
        client.lock("orders").unlock().unwrap();
    }
    let panics = builder().certificates_with(|| -> Answer { panic!("as planned") });
    let client = panics.open(&server.url()).unwrap();
    let error = fails(client.lock("orders").try_lock(), Class::Unreachable);
    assert!(error.to_string().contains("it panicked"), "{error}");
    let store = CertificateStore::new(all_of(certificates()));
    let plain = store.to(builder()).open(&server.plain.url());
    let error = fails(plain, Class::Config).to_string();
    assert!(
        error.contains("certificates_with") && error.contains("rediss://"),
        "{error}"
    );
}

#[test]
fn a_hanging_certificate_callback_delays_no_call() {
    let server = Server::with(&certificates().server(), true, &[]);
    let (go_on, orders) = mpsc::channel::<()>();
    let (orders, hangs) = (Mutex::new(orders), Arc::new(Mutex::new(false)));
    let told = Arc::clone(&hangs);
    let client = builder()
        .certificates_with(move || {
            if *told.lock().unwrap() {
                let _ = orders.lock().unwrap().recv();
            }
            all_of(certificates())
        })
        .open(&server.url())
        .unwrap();
    let guard = client.lock("orders").guard().unwrap();
    *hangs.lock().unwrap() = true;
    cut(&server);
    let error = ends_within(ms(3000), || {
        fails(client.lock("stock").try_lock(), Class::Unreachable)
    });
    let said = error.to_string();
    assert!(
        said.contains("certificates provider has not answered in time"),
        "{said}"
    );
    *hangs.lock().unwrap() = false;
    drop(go_on);
    thread::sleep(LEASE);
    assert!(guard.is_valid(), "it is renewed again");
    guard.unlock().unwrap();
}
