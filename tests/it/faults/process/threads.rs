//! Guards and threads that end in any order: F50 and F52.

use super::*;

#[test]
fn a_stale_guard_sends_nothing_when_it_goes() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    let stale = lock.guard().unwrap();
    let stale_id = stale.visitor().to_string();
    server.cmd(&["DEL", "orders"]);
    // The loss is found by the re-entry, which begins a new hold instead.
    let fresh = lock.guard().unwrap();
    assert_ne!(fresh.visitor().to_string(), stale_id);
    assert!(!stale.is_valid());
    assert!(fresh.is_valid());
    let monitor = Monitor::start(&server);
    drop(stale);
    assert_eq!(monitor.lines_containing(&stale_id), Vec::<String>::new());
    assert!(fresh.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    fresh.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn thread_numbers_are_never_used_twice() {
    let mut seen = BTreeSet::new();
    for _ in 0..500 {
        // The operating system gives a thread the id of one that has just ended.
        assert!(seen.insert(elsewhere(current_thread_id)));
    }
}

#[test]
fn what_an_ended_thread_held_is_neither_renewed_nor_inherited() {
    let server = RedisServer::start();
    let lease = ms(900);
    let client = Client::builder()
        .watchdog_timeout(lease)
        .open(&server.url())
        .unwrap();
    let lock = client.lock("orders");
    let lost = elsewhere(|| {
        lock.lock().unwrap();
        lock.lost().unwrap()
    });
    let ended = Instant::now();
    for _ in 0..20 {
        elsewhere(|| {
            assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
            assert_eq!(lock.hold_count().unwrap(), 0);
        });
    }
    assert!(lock.try_lock_for(lease + SLACK).unwrap());
    assert!(ended.elapsed() < lease + SLACK);
    let loss = lost.recv_timeout(SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::ThreadEnded);
    lock.unlock().unwrap();
}

#[test]
fn a_forgotten_guard_is_renewed_until_its_client_ends() {
    let server = RedisServer::start();
    let lease = ms(900);
    let client = Client::builder()
        .watchdog_timeout(lease)
        .open(&server.url())
        .unwrap();
    let other = Client::open(&server.url()).unwrap().lock("orders");
    std::mem::forget(client.lock("orders").guard().unwrap());
    assert!(!other.try_lock_for(lease * 3).unwrap());
    assert!(client.lock("orders").is_valid());
    let monitor = Monitor::start(&server);
    client.shutdown();
    monitor.clear();
    let ended = Instant::now();
    assert!(other.try_lock_for(lease + SLACK).unwrap());
    assert!(ended.elapsed() < lease + SLACK);
    other.unlock().unwrap();
    let renewals = monitor.lines_containing(&format!("\"HEXISTS\" \"orders\" \"{}", client.id()));
    assert_eq!(renewals, Vec::<String>::new());
}

/// What came of `lock`, `try_guard`, `unlock` and of a guard's `unlock`; the number of the thread, twice.
type LastWords = ([Result<(), Error>; 4], [u64; 2]);

/// Ends after the thread-local values of the library, because it began before them.
struct Late {
    lock: Lock,
    guard: std::cell::RefCell<Option<Guard>>,
    told: std::sync::mpsc::Sender<LastWords>,
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
fn a_thread_that_is_past_its_thread_local_values_takes_no_lock() {
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
    // A guard knows what it has.
    held.unwrap();
    assert!(!kept.is_locked().unwrap());
    assert!(!client.lock("orders").is_locked().unwrap());
}

#[test]
fn a_forgotten_guard_keeps_nothing_of_a_client_that_was_shut_down() {
    let server = RedisServer::start();
    let mut child = Child::spawn("forgetful holder", &[("URL", &server.url())]);
    assert_eq!(child.expect_line("left", CHILD), "left [] after ()");
    assert_eq!(child.expect_line("left", CHILD), "left []");
    assert!(child.wait(CHILD).success());
}

pub(super) fn forgetful_holder() {
    let client = Client::open(&arg("URL")).unwrap();
    std::mem::forget(client.lock("forgotten").guard().unwrap());
    let lock = client.lock("orders");
    lock.lock().unwrap();
    // Somebody who listens.
    let other = elsewhere(|| lock.try_lock_for(ms(50)).unwrap());
    assert!(!other);
    client.shutdown();
    let left = left_behind();
    say(&format!("left {left:?} after {}", outcome(lock.unlock())));
    drop((client, lock));
    say(&format!("left {:?}", left_behind()));
}

/// The threads of the library and the sockets of this process, those of its parent left out.
fn left_behind() -> Vec<String> {
    let mut left = Vec::new();
    // The end of a thread and of a socket may take a moment.
    for _ in 0..100 {
        let names = |path: &str| -> Vec<std::path::PathBuf> {
            let entries = std::fs::read_dir(path).unwrap();
            entries.flatten().map(|entry| entry.path()).collect()
        };
        let threads = names("/proc/self/task").into_iter().filter_map(|task| {
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            name.starts_with("redlatch").then(|| name.trim().to_owned())
        });
        let sockets = names("/proc/self/fd").into_iter().filter_map(|fd| {
            let target = std::fs::read_link(fd).ok()?.display().to_string();
            target.starts_with("socket").then_some(target)
        });
        left = threads.chain(sockets).collect();
        if left.is_empty() {
            break;
        }
        thread::sleep(ms(20));
    }
    left
}
