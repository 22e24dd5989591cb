#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod words;

use std::thread;

use redis::Value;

use super::*;
use crate::stores::redis::tests::stub::{Request, Route, Says, StubServer, soon, within};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

struct Scene {
    server: StubServer,
    route: Arc<Route>,
    pool: Pool,
}

impl Scene {
    fn of(size: u32, answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> Scene {
        let server = StubServer::start(answers);
        let route = Route::to(&server);
        let connector: Arc<dyn Connector> = Arc::<Route>::clone(&route);
        let settings = PoolSettings::default();
        let pool = Pool::new(connector, size, (&settings, Duration::from_secs(30)), false);
        Scene {
            server,
            route,
            pool,
        }
    }

    fn plain() -> Scene {
        Scene::of(8, |_| None)
    }

    fn ping(&self) -> Result<Value, CallError> {
        self.pool
            .with(soon(), |connection| connection.call(PING, soon()))
    }

    /// Makes a call on an idle connection fail with `fault`, and returns how often the call was made.
    fn ends(&self, fault: &CallError) -> u32 {
        self.ping().unwrap();
        let mut tries = 0;
        let outcome: Result<(), _> = self.pool.with(soon(), |_| {
            tries += 1;
            Err(fault.clone())
        });
        assert_eq!(outcome, Err(fault.clone()));
        tries
    }
}

fn no_reply(timed_out: bool) -> CallError {
    CallError::NoReply {
        reason: "lost".into(),
        timed_out,
    }
}

#[test]
fn a_hundred_threads_share_four_connections() {
    let scene = Scene::of(4, |_| None);
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| (0..50).for_each(|_| assert!(scene.ping().is_ok())));
        }
    });
    assert!(scene.server.connected() <= 4);
    assert!((1..=4).contains(&scene.pool.slots.idle()));
}

#[test]
fn an_exhausted_pool_reports_its_size() {
    let scene = Scene::of(1, |_| None);
    let outcome = scene.pool.with(soon(), |_| {
        let inner = scene.pool.with(within(50), |_| Ok(()));
        assert_eq!(inner, Err(CallError::Exhausted(1)));
        let none = scene.pool.borrow_ready();
        assert!(matches!(none, Err(NotReady::Busy(1))));
        Ok(7)
    });
    assert_eq!(outcome, Ok(7));
}

#[test]
fn connections_are_reused_after_replies_not_failures() {
    for (fault, is_kept) in [
        (no_reply(true), false),
        (no_reply(false), false),
        (CallError::Untrusted("whose".into()), false),
        (CallError::Exhausted(1), false),
        (CallError::Unfit("none".into()), true),
        (CallError::Server("ERR no".into()), true),
        (CallError::Server("READONLY it is a replica".into()), false),
    ] {
        let scene = Scene::plain();
        // A request that may have been executed is not retried.
        assert_eq!(scene.ends(&fault), 1);
        scene.ping().unwrap();
        assert_eq!(scene.server.connected() == 1, is_kept, "{fault:?}");
        let is_doubtful = fault.is_not_master();
        let generation = scene.route.known_master.generation();
        assert_eq!(generation, u64::from(is_doubtful));
    }
}

#[test]
fn unsent_requests_are_retried_on_a_new_connection() {
    let scene = Scene::plain();
    assert_eq!(scene.ends(&CallError::NotSent("cut".into())), 2);
    assert_eq!(scene.server.connected(), 2);
}

#[test]
fn connections_with_unsolicited_replies_are_closed() {
    let twice = Says::bytes(b":1\r\n:2\r\n");
    let scene = Scene::of(8, move |request| request.is("PING").then(|| twice.clone()));
    assert_eq!(scene.ping(), Ok(Value::Int(1)));
    assert_eq!(scene.ping(), Ok(Value::Int(1)));
    assert_eq!(scene.server.connected(), 2);
}

#[test]
fn connections_closed_by_the_server_are_replaced() {
    let mut is_first = true;
    let scene = Scene::of(8, move |request| {
        let says = Says::bytes(b"+PONG\r\n");
        let closes = request.is("PING") && std::mem::take(&mut is_first);
        closes.then(|| says.then(Says::cut()))
    });
    scene.ping().unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(scene.ping().is_ok());
    assert_eq!(scene.server.connected(), 2);
}

#[test]
fn deferred_replies_are_read_by_the_next_user() {
    let scene = Scene::plain();
    scene.ping().unwrap();
    let leave = |until| {
        let Ok(mut borrowed) = scene.pool.borrow_ready() else {
            panic!("it is connected");
        };
        borrowed.connection.send(PING, soon()).unwrap();
        borrowed.connection.defer_reply(None, until);
        scene.pool.give_back(borrowed, &Ok(()));
    };
    leave(soon());
    leave(soon());
    assert_eq!(scene.ping(), Ok(Value::SimpleString("PONG".into())));
    assert_eq!(scene.server.connected(), 1);
    // A connection with an overdue reply is closed.
    scene.server.answer(|_| Some(Says::nothing()));
    leave(Instant::now());
    assert!(matches!(
        scene.pool.borrow_ready(),
        Err(NotReady::NotConnected)
    ));
}

#[test]
fn a_closed_pool_keeps_connections_only_for_a_quorum() {
    let scene = Scene::plain();
    let outcome = scene.pool.with(soon(), |_| {
        scene.pool.slots.close();
        Ok(())
    });
    assert_eq!((outcome, scene.pool.slots.idle()), (Ok(()), 0));
    scene.ping().unwrap();
    scene.ping().unwrap();
    assert_eq!(scene.server.connected(), 3);
    scene.pool.slots.reopen();
    scene.ping().unwrap();
    scene.ping().unwrap();
    assert_eq!(scene.server.connected(), 4);
}

fn return_two_with_deferred_replies(scene: &Scene) {
    let two = [(); 2].map(|()| scene.pool.borrow(soon()).unwrap());
    for mut borrowed in two {
        borrowed.connection.send(PING, soon()).unwrap();
        borrowed.connection.defer_reply(None, soon());
        scene.pool.give_back(borrowed, &Ok(()));
    }
}

#[test]
fn without_new_connections_idle_ones_are_used() {
    const ECHO: &[u8] = b"*2\r\n$4\r\nECHO\r\n$2\r\nme\r\n";
    let scene = Scene::plain();
    return_two_with_deferred_replies(&scene);
    scene.route.block();
    // The failed call leaves one slot empty.
    let _: Result<(), _> = scene.pool.with(soon(), |_| Err(no_reply(false)));
    let said = scene
        .pool
        .with(soon(), |connection| connection.call(ECHO, soon()));
    assert_eq!(said, Ok(Value::BulkString(b"me".to_vec())));
}

#[test]
fn connections_to_the_former_master_are_never_used() {
    let scene = Scene::plain();
    return_two_with_deferred_replies(&scene);
    scene.route.lead_elsewhere();
    let mut calls = 0;
    let outcome = scene.pool.with(soon(), |_| {
        calls += 1;
        Ok(())
    });
    assert!(matches!(outcome, Err(CallError::NotSent(_))));
    assert_eq!(calls, 0);
}

#[test]
fn connections_closed_after_a_deferred_reply_are_replaced() {
    let mut is_first = true;
    let scene = Scene::of(8, move |request| {
        let closes = request.is("PING") && std::mem::take(&mut is_first);
        closes.then(|| Says::bytes(b"+PONG\r\n").then(Says::cut()))
    });
    let mut borrowed = scene.pool.borrow(soon()).unwrap();
    borrowed.connection.send(PING, soon()).unwrap();
    borrowed.connection.defer_reply(None, soon());
    scene.pool.give_back(borrowed, &Ok(()));
    thread::sleep(Duration::from_millis(50));
    assert_eq!(scene.ping(), Ok(Value::SimpleString("PONG".into())));
    assert_eq!(scene.server.connected(), 2);
}

#[test]
fn the_first_call_gets_a_slot_at_once() {
    let connector: Arc<dyn Connector> = Scene::plain().route;
    let settings = PoolSettings::default();
    for _ in 0..500 {
        let kept = (&settings, Duration::from_secs(30));
        let pool = Pool::new(Arc::clone(&connector), 1, kept, false);
        let none = pool.borrow_ready();
        assert!(matches!(none, Err(NotReady::NotConnected)));
    }
}

#[test]
fn many_first_calls_connect_within_their_time() {
    for _ in 0..2 {
        let scene = Scene::of(2, |_| None);
        let begin = std::sync::Barrier::new(24);
        let call = || {
            begin.wait();
            let begun = Instant::now();
            let outcome = scene.pool.with(within(100), |_| {
                thread::sleep(Duration::from_millis(2500));
                Ok(())
            });
            (outcome, begun.elapsed())
        };
        thread::scope(|scope| {
            let calls: Vec<_> = (0..24).map(|_| scope.spawn(call)).collect();
            for call in calls {
                let (outcome, took) = call.join().unwrap();
                let is_late = took > Duration::from_millis(1500);
                assert!(outcome.is_ok() || !is_late, "{outcome:?} after {took:?}");
            }
        });
    }
}

#[test]
fn refusals_of_other_products_are_recognised() {
    for text in [
        "ERR unknown command 'EVAL', with args beginning with: ",
        "ERR unknown command `eval`, with args beginning with: ",
        "unsupported command 'eval'",
        "NOPERM User app has no permissions to run the 'eval' command",
        "ERR This instance has Lua scripting support disabled",
    ] {
        assert!(lacks_eval(text), "{text}");
    }
    for text in [
        "ERR unknown command 'TIME', with args beginning with: ",
        "ERR wrong number of arguments for 'eval' command",
        "NOSCRIPT No matching script. Please use EVAL.",
    ] {
        assert!(!lacks_eval(text), "{text}");
    }
}
