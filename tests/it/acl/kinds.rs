//! The operations of each kind that use its rights, with each of their outcomes.

use std::collections::BTreeSet;
use std::thread;

use redlatch::{Client, Error, Lock, PermitSemaphore, ReadWriteLock, Semaphore};

use super::{PREFIX, row};
use crate::semaphore::Permitting;
use crate::support::{RedisServer, elsewhere, ms};

pub(super) struct Row {
    pub(super) name: &'static str,
    /// The rows of the page with all rights of the kind.
    rules: &'static [&'static str],
    /// The rights that are revoked, one at a time.
    own: &'static [&'static str],
    /// Rights without which calls are slower or errors less precise.
    pub(super) spare: &'static [&'static str],
    /// Rights needed only for renewals.
    pub(super) renews: &'static [&'static str],
    pub(super) work: fn(&RedisServer, &Client) -> Vec<Error>,
    /// Acquires a renewed hold. Returns a function that checks whether it is still held.
    pub(super) holds: fn(&Client) -> Box<dyn Fn() -> bool>,
}

impl Row {
    pub(super) fn rules(&self) -> BTreeSet<String> {
        row(self.rules)
    }

    pub(super) fn own(&self) -> BTreeSet<String> {
        row(self.own)
    }
}

const LOCKS: &[&str] = &["every lock", "Client::lock"];
const TOKENS: &[&str] = &["every lock", "Client::token_lock"];
const FENCED: &[&str] = &["every lock", "Client::lock", "Client::fenced_lock"];
const CONDITIONS: &[&str] = &["every lock", "Client::lock", "`Lock::condition`"];
const SIDES: &[&str] = &["`Client::read_write_lock`, alone"];
const FAIR: &[&str] = &["`Client::fair_lock`, alone"];
const LATCHES: &[&str] = &["`Client::latch`, alone"];
const SEMAPHORES: &[&str] = &["`Client::semaphore`, alone"];
const PERMITS: &[&str] = &["`Client::permit_semaphore`, alone"];
const LOOKS: &[&str] = &["a look at locks", "`+client|list`", "`+pubsub|numsub`"];

const PLAIN: Row = Row {
    name: "plain",
    rules: LOCKS,
    own: LOCKS,
    spare: &["hlen"],
    renews: &["hexists"],
    work: |server, client| locked(server, &client.lock("a")),
    holds: |client| held(&client.lock("held")),
};

pub(super) const ROWS: [Row; 10] = [
    Row {
        name: "fair",
        rules: FAIR,
        own: FAIR,
        // Without these a hash that is not a lock takes longer, and a queue entry stays after its waiter gave up until
        // it is skipped.
        spare: &["hlen", "lrem"],
        renews: &[],
        work: fair,
        holds: |client| held(&client.fair_lock("held")),
    },
    PLAIN,
    Row {
        name: "token",
        rules: TOKENS,
        own: TOKENS,
        spare: &[],
        renews: &["pexpire"],
        work: |server, client| locked(server, &client.token_lock("a")),
        holds: |client| held(&client.token_lock("held")),
    },
    Row {
        name: "fenced",
        rules: FENCED,
        own: &["Client::fenced_lock"],
        work: |server, client| locked(server, &client.fenced_lock("a")),
        holds: |client| held(&client.fenced_lock("held")),
        ..PLAIN
    },
    Row {
        name: "condition",
        rules: CONDITIONS,
        own: &["`Lock::condition`"],
        work: condition,
        ..PLAIN
    },
    Row {
        name: "read-write",
        rules: SIDES,
        own: SIDES,
        // Only the fairness is missing then.
        spare: &["zadd", "zrange", "zrem", "zscore"],
        renews: &[],
        work: sides,
        holds: |client| held(&client.read_write_lock("held").read()),
    },
    Row {
        name: "latch",
        rules: LATCHES,
        own: LATCHES,
        spare: &[],
        renews: &[],
        work: latch,
        holds: |_| Box::new(|| true),
    },
    Row {
        name: "semaphore",
        rules: SEMAPHORES,
        own: SEMAPHORES,
        // The key stays until its semaphore is set again.
        spare: &["pexpire"],
        renews: &[],
        work: permits::<Semaphore>,
        holds: taken::<Semaphore>,
    },
    Row {
        name: "permit semaphore",
        rules: PERMITS,
        own: PERMITS,
        spare: &["pexpire"],
        renews: &[],
        work: permits::<PermitSemaphore>,
        holds: taken::<PermitSemaphore>,
    },
    Row {
        name: "look",
        rules: LOOKS,
        own: LOOKS,
        spare: &["pubsub|numsub", "client|list", "exists"],
        renews: &[],
        work: looks,
        holds: |_| Box::new(|| true),
    },
];

fn whole(server: &RedisServer) -> Client {
    let builder = Client::builder().key_prefix(PREFIX);
    builder.open(&server.url()).unwrap()
}

fn held(lock: &Lock) -> Box<dyn Fn() -> bool> {
    let guard = lock.guard().unwrap();
    Box::new(move || guard.is_valid())
}

fn taken<S: Permitting>(client: &Client) -> Box<dyn Fn() -> bool> {
    let semaphore = S::of(client, "held");
    assert!(semaphore.try_set(2).unwrap());
    let taken = semaphore.acquire(2).unwrap();
    Box::new(move || taken.is_valid())
}

fn locked(server: &RedisServer, lock: &Lock) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut note = |error: Option<Error>| errors.extend(error);
    let free = || server.cmd(&["DEL", lock.name()]);
    note(lock.is_locked().err());
    note(lock.try_lock().err());
    note(lock.try_lock().err());
    note(lock.is_held_by_current_thread().err());
    note(lock.remaining_lease().err());
    note(elsewhere(|| lock.try_lock_for(ms(50)).err()));
    note(lock.unlock().err());
    note(lock.unlock().err());
    free();
    note(lock.try_lock().err());
    note(lock.force_unlock().err());
    note(lock.unlock().err());
    free();
    // The lock whose right was revoked.
    note(lock.try_lock().err());
    free();
    note(lock.unlock().err());
    free();
    errors
}

fn condition(server: &RedisServer, client: &Client) -> Vec<Error> {
    let lock = client.lock("basket");
    let condition = lock.condition("filled");
    lock.lock().unwrap();
    let mut errors = Vec::new();
    errors.extend(condition.wait_for(ms(1)).err());
    assert!(lock.is_valid(), "a wait that fails leaves the lock held");
    let channel = "redlatch_condition:{orders:basket}:filled";
    for (set, score) in [("waiting", "1"), ("due", "9000000000000")] {
        server.cmd(&["ZADD", &format!("{channel}:{set}"), score, "c:1:1"]);
    }
    errors.extend(condition.signal().err());
    lock.unlock().unwrap();
    errors
}

fn sides(server: &RedisServer, client: &Client) -> Vec<Error> {
    let sides = |lock: &ReadWriteLock| [lock.read(), lock.write()];
    let lock = client.read_write_lock("prices");
    let whole = whole(server);
    let mut errors = Vec::new();
    for side in sides(&lock) {
        errors.extend(side.try_lock().err());
        server.cmd(&["FLUSHALL"]);
        for held in sides(&whole.read_write_lock("prices")) {
            held.lock().unwrap();
            errors.extend(side.is_locked().err());
            errors.extend(elsewhere(|| side.try_lock().err()));
            errors.extend(side.force_unlock().err());
            server.cmd(&["FLUSHALL"]);
            let _ = held.unlock();
        }
        // Two readers, so that the second one inspects the first; or a single writer.
        if side.try_lock().is_ok_and(|taken| taken) {
            let _ = elsewhere(|| lock.read().try_lock());
            errors.extend(side.try_lock().err());
            errors.extend(side.unlock().err());
            errors.extend(side.unlock().err());
        }
        server.cmd(&["FLUSHALL"]);
    }
    errors
}

fn fair(server: &RedisServer, client: &Client) -> Vec<Error> {
    const QUEUE: &str = "redisson_lock_queue:{orders:tickets}";
    const TIMES: &str = "redisson_lock_timeout:{orders:tickets}";
    let (whole, lock) = (whole(server), client.fair_lock("tickets"));
    let whole = whole.fair_lock("tickets");
    let mut errors = Vec::new();
    errors.extend(lock.try_lock().err());
    errors.extend(lock.try_lock().err());
    errors.extend(lock.unlock().err());
    errors.extend(lock.unlock().err());
    server.cmd(&["FLUSHALL"]);
    // The lock is held; its waiters are dead, return, or equal the timeouts in number.
    whole.lock().unwrap();
    errors.extend(lock.is_locked().err());
    errors.extend(lock.waiters().err());
    for waiters in [&["a:1:1"][..], &["a:1:1", "b:1:1"]] {
        server.cmd(&[&["RPUSH", QUEUE], waiters].concat());
        errors.extend(lock.try_lock_for(ms(1300)).err());
    }
    errors.extend(lock.force_unlock().err());
    server.cmd(&["FLUSHALL"]);
    // The list was lost, but the timeouts were not.
    server.cmd(&["ZADD", TIMES, "1", "a:1:1"]);
    errors.extend(lock.try_lock().err());
    errors.extend(lock.unlock().err());
    server.cmd(&["FLUSHALL"]);
    let _ = whole.unlock();
    // A removed waiter returns behind another waiter.
    whole.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let taken = lock.try_lock_for(ms(2500));
            taken.map(|taken| (taken, lock.unlock()))
        });
        thread::sleep(ms(300));
        server.cmd(&["DEL", QUEUE, TIMES]);
        server.cmd(&["ZADD", TIMES, "9999999999999", "c:1:1"]);
        server.cmd(&["RPUSH", QUEUE, "c:1:1"]);
        thread::sleep(ms(1300));
        whole.unlock().unwrap();
        errors.extend(waits.join().unwrap().err());
    });
    errors
}

fn latch(server: &RedisServer, client: &Client) -> Vec<Error> {
    let latch = client.latch("import");
    let set = latch.try_set(2).err();
    server.cmd(&["SET", "orders:import", "2"]);
    let errors = [
        set,
        latch.wait_for(ms(10)).err(),
        latch.count_down().err(),
        latch.count_down().err(),
        latch.count().err(),
        latch.delete().err(),
    ];
    errors.into_iter().flatten().collect()
}

fn permits<S: Permitting>(server: &RedisServer, client: &Client) -> Vec<Error> {
    let semaphore = S::of(client, "mail");
    let set = semaphore.try_set(2).err();
    server.cmd(&["SET", "orders:mail", "2"]);
    // A dead owner whose permits have to be cleaned up.
    let owners = &S::owners("orders:mail");
    server.cmd(&["ZADD", owners, "1", S::DEAD]);
    let acquired = semaphore.try_acquire(1);
    if acquired.is_err() {
        // The number of permits is unchanged.
        let left = server.int(&["ZCARD", owners]) + server.int(&["GET", "orders:mail"]);
        assert_eq!(left, 3, "{acquired:?}");
    }
    let released = match acquired {
        Ok(taken) => taken.unwrap().release().err(),
        Err(error) => Some(error),
    };
    server.cmd(&["DEL", owners]);
    server.cmd(&["SET", "orders:mail", "2"]);
    let errors = [
        set,
        released,
        semaphore.add_permits(1).err(),
        semaphore.available().err(),
        semaphore.delete().err(),
    ];
    errors.into_iter().flatten().collect()
}

fn looks(server: &RedisServer, client: &Client) -> Vec<Error> {
    let whole = whole(server);
    whole.lock("plain").lock().unwrap();
    whole.token_lock("token").lock().unwrap();
    whole.read_write_lock("sides").read().lock().unwrap();
    // More readers than one script call reads.
    for reader in 0..100 {
        let field = format!("9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:{reader}");
        server.cmd(&["HSET", "orders:sides", &field, "1"]);
    }
    let locks = client.locks("").with_tokens().with_counters();
    let found: Vec<_> = locks.collect();
    if found.iter().all(Result::is_ok) {
        assert_eq!(found.len(), 3, "{found:?}");
    }
    let mut errors: Vec<_> = found.into_iter().filter_map(Result::err).collect();
    errors.extend(client.lock("plain").describe().err());
    errors
}
