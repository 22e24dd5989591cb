//! The end of a process or a client, and missing file descriptors: F54 and F56.

use super::*;

#[test]
fn a_panic_unlocks_and_a_killed_process_blocks_for_one_lease() {
    let server = RedisServer::start();
    let lease = ms(1500);
    for (end, is_unlocked) in [("panic", true), ("exit", false), ("kill", false)] {
        // The lease is longer than this test's limits, so the panic must have unlocked.
        let lease = if is_unlocked { MINUTE } else { lease };
        let mut child = Child::spawn(
            "dying holder",
            &[
                ("URL", &server.url()),
                ("LEASE", &lease.as_millis().to_string()),
                ("END", end),
            ],
        );
        child.expect_line("held", CHILD);
        // The hold has been renewed for a while.
        thread::sleep(ms(2000));
        let lock = Client::open(&server.url()).unwrap().lock("orders");
        assert!(!lock.try_lock().unwrap(), "{end}");
        if end == "kill" {
            child.kill();
        } else {
            child.send_line("end");
            child.wait(CHILD);
        }
        let ended = Instant::now();
        let limit = if is_unlocked { ms(0) } else { lease };
        assert!(lock.try_lock_for(limit + SLACK).unwrap(), "{end}");
        assert!(ended.elapsed() < limit + SLACK, "{end}");
        lock.unlock().unwrap();
        assert_eq!(server.int(&["DBSIZE"]), 0, "{end}");
    }
}

pub(super) fn dying_holder() {
    let lease = ms(arg("LEASE").parse().unwrap());
    let client = Client::builder()
        .watchdog_timeout(lease)
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let _inner = lock.guard().unwrap();
    let _outer = lock.guard().unwrap();
    say("held");
    listen();
    match &*arg("END") {
        "panic" => std::panic::panic_any("as planned"),
        "exit" => std::process::exit(0),
        _ => thread::sleep(CHILD),
    }
}

#[test]
fn a_lack_of_file_descriptors_is_a_temporary_error() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder without files", &[("URL", &server.url())]);
    let end = child.wait(CHILD);
    let said = child.lines();
    assert!(end.success(), "{end}, {said:?}");
    assert_eq!(
        said,
        [
            "refused Unreachable Unreachable Unreachable",
            "waiter true",
            "kept true",
            "fresh true ()",
            "files 0"
        ]
    );
    eventually(ms(900) + SLACK, "nothing is left", || {
        server.int(&["DBSIZE"]) == 0
    });
}

fn limit_files(current: Option<u64>) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current, maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
}

fn open_files() -> usize {
    // One is the folder itself.
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

pub(super) fn holder_without_files() {
    let url = arg("URL");
    let plenty = getrlimit(Resource::Nofile).current;
    let before = open_files();
    let lease = ms(900);
    let client = || {
        Client::builder()
            .watchdog_timeout(lease)
            .open(&url)
            .unwrap()
    };
    let first = client();
    let lock = first.lock("orders");

    limit_files(Some(3));
    let refused = [
        lock.try_lock().unwrap_err(),
        lock.try_lock_for(ms(200)).unwrap_err(),
        lock.is_locked().unwrap_err(),
    ];
    assert!(refused.iter().all(Error::is_retryable));
    let classes = refused.each_ref().map(class).join(" ");
    say(&format!("refused {classes}"));

    // Waiters survive the outage.
    let got = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let got = lock.try_lock_for(Duration::from_secs(10)).unwrap();
            lock.unlock().unwrap();
            got
        });
        thread::sleep(ms(300));
        limit_files(plenty);
        waiting.join().unwrap()
    });
    say(&format!("waiter {got}"));

    // A client with open connections needs no file descriptors.
    let guard = lock.guard().unwrap();
    thread::sleep(lease);
    limit_files(Some(3));
    thread::sleep(lease * 2);
    say(&format!("kept {}", guard.is_valid()));
    limit_files(plenty);
    guard.unlock().unwrap();

    // Nor does a hold that was not renewed yet.
    let second = client();
    let invoices = second.lock("invoices");
    let guard = invoices.guard().unwrap();
    limit_files(Some(3));
    thread::sleep(lease * 2);
    say(&format!(
        "fresh {} {}",
        guard.is_valid(),
        outcome(guard.unlock())
    ));
    limit_files(plenty);
    drop((lock, invoices, second, first));
    let files = || open_files().saturating_sub(before);
    let start = Instant::now();
    while files() > 0 && start.elapsed() < SLACK {
        thread::sleep(ms(10));
    }
    say(&format!("files {}", files()));
}
