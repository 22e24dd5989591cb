//! Which receivers are notified of a loss, and with which cause.

use super::*;

pub(super) fn a_force_unlock_notifies_the_old_holder(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    let lock = client.lock("orders");
    assert!(!lock.force_unlock().unwrap(), "nobody held it");
    let fixed = lock.with_lease_time(Duration::from_secs(60));
    for held in [&lock, &fixed] {
        let guard = held.guard().unwrap();
        assert!(elsewhere(|| held.force_unlock().unwrap()));
        // The lease is 30 s or more: only a query at once can report the loss this early.
        let loss = guard.lost().recv_timeout(SLACK).unwrap();
        assert_eq!(loss.cause, LossCause::Gone);
        assert!(!guard.is_valid());
        assert!(!held.is_locked().unwrap());
        assert!(guard.unlock().unwrap_err().is_lost());
    }
}

pub(super) fn a_force_unlock_notifies_the_holder_of_another_client(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    assert!(other.force_unlock().unwrap());
    let holder = other.guard().unwrap();
    let loss = guard.lost().recv_timeout(LEASE + SLACK).unwrap();
    // A renewal may come between the two, while the lock is free.
    let taken = LossCause::HeldBy(holder.visitor().to_string());
    assert!([LossCause::Gone, taken].contains(&loss.cause), "{loss}");
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(holder.is_valid());
    holder.unlock().unwrap();
}

pub(super) fn the_loss_arrives_on_the_channel_and_at_the_hook(backend: &Backend) {
    let (sender, told) = mpsc::channel();
    let client = backend.client_with(Settings::default().watchdog_timeout(LEASE).on_lost(
        move |loss| {
            sender.send(loss.clone()).unwrap();
        },
    ));
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let (first, second) = (lock.lost().unwrap(), lock.lost().unwrap());
    backend.client().lock("orders").force_unlock().unwrap();
    let loss = told.recv_timeout(LEASE + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
    assert_eq!(first.recv_timeout(SLACK).unwrap(), loss);
    assert_eq!(second.recv_timeout(SLACK).unwrap(), loss);
    assert!(
        lock.lost().unwrap().try_recv().is_ok(),
        "who asks later is told too"
    );
    let Err(Error::Lost { cause, visitor, .. }) = lock.unlock() else {
        panic!("it was lost")
    };
    assert_eq!((cause, visitor), (loss.cause, loss.visitor));
    assert!(
        told.recv_timeout(ms(100)).is_err(),
        "each loss is told once"
    );
    assert!(matches!(lock.lost(), Err(Error::NotHeld { .. })));
}

pub(super) fn a_panic_in_the_hook_is_contained(backend: &Backend) {
    let calls = Arc::new(AtomicU32::new(0));
    let client = backend.client_with(Settings::default().watchdog_timeout(LEASE).on_lost({
        let calls = Arc::clone(&calls);
        move |_| {
            if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                std::panic::panic_any("as planned");
            }
        }
    }));
    for expected in 1..=2 {
        let lock = client.lock("orders").with_lease_time(ms(50));
        lock.lock().unwrap();
        eventually(SLACK, "the hook is called", || {
            calls.load(Ordering::SeqCst) == expected
        });
        assert!(lock.unlock().unwrap_err().is_lost());
    }
    // The renewal thread and everything else still work.
    let guard = client.lock("orders").guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(guard.is_valid());
}

pub(super) fn the_loss_channel_closes_after_an_unlock(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    guard.unlock().unwrap();
    assert_eq!(lost.recv_timeout(SLACK), Err(NoLoss::Ended));
    assert_eq!(lost.recv(), Err(NoLoss::Ended));
    assert_eq!(lost.clone().try_recv(), Err(NoLoss::Ended));
    assert!(lost.as_receiver().recv().is_err());
    assert!(!lost.is_valid());
}

/// Waits for the channel as `select!` does.
fn selected(losses: &Losses) -> Result<Loss, RecvError> {
    crossbeam_channel::select! {
        recv(losses.as_receiver()) -> loss => loss,
        default(LEASE + SLACK) => panic!("nothing is told"),
    }
}

pub(super) fn a_loss_is_reported_to_every_receiver(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let losses = guard.lost();
    assert_eq!(losses.try_recv(), Err(NoLoss::NotYet));
    assert_eq!(losses.recv_timeout(ms(1)), Err(NoLoss::NotYet));
    assert!(losses.is_valid() && losses.as_receiver().try_recv().is_err());
    let (again, its_own) = (losses.clone(), lock.lost().unwrap());
    thread::scope(|scope| {
        let listeners = [
            scope.spawn(|| losses.recv().unwrap()),
            scope.spawn(|| losses.recv_timeout(LEASE + SLACK).unwrap()),
            scope.spawn(|| selected(&losses).unwrap()),
            scope.spawn(|| selected(&again).unwrap()),
            scope.spawn(|| again.clone().recv().unwrap()),
            scope.spawn(|| selected(&its_own.clone()).unwrap()),
        ];
        thread::sleep(ms(50));
        assert!(lock.force_unlock().unwrap());
        for listener in listeners {
            let loss = listener.join().unwrap();
            assert_eq!(loss.cause, LossCause::Gone);
            assert_eq!(loss.visitor, *guard.visitor());
        }
    });
    // The key was deleted everywhere and exists again; no receiver may report a normal end.
    for losses in [&losses, &again, &its_own, &guard.lost()] {
        assert!(!losses.is_valid());
        assert_eq!(losses.recv().unwrap().cause, LossCause::Gone);
        assert!(selected(losses).is_ok() && selected(losses).is_ok());
        assert_eq!(losses.try_recv().unwrap().cause, LossCause::Gone);
    }
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(losses.recv().is_ok() && selected(&losses).is_ok());
}

pub(super) fn a_receiver_that_outlives_its_guard_reports_unheard(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let channel = guard.lost().as_receiver().clone();
    assert_eq!(channel.recv().unwrap().cause, LossCause::Unheard);
    guard.unlock().unwrap();
}

pub(super) fn a_loss_found_by_the_unlock_is_reported(backend: &Backend) {
    let (sender, told) = mpsc::channel();
    let client = backend.client_with(Settings::default().on_lost(move |loss| {
        sender.send(loss.clone()).unwrap();
    }));
    let guard = client.lock("orders").guard().unwrap();
    let lost = guard.lost();
    // The next renewal is ten seconds away.
    assert!(backend.client().lock("orders").force_unlock().unwrap());
    let error = guard.unlock().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(lost.recv_timeout(SLACK).unwrap().cause, LossCause::Gone);
    assert_eq!(told.recv_timeout(SLACK).unwrap().cause, LossCause::Gone);
}
