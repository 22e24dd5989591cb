//! Forks of a holder: F51.

use super::*;

#[test]
fn a_forked_child_owns_nothing_and_harms_nothing() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let mut child = Child::spawn("forking holder", &[("URL", &server.url())]);
    let id = child.expect_line("holds", CHILD)["holds ".len()..].to_owned();
    // Of the scripts of the new client, one looks at the field that is there.
    let sent = || {
        let mut lines = monitor.lines_containing(&id);
        // The parent looks once for what endangers locks, on a connection which says whose it is.
        lines.retain(|line| !line.contains(" lua] ") && !line.contains("\"SETNAME\""));
        lines
    };
    let sent_before = sent().len();
    assert!(sent_before > 0);
    child.tell("fork");
    let report = child.expect_line("forked", CHILD);
    assert_eq!(
        report,
        "forked valid=false,false remaining=0ns try_lock=Forked unlock=Forked guard=Forked lost=Forked \
         question=Forked force=Forked"
    );
    child.expect_line("joined", CHILD);
    let sent = sent();
    assert_eq!(sent.len(), sent_before, "{sent:#?}");
    assert_eq!(server.text(&["HGET", "orders", &id]), Some("2".into()));
    child.tell("go on");
    assert_eq!(
        child.expect_line("parent", CHILD),
        "parent valid=true count=2 renewed=true () ()"
    );
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

pub(super) fn forking_holder() {
    let url = arg("URL");
    // No renewal falls into the life of the forked child.
    let client = Client::builder()
        .watchdog_timeout(Duration::from_secs(45))
        .open(&url)
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let second = lock.guard().unwrap();
    let lost_before = guard.lost();
    say(&format!("holds {}", guard.visitor()));
    listen();
    match fork::fork().unwrap() {
        Fork::Child => {
            let valid = (guard.is_valid(), lock.is_valid());
            let remaining = guard.remaining_validity();
            let tried = outcome(lock.try_lock());
            let unlocked = outcome(lock.unlock());
            let freed = outcome(second.unlock());
            let lost = outcome(lock.lost().map(drop));
            let cause = guard.lost().recv_timeout(SLACK).unwrap().cause;
            assert_eq!(cause, LossCause::Forked);
            for losses in [&lost_before, &lost_before.clone()] {
                assert!(!losses.is_valid());
                assert_eq!(losses.recv().unwrap().cause, LossCause::Forked);
                let told = losses.as_receiver().recv().unwrap();
                assert_eq!(told.cause, LossCause::Forked);
            }
            let question = outcome(lock.is_locked());
            let force = outcome(lock.force_unlock());
            drop(guard);
            client.shutdown();
            drop((lock, client));
            say(&format!(
                "forked valid={},{} remaining={remaining:?} try_lock={tried} unlock={unlocked} guard={freed} \
                 lost={lost} question={question} force={force}",
                valid.0, valid.1
            ));
            std::process::exit(0);
        }
        Fork::Parent(pid) => {
            fork::waitpid(pid).unwrap();
            say("joined");
            listen();
            let valid = guard.is_valid() && second.is_valid() && lost_before.try_recv().is_err();
            let count = lock.hold_count().unwrap();
            let short = client.lock("orders").with_lease_time(MINUTE);
            let renewed = short.try_lock().unwrap() && short.unlock().is_ok();
            let freed = (outcome(second.unlock()), outcome(guard.unlock()));
            say(&format!(
                "parent valid={valid} count={count} renewed={renewed} {} {}",
                freed.0, freed.1
            ));
        }
    }
}

/// Forks again and again while threads are looked for by their numbers, and sees each child to its end.
#[test]
fn a_child_ends_wherever_the_fork_caught_the_other_threads() {
    let mut child = Child::spawn("forking crowd", &[]);
    assert_eq!(child.expect_line("forked", CHILD * 2), "forked 100 hung 0");
    assert!(child.wait(CHILD).success());
}

pub(super) fn forking_crowd() {
    let client = Client::in_memory();
    let me = current_thread_id();
    let is_over = AtomicBool::new(false);
    let hung = thread::scope(|scope| {
        // The threads of the client run by now.
        client.lock("counted").run(|_| ()).unwrap();
        thread::sleep(ms(100));
        // None of them starts a thread: the standard library has a mutex for that, which a child finds locked, too.
        for number in [me, u64::MAX, u64::MAX] {
            let lock = client.lock("orders");
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(!lock.is_held_by_thread(number).unwrap());
                }
            });
        }
        // So are the numbers.
        scope.spawn(|| {
            let lock = client.lock("counted");
            while !is_over.load(Ordering::Relaxed) {
                lock.run(|_| client.activity()).unwrap();
            }
        });
        let stuck = (0..100).filter(|_| is_stuck(&client));
        let hung = stuck.take(2).count();
        is_over.store(true, Ordering::Relaxed);
        hung
    });
    say(&format!("forked 100 hung {hung}"));
}

/// Whether a child of this process does not come to its end.
fn is_stuck(client: &Client) -> bool {
    let Fork::Parent(pid) = fork::fork().unwrap() else {
        let lived = std::panic::catch_unwind(|| {
            assert!(client.activity().holds.is_empty());
            #[cfg(feature = "test-util")]
            {
                assert!(client.another().is_none());
                redlatch::testing::Controls::of(client).set_silent(true);
            }
        });
        std::process::exit(i32::from(lived.is_err()));
    };
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let end = Instant::now() + CHILD / 2;
    loop {
        let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
        match status.unwrap() {
            Some((_, status)) => return status.exit_status() != Some(0),
            None if Instant::now() < end => thread::sleep(Duration::from_micros(200)),
            None => {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
                return true;
            }
        }
    }
}
