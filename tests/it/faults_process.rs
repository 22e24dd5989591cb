//! What time, pauses and the process itself can do to a lock: faults F47 to F58 of the catalogue.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and one that goes on may say how far"
)]

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fork::Fork;
#[cfg(feature = "test-util")]
use redlatch::testing;
use redlatch::{Client, Error, Guard, Interrupt, Lock, LossCause, Losses, current_thread_id};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::child::{arg, listen, say};
use crate::support::{Child, Monitor, RedisServer, eventually, ms};
#[cfg(target_os = "linux")]
use crate::support::{ClockShim, clock::OFFSET_VARIABLE};

/// What a busy machine may add to any time.
const SLACK: Duration = ms(2500);

/// Long enough that nothing which needs it to end can pass for working.
const MINUTE: Duration = Duration::from_secs(60);

/// How long a child may take for all that it has to do.
const CHILD: Duration = Duration::from_secs(30);

fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// The one thing a child says about an error.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Lost { .. } => "Lost",
        Error::Forked { .. } => "Forked",
        Error::NotHeld { .. } => "NotHeld",
        Error::Closed { .. } => "Closed",
        Error::Unreachable { .. } => "Unreachable",
        Error::WatchdogDied { .. } => "WatchdogDied",
        Error::InvalidConfig { .. } => "InvalidConfig",
        _ => "another error",
    }
}

fn outcome<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => class(&error).to_owned(),
    }
}

/// Plays `role` in a child process; false if it is not one of this file.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "paused holder" => paused_holder(),
        "holder under a shifted clock" => holder_under_a_shifted_clock(),
        #[cfg(feature = "test-util")]
        "holder in suspend" => holder_in_suspend(),
        "forking holder" => forking_holder(),
        "forking crowd" => forking_crowd(),
        "forgetful holder" => forgetful_holder(),
        "holder of names without end" => holder_of_names_without_end(),
        "holder without threads" => holder_without_threads(),
        "client without threads" => client_without_threads(),
        "holder that listens" => holder_that_listens(),
        "dying holder" => dying_holder(),
        "holder of thousands" => holder_of_thousands(),
        "holder without files" => holder_without_files(),
        "client that is shut down" => client_that_is_shut_down(),
        _ => return false,
    }
    true
}

// F47

const PAUSE: Duration = ms(1800);

#[test]
fn a_process_that_was_paused_past_its_lease_has_lost_and_harms_no_successor() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let other = Client::open(&server.url()).unwrap();
    let successor = other.lock("orders").with_lease_time(MINUTE);
    for _ in 0..2 {
        let mut child = Child::spawn("paused holder", &[("URL", &server.url())]);
        child.expect_line("held", CHILD);
        // Into the midst of its renewals.
        thread::sleep(ms(450 + fastrand::u64(..200)));
        child.freeze();
        let frozen = Instant::now();
        assert!(successor.try_lock_for(Duration::from_secs(10)).unwrap());
        thread::sleep(PAUSE.saturating_sub(frozen.elapsed()));
        monitor.clear();
        child.thaw();
        assert_eq!(child.expect_line("first", CHILD), "first false");
        let told = child.expect_line("told", SLACK + ms(2000));
        assert_eq!(told, "told 1 Unreachable");
        assert_eq!(child.expect_line("unlock", CHILD), "unlock Lost");
        assert_eq!(child.expect_line("again", CHILD), "again false");
        // Two renewal periods of the child.
        thread::sleep(ms(400));
        let renewals = monitor.lines_containing("\"PEXPIRE\" \"orders\"");
        assert_eq!(renewals, Vec::<String>::new());
        assert!(server.int(&["PTTL", "orders"]) > 30_000);
        assert!(successor.is_valid());
        successor.unlock().unwrap();
        assert!(child.wait(CHILD).success());
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

fn paused_holder() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let client = Client::builder()
        .watchdog_timeout(ms(600))
        .on_lost(move |loss| hook.lock().unwrap().push(loss.cause.clone()))
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    say("held");
    let mut last = Instant::now();
    let first = loop {
        // `Instant` stands still in no pause of a process, only in suspend.
        let before = Instant::now();
        let valid = guard.is_valid();
        if before - last > PAUSE - ms(300) {
            break valid;
        }
        assert!(valid, "it is renewed until the pause");
        last = before;
        thread::sleep(ms(1));
    };
    say(&format!("first {first}"));
    lost.recv_timeout(SLACK).unwrap();
    eventually(SLACK, "the hook is called", || {
        !told.lock().unwrap().is_empty()
    });
    assert!(!guard.is_valid());
    let unlocked = outcome(guard.unlock());
    let told = told.lock().unwrap();
    let cause = match &told[0] {
        LossCause::Unreachable { .. } => "Unreachable",
        _ => "another cause",
    };
    say(&format!("told {} {cause}", told.len()));
    say(&format!("unlock {unlocked}"));
    say(&format!("again {}", outcome(lock.try_lock())));
    while listen().is_some() {}
}

// F48

#[cfg(target_os = "linux")]
#[test]
fn a_server_clock_that_steps_forward_ends_holds_which_is_told() {
    let clock = ClockShim::build();
    let server = RedisServer::with_clock(&clock);
    let lease = ms(3000);
    let client = || {
        Client::builder()
            .watchdog_timeout(lease)
            .open(&server.url())
            .unwrap()
    };
    let lock = client().lock("orders");
    let other = client().lock("orders");
    lock.lock().unwrap();
    assert!(!other.try_lock().unwrap(), "its connection knows the time");
    let lost = lock.lost().unwrap();

    clock.set(40_000);
    // The request of a connection that has the old time is too late for the server; it is sent anew.
    assert!(other.try_lock().unwrap());
    assert!(other.try_lock().unwrap());
    let loss = lost.recv_timeout(lease / 3 + SLACK).unwrap();
    assert!(matches!(loss.cause, LossCause::HeldBy(_)), "{loss}");
    assert!(!lock.is_valid());
    assert!(lock.unlock().unwrap_err().is_lost());
    // The hold that began under the new time lives on.
    thread::sleep(lease + ms(200));
    assert!(other.is_valid());
    assert_eq!(other.hold_count().unwrap(), 2);
    other.unlock().unwrap();
    other.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_clock_that_steps_back_is_corrected_by_renewals_and_no_waiter_sleeps_for_it() {
    let clock = ClockShim::build();
    let server = RedisServer::with_clock(&clock);
    let lease = ms(1500);
    let client = || {
        Client::builder()
            .watchdog_timeout(lease)
            .open(&server.url())
            .unwrap()
    };
    let (lock, other) = (client().lock("orders"), client().lock("orders"));
    lock.lock().unwrap();
    lock.lock().unwrap();
    assert!(!other.try_lock().unwrap());
    server.cmd(&["HSET", "abandoned", "somebody:1", "1"]);
    server.cmd(&["PEXPIRE", "abandoned", "5000"]);

    clock.set(-100_000);
    let ttl = server.int(&["PTTL", "abandoned"]);
    assert!(ttl > 90_000, "the step has its effect: {ttl}");
    let waited = thread::scope(|scope| {
        let waiter = client().lock("abandoned");
        let waiting = scope.spawn(move || {
            waiter.lock().unwrap();
            let now = Instant::now();
            waiter.unlock().unwrap();
            now
        });
        // A renewal sets the time to live again, and the hold goes on.
        eventually(lease + SLACK, "the renewal", || {
            let ttl = server.int(&["PTTL", "orders"]);
            (1..=1500).contains(&ttl)
        });
        assert!(lock.is_valid());
        // Nobody tells the waiter, and the end of the lease that it was told lies minutes away.
        let freed = Instant::now();
        server.cmd(&["DEL", "abandoned"]);
        waiting.join().unwrap() - freed
    });
    assert!(waited < ms(1100) + SLACK, "{waited:?}");
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    thread::sleep(lease + ms(200));
    assert!(lock.is_valid());
    assert!(!other.try_lock().unwrap());
    lock.unlock().unwrap();
    assert!(other.try_lock().unwrap());
    other.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

// F49

#[cfg(target_os = "linux")]
#[test]
fn a_client_wall_clock_that_steps_has_no_effect() {
    let clock = ClockShim::build();
    let server = RedisServer::start();
    let mut child = Child::spawn(
        "holder under a shifted clock",
        &[
            ("URL", &server.url()),
            ("LD_PRELOAD", clock.library().to_str().unwrap()),
            (OFFSET_VARIABLE, clock.offset_path()),
        ],
    );
    for hours in [0, 2, -48, 1] {
        child.expect_line("next", CHILD);
        clock.set(hours * 3_600_000);
        child.tell("go");
        let report = child.expect_line("report", CHILD);
        let mut words = report.split(' ').skip(1);
        let shift: i64 = words.next().unwrap().parse().unwrap();
        assert!(
            (shift - hours * 3600).abs() < 600,
            "the child's wall clock has stepped: {report}"
        );
        let waited: u64 = words.next().unwrap().parse().unwrap();
        assert!((400..400 + 2500).contains(&waited), "{report}");
        assert_eq!(words.collect::<Vec<_>>(), ["valid", "1", "free"]);
    }
    child.tell("end");
    assert_eq!(child.expect_line("unlock", CHILD), "unlock ()");
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

fn holder_under_a_shifted_clock() {
    let (wall, steady) = (SystemTime::now(), Instant::now());
    let lease = ms(900);
    let client = Client::builder()
        .watchdog_timeout(lease)
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    say("next");
    while listen().is_some_and(|word| word == "go") {
        let start = Instant::now();
        let got = elsewhere(|| lock.try_lock_for(ms(400)).unwrap());
        assert!(!got);
        let waited = start.elapsed().as_millis();
        thread::sleep(lease);
        let valid = if guard.is_valid() { "valid" } else { "invalid" };
        let shift = match SystemTime::now().duration_since(wall) {
            Ok(ahead) => ahead.as_secs_f64(),
            Err(behind) => -behind.duration().as_secs_f64(),
        } - steady.elapsed().as_secs_f64();
        let second = client.lock("invoices").with_lease_time(ms(2000));
        second.lock().unwrap();
        let free = second
            .unlock()
            .map_or_else(|error| error.to_string(), |()| "free".into());
        say(&format!(
            "report {} {waited} {valid} {} {free}",
            shift.round(),
            lock.hold_count().unwrap()
        ));
        say("next");
    }
    say(&format!("unlock {}", outcome(guard.unlock())));
}

#[cfg(feature = "test-util")]
#[test]
fn a_suspend_ends_holds_before_anything_is_sent() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder in suspend", &[("URL", &server.url())]);
    assert!(child.wait(CHILD).success());
    let said = child.said();
    assert!(said.contains(&"done".to_owned()), "{said:?}");
    eventually(SLACK, "nothing is left", || server.int(&["DBSIZE"]) == 0);
}

#[cfg(feature = "test-util")]
fn holder_in_suspend() {
    let client = Client::builder()
        .watchdog_timeout(Duration::from_secs(30))
        .open(&arg("URL"))
        .unwrap();
    let lock = client.lock("orders");
    let other = Client::open(&arg("URL")).unwrap().lock("orders");
    let fixed = client.lock("invoices").with_lease_time(MINUTE);
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    let long = fixed.guard().unwrap();
    assert!(guard.remaining_validity() > Duration::from_secs(20));
    testing::advance_clock(Duration::from_secs(25));
    assert!(guard.is_valid(), "it was not gone for long enough");
    testing::advance_clock(Duration::from_secs(10));
    assert!(!guard.is_valid(), "at once and for itself");
    assert_eq!(guard.remaining_validity(), Duration::ZERO);
    assert!(long.is_valid(), "a longer lease is not over");
    assert!(matches!(lock.unlock(), Err(Error::Lost { .. })));
    let loss = lost.recv_timeout(SLACK).unwrap();
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    // What the server may still have is cleared up, others need not wait until its lease ends.
    assert!(other.try_lock_for(SLACK).unwrap());
    assert!(!guard.is_valid(), "for good");
    other.unlock().unwrap();
    assert!(lock.try_lock().unwrap(), "a fresh hold");
    assert!(lock.is_valid());
    drop(guard);
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
    testing::advance_clock(MINUTE);
    assert!(!long.is_valid());
    assert!(matches!(long.unlock(), Err(Error::Lost { .. })));
    fixed.force_unlock().unwrap();
    say("done");
}

// F50

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

// F51

#[test]
fn a_forked_child_owns_nothing_and_harms_nothing() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let mut child = Child::spawn("forking holder", &[("URL", &server.url())]);
    let id = child.expect_line("holds", CHILD)["holds ".len()..].to_owned();
    // Of the scripts of the new client, one looks at the field that is there.
    let sent = || {
        let mut lines = monitor.lines_containing(&id);
        lines.retain(|line| !line.contains(" lua] "));
        lines
    };
    let sent_before = sent().len();
    assert!(sent_before > 0);
    child.tell("fork");
    let report = child.expect_line("forked", CHILD);
    assert_eq!(
        report,
        "forked valid=false,false remaining=0ns try_lock=Forked unlock=Forked guard=Forked lost=Forked \
         question=Forked force=Forked new=false,true,()"
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

fn forking_holder() {
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
            let own = Client::open(&url).unwrap();
            let refused = own.lock("orders").try_lock().unwrap();
            let another = own.lock("invoices");
            let got = another.try_lock().unwrap();
            let freed_own = outcome(another.unlock());
            say(&format!(
                "forked valid={},{} remaining={remaining:?} try_lock={tried} unlock={unlocked} guard={freed} \
                 lost={lost} question={question} force={force} new={refused},{got},{freed_own}",
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

// F52

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

/// Forks again and again while threads are looked for by their numbers, and sees each child to its end.
#[test]
fn a_child_ends_and_locks_wherever_the_fork_caught_the_other_threads() {
    let server = RedisServer::start();
    let mut child = Child::spawn("forking crowd", &[("URL", &server.url())]);
    assert_eq!(child.expect_line("forked", CHILD * 2), "forked 100 hung 0");
    assert!(child.wait(CHILD).success());
}

fn forking_crowd() {
    let url = arg("URL");
    let client = Client::in_memory();
    let me = current_thread_id();
    let is_over = AtomicBool::new(false);
    let hung = thread::scope(|scope| {
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
        let stuck = (0..100).filter(|round| is_stuck(*round, &url));
        let hung = stuck.take(2).count();
        is_over.store(true, Ordering::Relaxed);
        hung
    });
    say(&format!("forked 100 hung {hung}"));
}

/// Whether a child of this process does not come to its end.
fn is_stuck(round: u32, url: &str) -> bool {
    let Fork::Parent(pid) = fork::fork().unwrap() else {
        let lived = std::panic::catch_unwind(|| {
            if round % 2 == 1 {
                for own in [Client::in_memory(), Client::open(url).unwrap()] {
                    let lock = own.lock(&format!("own:{}", std::process::id()));
                    lock.lock().unwrap();
                    assert!(lock.is_held_by_thread(current_thread_id()).unwrap());
                    lock.unlock().unwrap();
                    elsewhere(|| lock.run(|_| ()).unwrap());
                }
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
fn names_whose_lease_runs_out_are_forgotten() {
    let mut child = Child::spawn("holder of names without end", &[]);
    let told = child.expect_line("grown", CHILD * 2);
    let per_name: i64 = told["grown ".len()..].parse().unwrap();
    // Each of them has far more than that while it is held.
    assert!(per_name < 150, "{per_name} bytes per name");
    assert!(child.wait(CHILD).success());
}

fn holder_of_names_without_end() {
    const NAMES: i64 = 200_000;
    let client = Client::in_memory();
    let leave = |prefix: &str, count: i64| {
        for number in 0..count {
            let lock = client.lock(&format!("{prefix}:{number}"));
            // One that came too late is none.
            let _ = lock.with_lease_time(ms(50)).try_lock();
        }
        thread::sleep(ms(200));
    };
    // The heap has its size by then.
    leave("first", NAMES / 4);
    let before = resident();
    leave("more", NAMES);
    say(&format!("grown {}", (resident() - before) / NAMES));
    // What was lost last is known.
    let last = client.lock(&format!("more:{}", NAMES - 1));
    assert!(last.unlock().unwrap_err().is_lost());
}

/// The memory of this process, in bytes.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse::<i64>().unwrap() * 1024
}

#[test]
fn a_forgotten_guard_keeps_nothing_of_a_client_that_was_shut_down() {
    let server = RedisServer::start();
    let mut child = Child::spawn("forgetful holder", &[("URL", &server.url())]);
    assert_eq!(child.expect_line("left", CHILD), "left [] after ()");
    assert_eq!(child.expect_line("left", CHILD), "left []");
    assert!(child.wait(CHILD).success());
}

fn forgetful_holder() {
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

// F53

#[cfg(feature = "test-util")]
#[test]
fn the_death_of_the_renewal_thread_ends_every_hold_and_every_try() {
    let server = RedisServer::start();
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let client = Client::builder()
        .on_lost(move |loss| hook.lock().unwrap().push(loss.clone()))
        .open(&server.url())
        .unwrap();
    let fixed = client.lock("fixed").with_lease_time(MINUTE);
    let fixed = fixed.guard().unwrap();
    let mut guards: Vec<Guard> = (0..20)
        .map(|number| client.lock(&format!("orders:{number}")).guard().unwrap())
        .collect();
    guards.push(client.lock("orders:0").guard().unwrap());
    guards.push(fixed);
    let lost: Vec<_> = guards.iter().map(Guard::lost).collect();
    thread::scope(|scope| {
        let held = client.lock("orders:0");
        let waiting = scope.spawn(move || held.try_lock_for(CHILD));
        thread::sleep(ms(100));
        let start = Instant::now();
        testing::Controls::of(&client).kill_watchdog();
        for lost in &lost {
            let loss = lost.recv_timeout(SLACK).unwrap();
            assert_eq!(loss.cause, LossCause::WatchdogDied);
        }
        let refused = client.lock("another").lock().unwrap_err();
        assert!(matches!(refused, Error::WatchdogDied { .. }), "{refused}");
        assert!(matches!(
            client.lock("orders:0").try_lock(),
            Err(Error::WatchdogDied { .. })
        ));
        assert!(guards.iter().all(|guard| !guard.is_valid()));
        assert!(
            guards
                .iter()
                .all(|guard| guard.remaining_validity() == Duration::ZERO)
        );
        eventually(SLACK, "the hook is told of every hold", || {
            told.lock().unwrap().len() == 21
        });
        for guard in guards {
            let error = guard.unlock().unwrap_err();
            assert!(
                matches!(&error, Error::Lost { cause, .. } if *cause == LossCause::WatchdogDied),
                "{error}"
            );
        }
        // Who waits could hold nothing any more, and learns it.
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::WatchdogDied { .. }), "{error}");
        assert!(start.elapsed() < ms(1100) + SLACK * 2);
    });
    client.shutdown();
    // A new client works.
    let lock = Client::open(&server.url()).unwrap().lock("another");
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_renewal_thread_that_cannot_start_fails_the_call_before_anything_is_sent() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder without threads", &[("URL", &server.url())]);
    let evals = server.eval_count();
    child.tell("lock");
    assert_eq!(
        child.expect_line("lock", CHILD),
        "lock WatchdogDied WatchdogDied WatchdogDied"
    );
    assert_eq!(server.eval_count(), evals);
    child.tell("go on");
    assert_eq!(child.expect_line("later", CHILD), "later true true ()");
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn who_listens_again_and_again_costs_nothing_until_the_hold_ends() {
    let mut child = Child::spawn("holder that listens", &[]);
    let end = child.wait(CHILD);
    assert!(end.success(), "{:?}", child.said());
}

#[cfg(target_os = "linux")]
fn holder_that_listens() {
    let guard = Client::in_memory().lock("orders").guard().unwrap();
    let kept = guard.lost();
    let listen = |times| {
        for _ in 0..times {
            let losses = guard.lost();
            let again = losses.clone();
            assert!(again.as_receiver().is_empty() && losses.as_receiver().is_empty());
            assert!(kept.as_receiver().is_empty());
        }
    };
    let resident = || {
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages = pages.split(' ').nth(1).unwrap().parse::<i64>().unwrap();
        pages * 4096
    };
    listen(1000);
    let before = resident();
    listen(50_000);
    let grown = resident() - before;
    say(&format!("grown by {grown}"));
    assert!(grown < 2 << 20);
    guard.unlock().unwrap();
    assert!(kept.try_recv() == Err(redlatch::NoLoss::Ended) && kept.as_receiver().recv().is_err());
}

/// Leaves no room for the stack of another thread, but for what else there is to do.
///
/// The limits on processes do not bind root, and a cgroup is not everywhere ours to make.
#[cfg(target_os = "linux")]
pub(crate) fn forbid_threads() {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let maximum = getrlimit(Resource::As).maximum;
    let room = pages * 4096 + (1 << 20);
    let limit = Rlimit {
        current: Some(room),
        maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
    let spawned = thread::Builder::new().spawn(|| ());
    assert!(spawned.is_err(), "the limit has its effect");
}

#[cfg(target_os = "linux")]
pub(crate) fn allow_threads() {
    let maximum = getrlimit(Resource::As).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
}

#[cfg(target_os = "linux")]
fn holder_without_threads() {
    let client = Client::open(&arg("URL")).unwrap();
    let lock = client.lock("orders");
    listen();
    forbid_threads();
    let outcomes = (
        outcome(lock.lock()),
        outcome(lock.try_lock()),
        outcome(lock.try_lock_for(ms(100))),
    );
    allow_threads();
    say(&format!(
        "lock {} {} {}",
        outcomes.0, outcomes.1, outcomes.2
    ));
    listen();
    let got = lock.try_lock().unwrap();
    say(&format!(
        "later {got} {} {}",
        lock.is_valid(),
        outcome(lock.unlock())
    ));
}

#[cfg(target_os = "linux")]
#[test]
fn a_client_that_cannot_start_a_thread_is_an_error_and_no_panic() {
    let server = RedisServer::start();
    let mut child = Child::spawn("client without threads", &[("URL", &server.url())]);
    let end = child.wait(CHILD);
    let said = child.said();
    assert!(end.success(), "{end}, {said:?}");
    assert_eq!(said, ["made InvalidConfig", "lock true ()"]);
}

#[cfg(target_os = "linux")]
fn client_without_threads() {
    forbid_threads();
    let made = Client::open(&arg("URL"));
    allow_threads();
    say(&format!("made {}", outcome(made.map(drop))));
    let lock = Client::open(&arg("URL")).unwrap().lock("orders");
    let got = lock.try_lock().unwrap();
    say(&format!("lock {got} {}", outcome(lock.unlock())));
}

#[cfg(not(target_os = "linux"))]
fn holder_without_threads() {}

#[cfg(not(target_os = "linux"))]
fn client_without_threads() {}

// F54

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

fn dying_holder() {
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

// F55

const THOUSANDS: usize = 10_000;

#[test]
fn of_ten_thousand_holds_none_is_lost_in_silence() {
    let server = RedisServer::start();
    let mut child = Child::spawn("holder of thousands", &[("URL", &server.url())]);
    child.expect_line("held", MINUTE);
    let long = std::env::var_os("REDLATCH_LONG").is_some();
    thread::sleep(Duration::from_secs(if long { 60 } else { 4 }));
    child.tell("audit");
    let kept = audit(&child);
    assert!(kept > THOUSANDS / 2, "only {kept} were kept alive");
    // As if a quota gave it 1 % of a processor.
    let starved = ms(if long { 20_000 } else { 5500 });
    child.tell(&format!("probe {}", starved.as_millis()));
    let start = Instant::now();
    while start.elapsed() < starved {
        child.freeze();
        thread::sleep(ms(495));
        child.thaw();
        thread::sleep(ms(5));
    }
    let kept = audit(&child);
    println!("{kept} of {THOUSANDS} were kept alive without time to do so");
    child.tell("end");
    assert!(child.wait(MINUTE).success());
    eventually(ms(3000) + SLACK, "nothing is left", || {
        server.int(&["DBSIZE"]) == 0
    });
}

/// How many holds are valid; panics if any was lost in silence.
#[track_caller]
fn audit(child: &Child) -> usize {
    let report = child.expect_line("audit", MINUTE);
    let numbers: Vec<usize> = report
        .split(' ')
        .skip(1)
        .map(|word| word.parse().unwrap())
        .collect();
    let [valid, lost, gone_but_valid, untold] = numbers[..] else {
        panic!("{report}");
    };
    assert_eq!(valid + lost, THOUSANDS, "{report}");
    assert_eq!(
        gone_but_valid, 0,
        "gone from the server, but valid: {report}"
    );
    assert_eq!(untold, 0, "not valid, but not told: {report}");
    valid
}

fn holder_of_thousands() {
    let url = arg("URL");
    let client = Client::builder()
        .watchdog_timeout(ms(3000))
        .open(&url)
        .unwrap();
    let held: Vec<_> = (0..THOUSANDS)
        .map(|number| {
            let name = format!("orders:{number}");
            let guard = client.lock(&name).guard().unwrap();
            let lost = guard.lost();
            (name, guard, lost)
        })
        .collect();
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    say("held");
    let mut gone_but_valid = |part: &[(String, Guard, Losses)]| {
        let mut question = redis::pipe();
        for (name, guard, _) in part {
            question
                .cmd("HEXISTS")
                .arg(name)
                .arg(guard.visitor().as_str());
        }
        // The server first: what is gone there cannot come back, so it must not be valid here afterwards.
        let exist: Vec<bool> = question.query(&mut connection).unwrap();
        let both = part.iter().zip(exist);
        both.filter(|((_, guard, _), exists)| !exists && guard.is_valid())
            .count()
    };
    while let Some(word) = listen().filter(|word| word != "end") {
        let mut silent = 0;
        if let Some(time) = word.strip_prefix("probe ") {
            let end = Instant::now() + ms(time.parse().unwrap());
            while Instant::now() < end {
                let first = fastrand::usize(..THOUSANDS - 20);
                silent += gone_but_valid(&held[first..first + 20]);
                thread::sleep(ms(1));
            }
        }
        silent += gone_but_valid(&held);
        let end = Instant::now() + SLACK;
        let (mut lost, mut untold) = (0, 0);
        for (_, guard, told) in &held {
            if !guard.is_valid() {
                lost += 1;
                // Asked only once, or told at an audit before.
                let again = guard.lost();
                if told.recv_deadline(end).is_err() && again.recv_deadline(end).is_err() {
                    untold += 1;
                }
            }
        }
        say(&format!(
            "audit {} {lost} {silent} {untold}",
            held.len() - lost
        ));
    }
}

// F56

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

fn holder_without_files() {
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

// F57

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

fn client_that_is_shut_down() {
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

// F58

#[test]
fn settings_at_the_edge_of_sense_are_refused_or_work() {
    let server = RedisServer::start();
    let url = server.url();
    let client = Client::open(&url).unwrap();
    let lock = client.lock("orders");
    let day = Duration::from_secs(24 * 60 * 60);
    let just_over = day * 365 + Duration::from_nanos(1);
    let just_under = Duration::from_nanos(9_999_999);
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        just_under,
        just_over,
        ms(u64::MAX),
        ms(i64::MAX.unsigned_abs()),
        Duration::MAX,
    ] {
        let fixed = lock.with_lease_time(lease);
        for error in [
            fixed.lock().unwrap_err(),
            fixed.try_lock().unwrap_err(),
            fixed.guard().map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
        }
        let error = Client::builder().watchdog_timeout(lease).open(&url);
        let error = error.map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);

    // The longest lease is a time to live, not a key for ever.
    let longest = lock.with_lease_time(day * 365);
    longest.lock().unwrap();
    assert!(server.int(&["PTTL", "orders"]) > 364 * 86_400_000);
    assert!(longest.is_valid());
    longest.unlock().unwrap();

    // Leases shorter than any round trip under load: kept, or lost aloud, never in silence.
    for lease in [ms(10), Duration::from_micros(10_500), ms(15)] {
        let short = Client::builder()
            .watchdog_timeout(lease)
            .command_timeout(ms(2000))
            .open(&url)
            .unwrap();
        for _ in 0..20 {
            match short.lock("short").guard() {
                Ok(guard) => {
                    let lost = guard.lost();
                    thread::sleep(ms(30));
                    let is_gone = server.int(&["EXISTS", "short"]) == 0;
                    assert!(!(is_gone && guard.is_valid()), "lost in silence");
                    if !guard.is_valid() {
                        lost.recv_timeout(SLACK).unwrap();
                    }
                    if let Err(error) = guard.unlock() {
                        assert!(error.is_lost(), "{error}");
                    }
                }
                // Its answer came after the end of the lease.
                Err(error) => assert!(error.is_ambiguous(), "{error}"),
            }
        }
        eventually(SLACK, "no rest of a short lease", || {
            server.int(&["EXISTS", "short"]) == 0
        });
    }

    // No wait is too short, and one is too long only if it has no end.
    let other = Client::open(&url).unwrap().lock("orders");
    lock.lock().unwrap();
    for wait in [Duration::ZERO, Duration::from_nanos(1)] {
        let start = Instant::now();
        assert!(!other.try_lock_for(wait).unwrap());
        assert!(start.elapsed() < SLACK);
    }
    assert!(matches!(
        other.try_lock_for(Duration::MAX),
        Err(Error::InvalidWait { .. })
    ));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let got = other.try_lock_for(day * 365 * 100).unwrap();
            other.unlock().unwrap();
            got
        });
        thread::sleep(ms(100));
        lock.unlock().unwrap();
        assert!(waiting.join().unwrap());
    });

    // A time-out below a round trip: any result, but in time and with nothing left.
    let hasty = Client::builder()
        .watchdog_timeout(ms(1000))
        .command_timeout(ms(1))
        .connect_timeout(ms(1))
        .outage_timeout(ms(1))
        .open(&url)
        .unwrap();
    for _ in 0..50 {
        let lock = hasty.lock("hasty");
        let start = Instant::now();
        match lock.try_lock() {
            Ok(true) => match lock.unlock() {
                Ok(()) => {}
                Err(error) => assert!(error.is_retryable() || error.is_ambiguous(), "{error}"),
            },
            Ok(false) => {}
            Err(error) => assert!(error.is_retryable() || error.is_ambiguous(), "{error}"),
        }
        assert!(start.elapsed() < SLACK);
    }
    eventually(
        ms(1000) + SLACK,
        "what the hasty client could not free",
        || server.int(&["EXISTS", "hasty"]) == 0,
    );

    // One connection for all.
    let narrow = Client::builder().pool_size(1).open(&url).unwrap();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let lock = narrow.lock("narrow");
                lock.lock().unwrap();
                lock.unlock().unwrap();
            });
        }
    });
    for prefix in ["\n", "{", &"x".repeat(600)] {
        let odd = Client::builder().key_prefix(prefix).open(&url).unwrap();
        let error = odd.lock("orders").lock().unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);
}
