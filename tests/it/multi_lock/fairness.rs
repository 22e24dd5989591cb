//! Threads of the same client that use one member alone.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn constant_users_of_one_member_do_not_starve_a_multi_lock() {
    let server = RedisServer::start();
    for client in [client(&server), Client::in_memory()] {
        let (a, b) = (client.lock("a"), client.lock("b"));
        let both = MultiLock::of([&a, &b]).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        b.run(|_| thread::sleep(ms(10))).unwrap();
                    }
                });
            }
            thread::sleep(ms(200));
            let got = both.try_lock_for(ms(10_000)).unwrap();
            is_over.store(true, Ordering::SeqCst);
            assert!(got, "they hand it to one another for ever");
            both.unlock().unwrap();
        });
    }
}
