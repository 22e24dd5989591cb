//! Queries of an operator, and a forced unlock.

use super::*;

laws! {
    looks {
        inspect_names_the_holder
        a_free_lock_has_no_holder
        a_list_has_each_held_lock
        a_hold_is_ended_by_its_visitor
        a_hold_that_began_later_survives
        an_ended_hold_wakes_a_waiter
    }
}

fn inspect_names_the_holder(backend: &Backend) {
    let source = backend.client();
    let lock = source.lock("orders");
    let guard = lock.guard().unwrap();
    let info = backend.client().lock("orders").describe().unwrap();
    assert_eq!(&*info.name, lock.name());
    let [holder] = &info.holders[..] else {
        panic!("one holder: {info:?}");
    };
    let visitor = guard.visitor().as_str().to_owned();
    if info.kind == redlatch::LockKind::Token {
        let (first, hash) = holder.visitor.split_once('…').unwrap();
        assert!(visitor.starts_with(first), "{holder:?}");
        assert_eq!((first.len(), hash.len()), (4, 8), "{holder:?}");
        assert!(!holder.is_visitor(&format!("{visitor}x")), "{holder:?}");
    } else {
        assert_eq!(holder.visitor, visitor);
        assert_eq!(holder.thread, Some(current_thread_id()));
        assert_eq!((holder.by, holder.count), ("redlatch", 1));
    }
    let left = info.expires.unwrap();
    assert!(
        left > ms(0) && left <= LEASE.max(Duration::from_secs(30)),
        "{left:?}"
    );
    assert!(holder.is_visitor(&visitor), "{holder:?}");
    guard.unlock().unwrap();
}

fn a_free_lock_has_no_holder(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let free = lock.describe().unwrap();
    assert!(
        free.holders.is_empty() && free.expires.is_none(),
        "{free:?}"
    );
    lock.run(|_| ()).unwrap();
    // One node of a quorum may have been too slow to be queried in order.
    eventually(SLACK, "nobody has it", || {
        let free = lock.describe().unwrap();
        free.holders.is_empty() && free.expires.is_none()
    });
}

fn a_list_has_each_held_lock(backend: &Backend) {
    let source = backend.client();
    let names = ["orders:1", "orders:2", "stock:1"];
    let locks = names.map(|name| source.lock(name));
    let guards: Vec<_> = locks.iter().map(|lock| lock.guard().unwrap()).collect();
    let listed = |prefix: &str| {
        let locks = source.locks(prefix).map(|info| info.unwrap());
        let mut names: Vec<_> = locks.map(|info| info.name.to_string()).collect();
        names.sort();
        names
    };
    let [one, two, stock] = [0, 1, 2].map(|at: usize| locks[at].name().to_owned());
    assert_eq!(listed("orders:"), [&*one, &*two]);
    assert_eq!(listed(""), [one, two, stock]);
    assert_eq!(listed("*"), Vec::<String>::new());
    drop(guards);
    // A minority of a quorum may release a moment later.
    eventually(SLACK, "all are free", || listed("").is_empty());
}

fn a_hold_is_ended_by_its_visitor(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let operators = backend.client().lock("orders");
    assert!(!operators.force_unlock_of("somebody:1:1").unwrap());
    assert!(lock.is_locked().unwrap());
    let holder = operators.describe().unwrap().holders[0].visitor.clone();
    assert!(operators.force_unlock_of(&holder).unwrap());
    assert!(!operators.is_locked().unwrap());
    assert!(guard.unlock().unwrap_err().is_lost());
}

fn a_hold_that_began_later_survives(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.guard().unwrap();
    let operators = backend.client().lock("orders");
    let asked = operators.describe().unwrap().holders[0].visitor.clone();
    guard.unlock().unwrap();
    let later = lock.guard().unwrap();
    assert!(!operators.force_unlock_of(&asked).unwrap());
    assert!(later.is_valid() && lock.is_locked().unwrap());
    later.unlock().unwrap();
}

fn an_ended_hold_wakes_a_waiter(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let held = lock.with_lease_time(Duration::from_secs(25));
    let guard = held.guard().unwrap();
    let (waiters, operators) = (
        backend.client().lock("orders"),
        backend.client().lock("orders"),
    );
    thread::scope(|scope| {
        let waits = scope.spawn(|| waiters.try_lock_for(Duration::from_secs(20)).unwrap());
        until_queued(&waiters, 1);
        let holder = operators.describe().unwrap().holders[0].visitor.clone();
        assert!(operators.force_unlock_of(&holder).unwrap());
        assert!(waits.join().unwrap());
    });
    assert!(guard.unlock().unwrap_err().is_lost());
}
