//! Guarded writes.

use redlatch::{Batch, Reply};

use super::*;

/// A key for data of a lock, in its slot in a cluster.
fn beside(lock: &Lock, key: &str) -> String {
    format!("{{{}}}:{key}", lock.name())
}

/// The value of a key beside a lock that is free by now.
fn stands(lock: &Lock, key: &str) -> Reply {
    lock.lock().unwrap();
    let found = lock
        .write(|batch| {
            batch.get(key);
        })
        .unwrap();
    lock.unlock().unwrap();
    found.into_iter().next().unwrap()
}

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

pub(super) fn a_write_runs_while_the_lock_is_held(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let (data, hash) = (beside(&lock, "data"), beside(&lock, "hash"));
    let guard = lock.guard().unwrap();
    let replies = guard.write(|batch| {
        batch.set(&data, "5").incr_by(&data, -3).get(&data);
        batch
            .hset(&hash, "field", "1")
            .hget(&hash, "field")
            .hget(&hash, "none");
        batch.expire(&hash, ms(60_000)).del(&data).get(&data);
        batch.command("hset").key(&hash).arg("field").arg("2");
    });
    let expected = [
        text("OK"),
        Reply::Int(2),
        text("2"),
        Reply::Int(1),
        text("1"),
        Reply::Nil,
        Reply::Int(1),
        Reply::Int(1),
        Reply::Nil,
        Reply::Int(0),
    ];
    assert_eq!(replies.unwrap(), expected);
    assert_eq!(guard.write(|_| ()).unwrap(), []);
    assert!(guard.is_valid());
    // The write belongs to the thread, whether it holds by `lock` or by a guard.
    lock.write(|batch| {
        batch.set(&data, "1");
    })
    .unwrap();
    guard.unlock().unwrap();
    assert_eq!(stands(&lock, &data), text("1"));
}

pub(super) fn a_write_without_the_lock_is_refused(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let data = beside(&lock, "data");
    let write = |batch: &mut Batch| {
        batch.set(&data, "1");
    };
    let not_held = |outcome| assert!(matches!(outcome, Err(Error::NotHeld { .. })), "{outcome:?}");
    not_held(lock.write(write));
    let guard = lock.guard().unwrap();
    elsewhere(|| not_held(lock.write(write)));
    // The level of the guard is released by hand.
    lock.unlock().unwrap();
    not_held(lock.write(write));
    not_held(guard.write(write));
    drop(guard);
    assert_eq!(stands(&lock, &data), Reply::Nil);
}

pub(super) fn a_write_under_a_lost_lock_reports_the_loss(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    let lock = client.lock("orders");
    let data = beside(&lock, "data");
    let write = |batch: &mut Batch| {
        batch.set(&data, "1");
    };
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    assert!(backend.client().lock("orders").force_unlock().unwrap());
    assert!(guard.is_valid(), "nobody has noticed yet");
    let error = guard.write(write).unwrap_err();
    assert!(
        error.is_lost() && !error.is_ambiguous() && !error.is_retryable(),
        "{error}"
    );
    assert_eq!(lost.try_recv().unwrap().cause, LossCause::Gone);
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());

    // Another client holds the lock by now.
    let guard = lock.guard().unwrap();
    let other = backend.client().lock("orders");
    assert!(other.force_unlock().unwrap());
    elsewhere(|| other.lock().unwrap());
    let error = guard.write(write).unwrap_err();
    assert!(error.is_lost(), "{error}");
    drop(guard);
    assert!(other.force_unlock().unwrap());

    let guard = lock.with_lease_time(ms(200)).guard().unwrap();
    thread::sleep(ms(300));
    let error = guard.write(write).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Lost {
                cause: LossCause::LeaseEnded,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(stands(&lock, &data), Reply::Nil);
}

pub(super) fn the_first_command_that_fails_is_named(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let data = beside(&lock, "data");
    let guard = lock.guard().unwrap();
    let error = guard
        .write(|batch| {
            batch.set(&data, "many").incr_by(&data, 1).set(&data, "1");
        })
        .unwrap_err();
    assert!(!error.is_retryable() && !error.is_ambiguous() && !error.is_lost());
    assert_eq!(error.lock_name(), Some(lock.name()));
    let Error::CommandFailed {
        index,
        reason,
        done,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((index, done), (1, vec![text("OK")]));
    assert!(reason.contains("not an integer"), "{reason}");
    let error = guard
        .write(|batch| {
            batch.command("NOTHING").arg("1");
        })
        .unwrap_err();
    assert!(
        matches!(error, Error::CommandFailed { index: 0, .. }),
        "{error:?}"
    );
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert_eq!(stands(&lock, &data), text("many"));
}

#[allow(dead_code, reason = "all sets of servers have data")]
pub(super) fn a_store_without_data_refuses_guarded_writes(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let data = beside(&lock, "data");
    let guard = lock.guard().unwrap();
    let error = guard
        .write(|batch| {
            batch.set(&data, "1");
        })
        .unwrap_err();
    assert!(
        matches!(&error, Error::Unsupported { reason, .. } if reason.contains("no guarded writes")),
        "{error}"
    );
    let error = guard.eval("return 1", &[], &[]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}
