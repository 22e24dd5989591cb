//! Ends of a process and of a client, and a lack of files: F54, F56 and F57.

use super::*;

#[test]
fn a_panic_unlocks_and_an_abrupt_end_leaves_no_more_than_one_lease() {
    let server = RedisServer::start();
    let lease = ms(1500);
    for (end, is_unlocked) in [("panic", true), ("exit", false), ("kill", false)] {
        // A lease that is over only when all limits of this test are shows that the panic has unlocked.
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
        // The hold has lived on renewals alone for a while.
        thread::sleep(ms(2000));
        let lock = Client::open(&server.url()).unwrap().lock("orders");
        assert!(!lock.try_lock().unwrap(), "{end}");
        if end == "kill" {
            child.kill();
        } else {
            child.tell("end");
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
fn a_lack_of_files_is_an_error_that_passes() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder without files", &[("URL", &server.url())]);
    let end = child.wait(CHILD);
    let said = child.said();
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

    // Who waits sees it pass.
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

    // What has its connections needs no more.
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

#[test]
fn a_shutdown_ends_a_hundred_waits_and_leaves_no_thread_and_no_file() {
    let server = RedisServer::start();
    let clients = || {
        let list = server.text(&["CLIENT", "LIST"]).unwrap();
        list.lines()
            .filter(|line| line.contains("name=redlatch"))
            .count()
    };
    for (is_frozen, command_timeout) in [(false, ms(2000)), (true, ms(1000))] {
        let mut child = Child::spawn(
            "client that is shut down",
            &[
                ("URL", &server.url()),
                ("COMMAND", &command_timeout.as_millis().to_string()),
            ],
        );
        child.expect_line("waiting", CHILD);
        if is_frozen {
            server.freeze();
        }
        child.tell("shut down");
        let report = child.expect_line("closed", CHILD);
        let mut numbers = report.split(' ').skip(1).map(|word| word.parse().unwrap());
        assert_eq!(numbers.next(), Some(100), "waiters were told: {report}");
        assert_eq!(numbers.next(), Some(10), "holders were told: {report}");
        let took: u64 = numbers.next().unwrap();
        assert!(ms(took) < command_timeout + SLACK, "{report}");
        if is_frozen {
            server.thaw();
        }
        child.tell("go on");
        let report = child.expect_line("unlocked", CHILD);
        assert_eq!(report, "unlocked 10");
        assert_eq!(child.expect_line("left", CHILD), "left 0 0");
        assert_eq!(clients(), 0);
        assert!(child.wait(CHILD).success());
        assert_eq!(server.int(&["DBSIZE"]), 0);
    }
}

fn own_threads() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("redlatch-"))
        .count()
}

pub(super) fn client_that_is_shut_down() {
    let files_before = open_files();
    let client = Client::builder()
        .command_timeout(ms(arg("COMMAND").parse().unwrap()))
        .on_lost(|_| ())
        .open(&arg("URL"))
        .unwrap();
    let interrupt = Interrupt::new();
    let locks: Vec<Lock> = (0..10)
        .map(|number| client.lock(&format!("orders:{number}")))
        .collect();
    let (held, go_on) = (Barrier::new(11), Barrier::new(11));
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let holders: Vec<_> = locks
            .iter()
            .map(|lock| {
                let (held, go_on, tell) = (&held, &go_on, tell.clone());
                scope.spawn(move || {
                    let guard = lock.guard().unwrap();
                    let lost = guard.lost();
                    held.wait();
                    tell.send(lost.recv_timeout(CHILD).unwrap().cause).unwrap();
                    go_on.wait();
                    guard.unlock()
                })
            })
            .collect();
        held.wait();
        let waiters: Vec<_> = (0..100)
            .map(|number| {
                let (lock, interrupt) = (&locks[number % 10], &interrupt);
                scope.spawn(move || match number / 10 % 4 {
                    0 => lock.lock(),
                    1 => lock.try_lock_for(MINUTE).map(drop),
                    2 => lock.lock_interruptibly(interrupt),
                    _ => lock.guard().map(drop),
                })
            })
            .collect();
        thread::sleep(ms(500));
        assert!(own_threads() >= 3);
        say("waiting");
        listen();
        let start = Instant::now();
        client.shutdown();
        let closed = waiters
            .into_iter()
            .filter_map(|waiter| waiter.join().unwrap().err())
            .filter(|error| matches!(error, Error::Closed { .. }))
            .count();
        let took = start.elapsed().as_millis();
        let news = (0..10).filter(|_| told.recv_timeout(SLACK) == Ok(LossCause::Closed));
        say(&format!("closed {closed} {} {took}", news.count()));
        listen();
        go_on.wait();
        let unlocked = holders
            .into_iter()
            .filter_map(|holder| holder.join().unwrap().ok())
            .count();
        say(&format!("unlocked {unlocked}"));
    });
    drop((locks, client));
    let left = || (own_threads(), open_files().saturating_sub(files_before));
    let start = Instant::now();
    while left() != (0, 0) && start.elapsed() < SLACK {
        thread::sleep(ms(10));
    }
    say(&format!("left {} {}", left().0, left().1));
    while listen().is_some() {}
}
