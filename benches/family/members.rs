//! One thread's handle of a lock, semaphore or latch.

use redlatch::{Client, Lock, PermitSemaphore, Permits, Semaphore};

/// The handle of one thread; `writes` matters only for read-write locks.
pub(crate) trait Member: Send {
    fn enter(&mut self, writes: bool);
    fn leave(&mut self, writes: bool);
}

/// The calls for a kind of lock that `Way.java` supports too.
pub(crate) fn member(client: &Client, kind: &str, name: &str) -> Box<dyn Member> {
    match kind {
        "plain" => Box::new(client.lock(name)),
        "fair" => Box::new(client.fair_lock(name)),
        "spin" => Box::new(client.spin_lock(name)),
        "fenced" => Box::new(client.fenced_lock(name)),
        "read" => Box::new(client.read_write_lock(name).read()),
        "write" => Box::new(client.read_write_lock(name).write()),
        "mixed" => {
            let lock = client.read_write_lock(name);
            Box::new(Mixed(lock.read(), lock.write()))
        }
        "mixed, readers preferred" => {
            let lock = client.read_write_lock(name).prefer_readers();
            Box::new(Mixed(lock.read(), lock.write()))
        }
        "semaphore" => Box::new(Taking(client.semaphore(name), None)),
        "permits" => Box::new(Taking(client.permit_semaphore(name), None)),
        other => panic!("no such kind: {other}"),
    }
}

impl Member for Lock {
    fn enter(&mut self, _: bool) {
        self.lock().expect("the lock comes");
    }

    fn leave(&mut self, _: bool) {
        self.unlock().expect("the lock is held");
    }
}

struct Mixed(Lock, Lock);

impl Member for Mixed {
    fn enter(&mut self, writes: bool) {
        let Mixed(read, write) = self;
        if writes { write } else { read }.enter(writes);
    }

    fn leave(&mut self, writes: bool) {
        let Mixed(read, write) = self;
        if writes { write } else { read }.leave(writes);
    }
}

/// One permit and its semaphore.
struct Taking<S>(S, Option<Permits>);

trait Gives: Send {
    fn give(&self) -> redlatch::Result<Permits>;
}

impl Gives for Semaphore {
    fn give(&self) -> redlatch::Result<Permits> {
        self.acquire(1)
    }
}

impl Gives for PermitSemaphore {
    fn give(&self) -> redlatch::Result<Permits> {
        self.acquire(1)
    }
}

impl<S: Gives> Member for Taking<S> {
    fn enter(&mut self, _: bool) {
        self.1 = Some(self.0.give().expect("a permit comes"));
    }

    fn leave(&mut self, _: bool) {
        let permits = self.1.take().expect("a permit was taken");
        permits.release().expect("it is held");
    }
}
