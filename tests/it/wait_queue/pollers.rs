//! The turns of processes whose waiters poll, so that nobody knows of them. Each client stands for a process.

use std::sync::atomic::AtomicBool;

use super::*;

type Lane = fn(&Client) -> Lock;

/// How often each of three clients gets the lock in `time`. Each has two threads that want it again after `pause`; the
/// last client is so far away.
fn turns_of(lane: Lane, distance: Duration, pause: Duration, time: Duration) -> [u32; 3] {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    if !distance.is_zero() {
        proxy.next(usize::MAX, None, Fault::DelayRequest(distance));
    }
    let urls = [server.url(), server.url(), proxy.url()];
    // A busy machine is no outage.
    let open = |url: String| Client::builder().command_timeout(ms(10_000)).open(&url);
    let clients = urls.map(|url| open(url).unwrap());
    let turns = [(); 3].map(|()| AtomicU32::new(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (client, turns) in clients.iter().zip(&turns).chain(clients.iter().zip(&turns)) {
            let (lock, is_over) = (lane(client), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    lock.lock().unwrap();
                    thread::sleep(ms(10));
                    lock.unlock().unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(pause);
                }
            });
        }
        thread::sleep(time);
        is_over.store(true, Ordering::SeqCst);
    });
    let turns = turns.map(AtomicU32::into_inner);
    println!("{turns:?}");
    turns
}

#[track_caller]
fn nobody_starves(lane: Lane, distance: Duration, pause: Duration) {
    let turns = turns_of(lane, distance, pause, ms(12_000));
    // One that is far away comes to a free lock by chance, and has had from 59 to 312 turns of about 1000 in 40 runs.
    let share = if distance.is_zero() { 12 } else { 40 };
    let least = turns.iter().sum::<u32>() / share;
    assert!(turns.iter().all(|it| *it >= least.max(20)), "{turns:?}");
}

fn spin(client: &Client) -> Lock {
    client.spin_lock("orders")
}

fn token(client: &Client) -> Lock {
    client.token_lock("orders")
}

fn plain(client: &Client) -> Lock {
    client.lock("orders")
}

#[test]
fn spin_locks_go_round_the_processes() {
    nobody_starves(spin, Duration::ZERO, Duration::ZERO);
}

#[test]
fn token_locks_go_round_the_processes() {
    nobody_starves(token, Duration::ZERO, Duration::ZERO);
}

#[test]
fn a_distant_process_that_polls_has_its_turns() {
    nobody_starves(spin, ms(4), Duration::ZERO);
    nobody_starves(token, ms(4), Duration::ZERO);
}

/// The last waiter of a client leaves the queue with the lock, and the next one comes only then.
#[test]
fn threads_that_come_back_late_keep_no_lock_among_themselves() {
    nobody_starves(plain, Duration::ZERO, ms(3));
    nobody_starves(spin, Duration::ZERO, ms(3));
}

/// Ends the work of other threads, also if the test fails: they would be waited for.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Threads that pass a lock on until it rests free, because their run was long. They are so many that one always waits, for
/// where nobody does the run ends.
fn until_it_rests<T>(lock: &Lock, test: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let waiter = lock.clone();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    if waiter.try_lock_for(ms(10_000)).unwrap() {
                        thread::sleep(ms(1));
                        waiter.unlock().unwrap();
                    }
                }
            });
        }
        let at_end = AtEnd(&is_over);
        let from = Instant::now();
        let mut free = 0;
        while free < 10 {
            thread::sleep(ms(2));
            free = if lock.is_locked().unwrap() {
                0
            } else {
                free + 1
            };
            assert!(from.elapsed() < ms(20_000), "it never rests");
        }
        drop(at_end);
        test()
    })
}

#[test]
fn a_rest_keeps_no_wait_beyond_its_end() {
    let server = RedisServer::start();
    let open = || Client::open(&server.url()).unwrap();
    let lock = open().spin_lock("orders").with_backoff(ms(1), ms(1000));
    let waited = until_it_rests(&lock, || {
        let start = Instant::now();
        assert!(
            lock.try_lock().unwrap(),
            "a single try does not wait for it"
        );
        lock.unlock().unwrap();
        let of_others = open().lock("orders");
        of_others.lock().unwrap();
        of_others.unlock().unwrap();
        assert!(start.elapsed() < ms(800), "{:?}", start.elapsed());
        let start = Instant::now();
        if lock.try_lock_for(ms(40)).unwrap() {
            lock.unlock().unwrap();
        }
        start.elapsed()
    });
    assert!(waited < ms(800), "{waited:?}");
    // Nobody waits any more, so nothing rests.
    let start = Instant::now();
    for _ in 0..20 {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    assert!(start.elapsed() < ms(800), "{:?}", start.elapsed());
}

#[test]
fn a_waiter_is_interrupted_while_the_lock_rests() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.spin_lock("orders").with_backoff(ms(1), ms(1000));
    let interrupt = Interrupt::new();
    let outcomes = thread::scope(|scope| {
        let spawn = || {
            scope.spawn(|| {
                loop {
                    if let Err(error) = lock.lock_interruptibly(&interrupt) {
                        return (Instant::now(), error);
                    }
                    thread::sleep(ms(1));
                    lock.unlock().unwrap();
                }
            })
        };
        let threads: [_; 6] = std::array::from_fn(|_| spawn());
        let mut free = 0;
        let from = Instant::now();
        // If it does not rest, they are interrupted all the same, so that the test ends.
        while free < 10 && from.elapsed() < ms(20_000) {
            thread::sleep(ms(5));
            free = if lock.is_locked().unwrap() {
                0
            } else {
                free + 1
            };
        }
        let has_rested = free == 10;
        let raised = Instant::now();
        interrupt.raise();
        assert!(has_rested, "it never rests");
        threads.map(|it| it.join().unwrap()).map(|(at, error)| {
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
            at - raised
        })
    });
    assert!(outcomes.iter().all(|took| *took < ms(800)), "{outcomes:?}");
}
