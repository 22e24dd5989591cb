//! A pair of lock and unlock, of a lock that draws fencing tokens and of a plain one.

use redlatch::{Client, Lock};

use crate::support::RedisServer;
use crate::{Compared, by_turns};

pub(crate) fn measure(server: &RedisServer) -> Compared {
    let client = Client::open(&server.url()).expect("a client");
    let (fenced, plain) = (client.fenced_lock("fenced"), client.lock("plain"));
    by_turns("fenced_vs_plain", || pair(&fenced), || pair(&plain))
}

fn pair(lock: &Lock) {
    lock.lock().expect("the lock is free");
    lock.unlock().expect("it is held");
}
