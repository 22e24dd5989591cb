//! A waiter that was handed a hold too late, and stands at the end of the queue again.

use super::*;

#[test]
fn the_message_behind_it_is_for_the_one_who_is_first_now() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = Client::open(&proxy.url()).unwrap();
    let lock = client.lock("orders");
    let theirs = Client::open(&server.url()).unwrap().lock("orders");
    lock.run(|_| ()).unwrap();
    teach_one(&server, TRANSFER);
    let guard = lock.guard().unwrap();
    thread::scope(|scope| {
        let short = lock.with_lease_time(ms(40));
        scope.spawn(move || {
            if short.try_lock_for(SLACK).unwrap() {
                // Its lease may have ended.
                let _ = short.unlock();
            }
        });
        until_queued(&lock, 1);
        thread::sleep(ms(100));
        let waiter = scope.spawn(|| {
            lock.lock().unwrap();
            let at = Instant::now();
            lock.unlock().unwrap();
            at
        });
        until_queued(&lock, 2);
        thread::sleep(ms(100));
        let of_hand_off = sha(TRANSFER);
        let late = Fault::DelayReply(ms(150));
        proxy.next(1, Some(of_hand_off.as_bytes()), late);
        let taker = scope.spawn(|| {
            while !theirs.try_lock().unwrap() {
                thread::sleep(ms(1));
            }
            thread::sleep(ms(500));
            let freed = Instant::now();
            theirs.unlock().unwrap();
            freed
        });
        guard.unlock().unwrap();
        let (freed, granted) = (taker.join().unwrap(), waiter.join().unwrap());
        let slept = granted.saturating_duration_since(freed);
        assert!(slept < ms(400), "{slept:?} on a free lock");
    });
}
