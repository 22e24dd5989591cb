//! A fair lock whose requests and messages are lost, doubled and late.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use redlatch::{Client, Lock};

use super::queue::Scene;
use crate::invariants::{
    Class, FAIR_ACQUIRE, FAIR_RELEASE, FAIR_WITHDRAW, SLACK, fails, quick, sha,
};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Proxy, elsewhere, eventually, ms, timed};

/// A process behind a proxy.
struct Far {
    _client: Client,
    lock: Lock,
    proxy: Proxy,
}

impl Far {
    fn new(scene: &Scene) -> Far {
        let proxy = Proxy::to(scene.server.addr());
        let client = quick().open(&proxy.url()).unwrap();
        Far {
            lock: client.fair_lock("tickets"),
            _client: client,
            proxy,
        }
    }

    fn next(&self, times: usize, script: &str, fault: Fault) -> Rule {
        self.proxy.next(times, Some(sha(script).as_bytes()), fault)
    }
}

const LOST: [Fault; 4] = [
    Fault::SwallowReply(End::Reset),
    Fault::SwallowReply(End::Silent),
    Fault::SwallowRequest(End::Reset),
    Fault::DuplicateRequest,
];

#[test]
fn copies_and_lost_requests_leave_no_hold_and_no_place() {
    let scene = Scene::new();
    let far = Far::new(&scene);
    for fault in LOST {
        let rule = far.next(1, FAIR_ACQUIRE, fault);
        assert!(far.lock.try_lock_for(Duration::from_secs(20)).unwrap());
        assert_eq!(rule.hits(), 1, "{fault:?}");
        assert!(far.lock.is_valid());
        assert_eq!(far.lock.hold_count().unwrap(), 1);
        let rule = far.next(1, FAIR_RELEASE, fault);
        far.lock.unlock().unwrap();
        assert_eq!(rule.hits(), 1, "{fault:?}");
        scene.all_goes();
    }
}

#[test]
fn a_wait_has_one_place_whatever_becomes_of_its_requests() {
    let scene = Scene::new();
    let far = Far::new(&scene);
    let (_client, held) = scene.process();
    for fault in LOST {
        held.lock().unwrap();
        let rule = far.next(1, FAIR_ACQUIRE, fault);
        thread::scope(|scope| {
            let waits = scope.spawn(|| far.lock.run(|_| ()).unwrap());
            eventually(SLACK, "it waits", || {
                rule.hits() == 1 && scene.waiting().len() == 1
            });
            thread::sleep(ms(1500));
            assert_eq!(scene.waiting().len(), 1, "{fault:?}");
            held.unlock().unwrap();
            waits.join().unwrap();
        });
        scene.all_goes();
    }
}

#[test]
fn a_request_without_any_answer_is_unknown_and_is_undone() {
    let scene = Scene::new();
    let far = Far::new(&scene);
    let silent = Fault::SwallowReply(End::Silent);
    far.next(usize::MAX, FAIR_ACQUIRE, silent);
    fails(far.lock.try_lock(), Class::Unknown);
    far.proxy.heal();
    scene.all_goes();
    far.lock.lock().unwrap();
    far.next(usize::MAX, FAIR_RELEASE, silent);
    fails(far.lock.unlock(), Class::Unknown);
    far.proxy.heal();
    scene.all_goes();
}

#[test]
fn a_late_request_of_a_wait_that_is_over_leaves_nothing() {
    let scene = Scene::new();
    let far = Far::new(&scene);
    let (_client, held) = scene.process();
    // It would queue, and it would take the lock.
    for is_held in [true, false] {
        if is_held {
            held.lock().unwrap();
        }
        let late = far.next(1, FAIR_ACQUIRE, Fault::Hold);
        let taken = elsewhere(|| far.lock.try_lock_for(ms(100)));
        assert!(!taken.is_ok_and(|taken| taken));
        assert_eq!(late.hits(), 1);
        late.release();
        eventually(ms(5000), "it has no place", || scene.waiting().is_empty());
        if is_held {
            assert!(held.is_valid() && held.is_held_by_current_thread().unwrap());
            held.unlock().unwrap();
        }
        scene.all_goes();
    }
}

#[test]
fn a_removal_that_is_lost_or_late_takes_nobody_elses_place() {
    let scene = Scene::new();
    let far = Far::new(&scene);
    let (_client, held) = scene.process();
    for fault in LOST.into_iter().chain([Fault::Hold]) {
        held.lock().unwrap();
        let rule = far.next(1, FAIR_WITHDRAW, fault);
        assert!(!elsewhere(|| far.lock.try_lock_for(ms(300)).unwrap()));
        eventually(SLACK, "it leaves", || rule.hits() == 1);
        thread::scope(|scope| {
            let waits = scope.spawn(|| far.lock.run(|_| ()).unwrap());
            eventually(SLACK, "it waits again", || !scene.waiting().is_empty());
            if let Fault::Hold = fault {
                rule.release();
            }
            eventually(ms(5000), "the first wait is over", || {
                scene.waiting().len() == 1
            });
            thread::sleep(ms(1200));
            assert_eq!(scene.waiting().len(), 1, "{fault:?}: the second one is not");
            held.unlock().unwrap();
            waits.join().unwrap();
        });
        scene.all_goes();
    }
}

#[test]
fn a_wait_that_ends_beside_a_silent_server_leaves_no_entry() {
    let scene = Scene::new();
    let far = Far::new(&scene);
    let (_client, held) = scene.process();
    held.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| far.lock.try_lock_for(ms(1500)));
        eventually(SLACK, "it waits", || scene.waiting().len() == 1);
        far.proxy.mute();
        assert!(!waits.join().unwrap().is_ok_and(|taken| taken));
        far.proxy.heal();
    });
    eventually(ms(9000), "it has left", || scene.waiting().is_empty());
    held.unlock().unwrap();
    scene.all_goes();
}

#[test]
fn a_lost_message_costs_a_second() {
    let scene = Scene::new();
    let far = Far::new(&scene);
    let (_client, held) = scene.process();
    held.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| far.lock.run(|_| ()).unwrap());
        eventually(SLACK, "it waits", || scene.waiting().len() == 1);
        thread::sleep(ms(400));
        far.proxy.next(1, None, Fault::DropPush);
        let (took, ()) = timed(|| {
            held.unlock().unwrap();
            waits.join().unwrap();
        });
        assert!(took < ms(1100) + SLACK, "{took:?}");
    });
    far.proxy.heal();
}

#[test]
fn without_messages_everybody_gets_it_in_order() {
    let scene = Scene::new();
    let processes = [(); 3].map(|()| scene.process());
    let held = &processes[0].1;
    held.lock().unwrap();
    let order = Mutex::new(Vec::new());
    let (took, ()) = timed(|| {
        thread::scope(|scope| {
            let waits: Vec<_> = (0..6)
                .map(|number| {
                    let (lock, order) = (&processes[number % 3].1, &order);
                    let waits = scope.spawn(move || {
                        lock.run(|_| order.lock().unwrap().push(number)).unwrap();
                    });
                    eventually(SLACK, "it waits", || scene.waiting().len() == number + 1);
                    waits
                })
                .collect();
            held.unlock().unwrap();
            while !waits.iter().all(thread::ScopedJoinHandle::is_finished) {
                scene.server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                thread::sleep(ms(100));
            }
        });
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(took < ms(1100) * 7 + SLACK, "{took:?}");
    scene.all_goes();
}

#[test]
fn a_full_server_leaves_nothing_half_done() {
    let scene = Scene::new();
    let [(_one, held), (_two, lock)] = [(); 2].map(|()| scene.process());
    let full = |is_full: bool| {
        let memory = if is_full { "1" } else { "0" };
        scene.server.cmd(&["CONFIG", "SET", "maxmemory", memory]);
    };
    held.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.try_lock_for(ms(20_000)).unwrap());
        eventually(SLACK, "it waits", || scene.waiting().len() == 1);
        full(true);
        fails(elsewhere(|| held.try_lock_for(ms(10))), Class::Unavailable);
        assert_eq!(scene.waiting().len(), 1);
        held.unlock().unwrap();
        thread::sleep(ms(300));
        full(false);
        assert!(waits.join().unwrap());
    });
    assert!(lock.force_unlock().unwrap());
    full(true);
    fails(lock.try_lock(), Class::Unavailable);
    assert_eq!(scene.server.int(&["DBSIZE"]), 0);
    full(false);
}
