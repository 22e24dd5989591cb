//! The traits of the public types.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{
    Client, Condition, Error, Guard, Interrupt, Latch, Lock, Loss, Losses, OwnedGuard,
    PermitSemaphore, Permits, ReadWriteLock, Redlock, RunError, Semaphore, VisitorId,
};

fn is_shared<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
fn is_cloned<T: Clone>() {}
fn is_static<T: 'static>() {}
fn is_error<T: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn handles_are_send_and_sync() {
    is_shared::<Client>();
    is_cloned::<Client>();
    is_shared::<Lock>();
    is_cloned::<Lock>();
    is_shared::<Interrupt>();
    is_cloned::<Interrupt>();
    is_shared::<Losses>();
    is_cloned::<Losses>();
    is_shared::<Loss>();
    is_shared::<VisitorId>();
    is_shared::<OwnedGuard>();
    is_shared::<Redlock>();
    is_shared::<Condition>();
    is_shared::<Latch>();
    is_shared::<Permits>();
    is_shared::<PermitSemaphore>();
    is_shared::<ReadWriteLock>();
    is_shared::<Semaphore>();
    is_static::<OwnedGuard>();
    is_error::<Error>();
    is_error::<RunError<String>>();
}

#[test]
fn a_guard_stays_on_its_thread() {
    // This compiles only if `Guard` is neither Send nor Sync, because the type is ambiguous otherwise.
    trait Stays<Marker> {
        fn stays() {}
    }
    struct IsSend;
    struct IsSync;
    impl<T: ?Sized> Stays<()> for T {}
    impl<T: ?Sized + Send> Stays<IsSend> for T {}
    impl<T: ?Sized + Sync> Stays<IsSync> for T {}
    <Guard as Stays<_>>::stays();
}

#[test]
fn any_thread_can_wait_for_an_interrupt() {
    let interrupt = Interrupt::new();
    let began = Instant::now();
    assert!(!interrupt.wait_timeout(Duration::from_millis(50)));
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert!(!interrupt.wait_timeout(Duration::ZERO));
    thread::scope(|scope| {
        let mut waiting: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| interrupt.wait_timeout(Duration::MAX)))
            .collect();
        waiting.push(scope.spawn(|| {
            interrupt.clone().wait();
            true
        }));
        thread::sleep(Duration::from_millis(50));
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        interrupt.raise();
        for waiting in waiting {
            assert!(waiting.join().unwrap());
        }
    });
    interrupt.wait();
    assert!(interrupt.wait_timeout(Duration::ZERO));
}

#[test]
#[cfg(not(feature = "mysql"))]
fn a_database_url_without_the_feature_is_an_error() {
    for url in [
        "mysql://user:canary@127.0.0.1/db",
        "mariadb://user:canary@h/db",
    ] {
        let error = Client::open(url)
            .map(|_| ())
            .expect_err("it is not built in");
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("feature `mysql`") && !text.contains("canary"),
            "{text}"
        );
    }
}

#[test]
#[cfg(feature = "mysql")]
fn database_locks_are_send_and_sync() {
    fn is_shared_handle<T: Send + Sync + Clone>() {}
    fn is_send<T: Send>() {}
    is_shared_handle::<redlatch::mysql::RowLock>();
    is_shared_handle::<redlatch::mysql::Versioned>();
    is_shared_handle::<redlatch::mysql::RowTarget>();
    is_send::<redlatch::mysql::RowGuard>();
    is_send::<redlatch::mysql::VersionedRow>();
}
