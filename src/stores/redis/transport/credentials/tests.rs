#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn of(user: &str, password: &str) -> Credentials {
    Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
    }
}

#[test]
fn the_provider_is_called_for_each_connection() {
    let calls = AtomicUsize::new(0);
    let provider = Arc::new(CredentialsProvider::new("credentials", move || {
        Ok::<_, String>(of("", &calls.fetch_add(1, Ordering::Relaxed).to_string()))
    }));
    for expected in ["0", "1", "2"] {
        assert_eq!(provider.get(soon()).unwrap().password, expected);
    }
}

#[test]
fn a_blocked_provider_has_one_thread_and_serves_later_calls() {
    let (go_on, orders) = mpsc::channel::<()>();
    let orders = std::sync::Mutex::new(orders);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let provider = CredentialsProvider::new("credentials", move || {
        counted.fetch_add(1, Ordering::Relaxed);
        orders.lock().unwrap().recv().unwrap();
        Ok::<_, String>(of("", "late"))
    });
    for _ in 0..3 {
        let began = Instant::now();
        let fault = provider
            .get(began + Duration::from_millis(50))
            .err()
            .unwrap();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(matches!(&fault, CallError::NotSent(_)), "{fault:?}");
        assert!(fault.reason().contains("has not answered in time"));
    }
    // The two halves of `get`, so that the provider answers after the later call has begun.
    let (number, _) = provider
        .calls
        .start(&(), soon(), || panic!("a second call"));
    go_on.send(()).unwrap();
    let late = provider.calls.wait(&(), number, soon()).unwrap().unwrap();
    assert_eq!(late.password, "late");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn errors_and_panics_of_a_provider_are_reported() {
    let calls = AtomicUsize::new(0);
    let provider = Arc::new(CredentialsProvider::new("credentials", move || match calls
        .fetch_add(1, Ordering::Relaxed)
    {
        0 => Err("the vault is closed".to_owned()),
        1 => panic!("as planned"),
        _ => Ok(of("app", "secret")),
    }));
    for words in ["failed: the vault is closed", "failed: it panicked"] {
        let fault = provider.get(soon()).err().unwrap();
        assert!(fault.reason().contains(words), "{fault:?}");
    }
    assert_eq!(provider.get(soon()).unwrap().user, "app");
}
