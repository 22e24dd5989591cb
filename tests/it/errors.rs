//! What an error tells a program: whether to retry, what was done, and the cause.

use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use redlatch::{Client, Error, Lock, RunError};

use crate::invariants::{ACQUIRE, RELEASE, quick, sha, teach};
use crate::support::{End, Fault, Proxy, RedisServer, free_port, ms};

/// A server, and a client behind a proxy with faults.
struct Fixture {
    client: Client,
    proxy: Proxy,
    _server: RedisServer,
}

impl Fixture {
    fn new() -> Fixture {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = quick().command_timeout(ms(300)).open(&proxy.url()).unwrap();
        client.lock("warm").run(|_| ()).unwrap();
        Fixture {
            client,
            proxy,
            _server: server,
        }
    }

    /// Drops all replies to calls of this script from now on.
    fn silence(&self, script: &str) {
        let fault = Fault::SwallowReply(End::Silent);
        self.proxy
            .next(usize::MAX, Some(sha(script).as_bytes()), fault);
    }
}

/// A program that retries while `is_retryable` returns true.
fn until_it_is_done(mut attempt: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    for _ in 0..3 {
        match attempt() {
            Err(error) if error.is_retryable() => {}
            done => return done,
        }
    }
    panic!("there is no end to it");
}

#[test]
fn completed_work_is_not_repeated() {
    let fixture = Fixture::new();
    let lock = fixture.client.lock("orders");
    fixture.silence(RELEASE);
    let done = AtomicU32::new(0);
    let error = until_it_is_done(|| {
        lock.run(|_| {
            done.fetch_add(1, Ordering::SeqCst);
        })?;
        Ok(())
    })
    .unwrap_err();
    assert_eq!(done.load(Ordering::SeqCst), 1, "{error}");
    assert!(matches!(error, Error::Ran { .. }), "{error:?}");
    assert!(error.is_ambiguous() && !error.is_retryable() && !error.is_lost());
    assert_eq!(error.lock_name(), Some("orders"));
    // As the error's text has it.
    let node = error.node().unwrap();
    assert!(
        error
            .to_string()
            .contains(&format!(" at {node} is unknown: ")),
        "{error}"
    );
}

#[test]
fn work_that_may_have_run_is_not_retryable() {
    let fixture = Fixture::new();
    fixture.silence(ACQUIRE);
    let error = fixture.client.lock("orders").try_lock().unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert!(error.is_ambiguous() && !error.is_retryable());
    // A wait continues to its timeout.
    let fixture = Fixture::new();
    let fault = Fault::SwallowReply(End::Reset);
    fixture.proxy.next(1, Some(sha(ACQUIRE).as_bytes()), fault);
    let lock = fixture.client.lock("orders");
    assert!(lock.try_lock_for(ms(5000)).unwrap());
    lock.unlock().unwrap();
}

#[test]
fn an_error_after_the_work_says_that_it_ran() {
    let client = Client::in_memory();
    let lock = client.lock("orders");
    let taken_away = |lock: &Lock| assert!(lock.force_unlock().unwrap());
    let error = lock.run(|_| taken_away(&lock)).unwrap_err();
    assert!(!error.is_retryable());
    let error = Error::from(error);
    assert!(
        matches!(&error, Error::Ran { error, .. } if error.is_lost()),
        "{error:?}"
    );
    assert!(error.is_lost() && !error.is_retryable() && !error.is_ambiguous());
    assert_eq!(error.lock_name(), Some("orders"));
    assert_eq!(error.node(), None);

    let error = lock
        .run(|_| {
            taken_away(&lock);
            "its value"
        })
        .unwrap_err();
    let (value, error) = error.into_parts();
    assert_eq!(value, Some("its value"));
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");

    let error = client.lock("").run(|_| 1).unwrap_err();
    assert!(matches!(
        error.into_parts(),
        (None, Error::InvalidName { .. })
    ));
    let error = Error::from(client.lock("").run(|_| ()).unwrap_err());
    assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
}

#[test]
fn no_conversion_drops_what_the_work_returned() {
    // This compiles only if there is no such conversion, because the type is ambiguous otherwise.
    trait Keeps<Marker> {
        fn keeps() {}
    }
    struct Converts;
    impl<T: ?Sized> Keeps<()> for T {}
    impl<T: Into<Error>> Keeps<Converts> for T {}
    <RunError<u32> as Keeps<_>>::keeps();
}

#[test]
fn an_error_chain_repeats_no_text() {
    let client = Client::in_memory();
    let lock = client.lock("orders");
    let mut errors: Vec<Box<dyn std::error::Error>> = Vec::new();
    errors.push(client.lock("").run(|_| 1).unwrap_err().into());
    let forced = || lock.run(|_| lock.force_unlock()).unwrap_err();
    errors.push(forced().into());
    errors.push(forced().into_parts().1.into());
    let error = lock.run(|_| drop(lock.force_unlock())).unwrap_err();
    errors.push(Error::from(error).into());
    let away = format!("127.0.0.1:{}", free_port());
    for url in [format!("redis://{away}"), format!("mysql://u:p@{away}/d")] {
        let nobody = quick().open(&url).unwrap();
        let error = nobody.lock("orders").try_lock().unwrap_err();
        assert!(format!("{error:?}").contains("efused"), "{error:?}");
        errors.push(error.into());
    }
    let unknown = quick().open("redis://no-such-host.invalid").unwrap();
    errors.push(unknown.lock("orders").try_lock().unwrap_err().into());
    for silence in [End::Silent, End::Reset] {
        let fixture = Fixture::new();
        let fault = Fault::SwallowReply(silence);
        fixture.proxy.next(9, Some(sha(ACQUIRE).as_bytes()), fault);
        errors.push(fixture.client.lock("orders").try_lock().unwrap_err().into());
    }
    for error in errors {
        let mut said = vec![error.to_string()];
        let mut next = error.source();
        while let Some(source) = next {
            let text = source.to_string();
            assert!(
                said.iter().all(|said| !said.contains(&text)),
                "{said:?}, and again {text:?}"
            );
            said.push(text);
            next = source.source();
        }
    }
}

#[test]
fn an_error_that_main_returns_can_be_read() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let lock = quick().open(&url).unwrap().lock("orders");
    let error = lock.try_lock().unwrap_err();
    let (printed, cause) = (format!("{error:?}"), error.source().unwrap().to_string());
    assert_eq!(printed, format!("{error}: {cause}"));
    assert!(!printed.contains('\n'), "{printed}");
    let error = lock.run(|_| 1).unwrap_err();
    assert!(format!("{error:?}").contains(&cause), "{error:?}");
}

/// The error of the operating system in the source chain.
#[track_caller]
fn behind(error: &(dyn std::error::Error + 'static)) -> io::ErrorKind {
    let source = error.source().expect("it comes from the operating system");
    let source = source.downcast_ref::<io::Error>();
    source
        .expect("it is the error of the operating system")
        .kind()
}

#[test]
fn the_error_of_the_operating_system_is_kept() {
    let nobody = quick()
        .open(&format!("redis://127.0.0.1:{}", free_port()))
        .unwrap();
    let error = nobody.lock("orders").try_lock().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!(behind(&error), io::ErrorKind::ConnectionRefused);
    assert_eq!(behind(&error.clone()), io::ErrorKind::ConnectionRefused);
    let error = nobody.lock("orders").run(|_| 1).unwrap_err();
    assert_eq!(behind(&error), io::ErrorKind::ConnectionRefused);

    let nowhere = quick().open("redis+unix:///nonexistent/redis.sock");
    let error = nowhere.unwrap().lock("orders").try_lock().unwrap_err();
    assert_eq!(behind(&error), io::ErrorKind::NotFound);

    for (end, expected) in [
        (End::Silent, io::ErrorKind::TimedOut),
        (End::Reset, io::ErrorKind::ConnectionReset),
    ] {
        let fixture = Fixture::new();
        let fault = Fault::SwallowReply(end);
        fixture
            .proxy
            .next(usize::MAX, Some(sha(ACQUIRE).as_bytes()), fault);
        let error = fixture.client.lock("orders").try_lock().unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
        assert_eq!(behind(&error), expected, "{error:?}");
    }
}

#[test]
#[cfg(feature = "mysql")]
fn database_errors_keep_the_system_error_as_their_source() {
    let url = format!("mysql://user:canary@127.0.0.1:{}/db", free_port());
    let client = Client::open(&url).unwrap();
    let error = client.lock("orders").try_lock().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!(behind(&error), io::ErrorKind::ConnectionRefused);
}
