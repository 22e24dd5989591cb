//! Guards and threads that end in any order: F50 and F52.

use super::*;

#[test]
fn thread_numbers_are_never_reused() {
    let mut seen = BTreeSet::new();
    for _ in 0..500 {
        // The operating system reuses the ids of ended threads.
        assert!(seen.insert(elsewhere(current_thread_id)));
    }
}

/// The results of `lock`, `try_guard`, `unlock` and of a guard's `unlock`; the number of the thread, twice.
type ResultsAtThreadEnd = ([Result<(), Error>; 4], [u64; 2]);

/// Dropped after the library's thread-locals, because it was created before them.
struct Late {
    lock: Lock,
    guard: std::cell::RefCell<Option<Guard>>,
    told: std::sync::mpsc::Sender<ResultsAtThreadEnd>,
}

impl Drop for Late {
    fn drop(&mut self) {
        let held = self.guard.take().map_or(Ok(()), Guard::unlock);
        let told = [
            self.lock.lock(),
            self.lock.try_guard().map(drop),
            self.lock.unlock(),
            held,
        ];
        let numbers = [current_thread_id(), current_thread_id()];
        // A panic here would end the process.
        let _ = self.told.send((told, numbers));
    }
}

thread_local! {
    static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn a_thread_without_thread_locals_acquires_no_lock() {
    let client = Client::in_memory();
    let (told, heard) = std::sync::mpsc::channel();
    let kept = client.lock("kept");
    elsewhere(|| {
        LATE.with(|late| {
            *late.borrow_mut() = Some(Late {
                lock: client.lock("orders"),
                guard: std::cell::RefCell::default(),
                told,
            });
        });
        LATE.with(|late| {
            let guard = kept.guard().unwrap();
            *late.borrow().as_ref().unwrap().guard.borrow_mut() = Some(guard);
        });
    });
    let (told, numbers) = heard.recv_timeout(SLACK).unwrap();
    let [locked, tried, unlocked, held] = told;
    assert_eq!(numbers[0], numbers[1]);
    for refused in [locked, tried, unlocked] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(
            error.to_string().contains("the thread is ending"),
            "{error}"
        );
    }
    // A guard does not depend on thread-locals.
    held.unwrap();
    assert!(!kept.is_locked().unwrap());
    assert!(!client.lock("orders").is_locked().unwrap());
}
