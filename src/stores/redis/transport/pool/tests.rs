//! The connections of one client, at a server that answers as told.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod words;

use std::time::Duration;

use super::*;
use crate::stores::redis::tests::stub::{Request, Route, Says, StubServer};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn new_pool(connector: Arc<dyn Connector>, size: u32) -> Pool {
    let idle_timeout = IdleTimeout::new(Duration::from_secs(300));
    let idle = (&idle_timeout, Duration::from_secs(30));
    Pool::new(connector, ConnectionLimit::new(size), idle, false)
}

/// A pool of so many connections to a server.
struct Scene {
    _server: StubServer,
    route: Arc<Route>,
    pool: Pool,
}

impl Scene {
    fn of(size: u32, answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> Scene {
        let server = StubServer::start(answers);
        let route = Route::to(&server);
        let connector: Arc<dyn Connector> = Arc::<Route>::clone(&route);
        let pool = new_pool(connector, size);
        Scene {
            _server: server,
            route,
            pool,
        }
    }

    fn plain() -> Scene {
        Scene::of(8, |_| None)
    }

    fn connection(&self) -> Connection {
        self.route.connect(soon()).unwrap()
    }

    /// Has a connection lie idle.
    fn keep(&self) {
        self.pool.keep(self.connection());
    }

    fn fails(&self, fault: CallError) {
        let connection = self.connection();
        self.pool.give_back(connection, &Err(fault));
    }
}

fn no_reply(timed_out: bool) -> CallError {
    CallError::NoReply {
        reason: "lost".into(),
        timed_out,
    }
}

fn faults() -> [CallError; 7] {
    [
        CallError::NotSent("cut".into()),
        no_reply(true),
        no_reply(false),
        CallError::Untrusted("whose".into()),
        CallError::Exhausted(1),
        CallError::NoVote("none".into()),
        CallError::Server("ERR no".into()),
    ]
}

/// A connection on which more was said than was asked for.
fn with_unread(scene: &Scene) -> Connection {
    let mut connection = scene.connection();
    assert_eq!(connection.call(PING, soon()), Ok(Value::Int(1)));
    assert!(connection.has_unread());
    connection
}

fn talkative() -> Scene {
    let twice = Says::bytes(":1\r\n:2\r\n");
    Scene::of(8, move |request| request.is("PING").then(|| twice.clone()))
}

#[test]
fn a_connection_on_which_something_came_unasked_is_neither_kept_nor_lent() {
    let scene = talkative();
    scene.pool.keep(with_unread(&scene));
    assert_eq!(scene.pool.idle(), 0);
    scene.pool.idle.lock().push(with_unread(&scene));
    assert!(scene.pool.take(soon()).is_none());
}

#[test]
fn a_call_without_a_permit_in_time_says_of_how_many() {
    let scene = Scene::of(1, |_| None);
    let outcome = scene.pool.with(soon(), |_| {
        let inner = scene.pool.with(Instant::now(), |_| Ok(()));
        assert_eq!(inner, Err(CallError::Exhausted(1)));
        let none = scene.pool.check_out(None, |_| true);
        assert!(matches!(none, Err(NoPermit { of: 1 })));
        Ok(7)
    });
    assert_eq!(outcome, Ok(7));
}

#[test]
fn a_connection_is_used_again_after_an_answer_and_not_after_a_fault() {
    for fault in faults() {
        let scene = Scene::plain();
        let is_sound = matches!(fault, CallError::Server(_) | CallError::NoVote(_));
        let outcome: Result<(), _> = scene.pool.with(soon(), |_| Err(fault.clone()));
        assert_eq!(outcome, Err(fault.clone()));
        assert_eq!(scene.pool.idle(), usize::from(is_sound), "{fault:?}");
        let scene = Scene::plain();
        scene.fails(fault.clone());
        assert_eq!(scene.pool.idle(), usize::from(is_sound), "{fault:?}");
    }
    let scene = Scene::plain();
    assert_eq!(scene.pool.with(soon(), |_| Ok(3)), Ok(3));
    assert_eq!(scene.pool.idle(), 1);
    let spent = scene.pool.with(soon(), |connection| {
        connection.is_spent = true;
        Ok(())
    });
    assert_eq!((spent, scene.pool.idle()), (Ok(()), 0));
    scene.pool.give_back(scene.connection(), &Ok(Value::Nil));
    assert_eq!(scene.pool.idle(), 1);
}

#[test]
fn a_server_that_takes_no_writes_is_in_doubt_and_its_connection_closed() {
    let readonly = || CallError::Server("READONLY it is a replica".into());
    let scene = Scene::plain();
    let suspected = || scene.route.suspected().len();
    let outcome: Result<(), _> = scene.pool.with(soon(), |_| Err(readonly()));
    assert_eq!(outcome, Err(readonly()));
    assert_eq!((suspected(), scene.pool.idle()), (1, 0));
    scene.fails(readonly());
    assert_eq!((suspected(), scene.pool.idle()), (2, 0));
    for fault in faults() {
        scene.fails(fault);
    }
    assert_eq!(suspected(), 2);
}

/// How often a call runs that is never sent, on a kept connection or a fresh one.
fn tries_of_what_is_never_sent(is_kept: bool) -> u32 {
    let scene = Scene::plain();
    if is_kept {
        scene.keep();
    }
    let mut tries = 0;
    let outcome: Result<(), _> = scene.pool.with(soon(), |_| {
        tries += 1;
        Err(CallError::NotSent("cut".into()))
    });
    assert!(matches!(outcome, Err(CallError::NotSent(_))));
    assert_eq!(scene.pool.idle(), 0);
    tries
}

#[test]
fn what_was_not_sent_on_a_kept_connection_is_sent_on_a_new_one() {
    assert_eq!(tries_of_what_is_never_sent(true), 2);
    assert_eq!(tries_of_what_is_never_sent(false), 1);
    let scene = Scene::plain();
    scene.keep();
    let mut tries = 0;
    let outcome: Result<(), _> = scene.pool.with(soon(), |_| {
        tries += 1;
        Err(no_reply(false))
    });
    // It may have been executed.
    assert_eq!((outcome, tries), (Err(no_reply(false)), 1));
}
