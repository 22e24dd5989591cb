//! The connections of one client, at a server that answers as told.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod late;
mod line;
mod room;
mod words;

use std::time::Duration;

use super::*;
use crate::stores::redis::tests::stub::{Request, Says, StubServer};
use crate::stores::redis::transport::TlsConfig;
use crate::stores::redis::transport::address::Address;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A way to a server, whose generation a test raises, and which counts the doubts about it.
struct Way {
    address: Address,
    generation: AtomicU64,
    suspected: AtomicU64,
    /// Why it makes no connection, if it does not.
    fault: Mutex<Option<CallError>>,
    /// How often it was asked for one, and how long it takes to make one.
    tries: AtomicU64,
    takes: Mutex<Duration>,
    /// Until when the last one was to be made.
    by: Mutex<Option<Instant>>,
}

impl Connector for Way {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        *self.by.lock() = Some(deadline);
        if let Some(fault) = self.fault.lock().clone() {
            return Err(fault);
        }
        std::thread::sleep(*self.takes.lock());
        let mut connection = Connection::connect(&self.address, deadline)?;
        connection.generation = self.generation();
        Ok(connection)
    }

    fn node(&self) -> Arc<str> {
        Arc::clone(&self.address.node)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn suspect(&self, generation: u64) {
        self.suspected.fetch_add(1 + generation, Ordering::Relaxed);
    }
}

fn new_pool(connector: Arc<dyn Connector>, size: u32, is_sharded: bool) -> Pool {
    let idle_timeout = IdleTimeout::new(Duration::from_secs(300));
    let idle = (&idle_timeout, Duration::from_secs(30));
    Pool::new(connector, ConnectionLimit::new(size), idle, is_sharded)
}

/// A pool of so many connections to a server.
struct Scene {
    server: StubServer,
    way: Arc<Way>,
    pool: Pool,
}

impl Scene {
    fn of(size: u32, answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> Scene {
        let server = StubServer::start(answers);
        let timeout = Duration::from_secs(20);
        let address = Address::parse(&server.url(), timeout, &TlsConfig::default()).unwrap();
        let way = Arc::new(Way {
            address,
            generation: AtomicU64::new(0),
            suspected: AtomicU64::new(0),
            fault: Mutex::default(),
            tries: AtomicU64::new(0),
            takes: Mutex::default(),
            by: Mutex::default(),
        });
        let connector: Arc<dyn Connector> = Arc::<Way>::clone(&way);
        let pool = new_pool(connector, size, false);
        Scene { server, way, pool }
    }

    fn plain() -> Scene {
        Scene::of(8, |_| None)
    }

    fn connection(&self) -> Connection {
        self.way.connect(soon()).unwrap()
    }

    /// Keeps so many connections, of which the last one is marked if `marks` says so.
    fn keep(&self, marks: &[bool]) {
        for is_marked in marks {
            let mut connection = self.connection();
            connection.needs_text = *is_marked;
            self.pool.keep(connection);
        }
    }

    /// Has the server close a connection that lies idle, and waits until that is seen here.
    fn cut(&self) {
        self.server.cut_all();
        let patience = soon();
        while !self.pool.idle.lock().iter().all(Connection::is_reset) {
            assert!(Instant::now() < patience, "it was cut");
        }
    }

    fn fails(&self, fault: CallError) {
        let connection = self.connection();
        self.pool.give_back(connection, &Err(fault));
    }
}

fn is_marked(connection: &Connection) -> bool {
    connection.needs_text
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

#[test]
fn what_was_found_out_about_a_node_stays_known() {
    let scene = Scene::plain();
    assert!(!scene.pool.is_sharded() && !scene.pool.uses_text());
    scene.pool.note_evalsha(false);
    assert!(scene.pool.uses_text());
    assert_eq!(scene.pool.connector().node(), scene.way.node());
    let connector: Arc<dyn Connector> = Arc::<Way>::clone(&scene.way);
    assert!(new_pool(connector, 1, true).is_sharded());
}

#[test]
fn the_connection_used_last_is_lent_or_rather_one_that_is_right() {
    let scene = Scene::plain();
    assert!(scene.pool.take(soon()).is_none() && scene.pool.take_rather(is_marked, None).is_none());
    scene.keep(&[false, true, false]);
    assert_eq!(scene.pool.idle(), 3);
    let right = scene.pool.take_rather(is_marked, None).unwrap();
    assert!(right.needs_text);
    assert_eq!(scene.pool.idle(), 2);
    // None of the others is, and so one of them is taken.
    assert!(!scene.pool.take_rather(is_marked, None).unwrap().needs_text);
    scene.pool.keep(right);
    assert!(scene.pool.take(soon()).unwrap().needs_text);
    assert_eq!(scene.pool.idle(), 1);
}

#[test]
fn a_connection_that_was_cut_is_lent_until_one_of_them_was_found_so() {
    let scene = Scene::plain();
    scene.keep(&[false, false]);
    scene.cut();
    // To look at each costs a call of the system.
    assert!(scene.pool.take(soon()).is_some());
    scene.fails(CallError::NotSent("cut".into()));
    assert!(scene.pool.take(soon()).is_none());
    assert_eq!(scene.pool.idle(), 0);
}

#[test]
fn a_connection_that_is_well_is_lent_although_another_one_was_cut() {
    let scene = Scene::plain();
    scene.keep(&[true]);
    scene.fails(no_reply(false));
    assert!(scene.pool.take(soon()).is_some_and(|it| it.needs_text));
}

#[test]
fn only_a_connection_that_broke_has_the_others_looked_at() {
    for fault in faults() {
        let scene = Scene::plain();
        scene.keep(&[false]);
        let breaks = matches!(
            fault,
            CallError::NotSent(_)
                | CallError::NoReply {
                    timed_out: false,
                    ..
                }
        );
        scene.pool.note_reset::<()>(&Err(fault.clone()));
        scene.cut();
        assert_eq!(scene.pool.take(soon()).is_none(), breaks, "{fault:?}");
    }
}

#[test]
fn a_connection_to_the_master_before_is_not_lent() {
    let scene = Scene::plain();
    scene.keep(&[false, false]);
    scene.way.generation.store(1, Ordering::Relaxed);
    assert!(scene.pool.take(soon()).is_none());
    scene.keep(&[true]);
    assert!(scene.pool.take(soon()).is_some_and(|it| it.needs_text));
}

#[test]
fn a_connection_behind_whose_last_error_it_ended_is_not_lent() {
    let refuses = Box::new(Says::Error("ERR no".into()));
    let scene = Scene::of(8, move |request| {
        let both = Says::Both(refuses.clone(), Box::new(Says::Cut));
        request.is("PING").then_some(both)
    });
    let mut connection = scene.connection();
    let refused = connection.call(PING, soon());
    assert!(matches!(refused, Err(CallError::Server(_))), "{refused:?}");
    while !connection.is_reset() {}
    scene.pool.keep(connection);
    assert_eq!(scene.pool.idle(), 1);
    assert!(scene.pool.take(soon()).is_none());
}

/// A connection on which more was said than was asked for.
fn with_unread(scene: &Scene) -> Connection {
    let mut connection = scene.connection();
    assert_eq!(connection.call(PING, soon()), Ok(Value::Int(1)));
    assert!(connection.has_unread());
    connection
}

fn talkative() -> Scene {
    let twice = Says::Bytes(b":1\r\n:2\r\n".to_vec());
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
fn a_connection_is_kept_unless_it_is_spent_or_its_client_is_closed() {
    let scene = Scene::plain();
    let mut spent = scene.connection();
    spent.is_spent = true;
    scene.pool.keep(spent);
    assert_eq!(scene.pool.idle(), 0);
    let fresh = scene.connection();
    assert!(fresh.is_new);
    scene.pool.keep(fresh);
    let mut kept = scene.pool.take(soon()).unwrap();
    assert!(!kept.is_new);
    kept.resets_seen = 99;
    scene.pool.keep(kept);
    assert_eq!(scene.pool.take(soon()).unwrap().resets_seen, 0);
    scene.pool.close();
    scene.keep(&[false]);
    assert_eq!(scene.pool.idle(), 0);
}

#[test]
fn a_pool_with_idle_connections_says_so_once_those_that_were_cut_are_closed() {
    let scene = Scene::plain();
    assert!(!scene.pool.has_idle());
    scene.keep(&[false, false]);
    assert!(scene.pool.has_idle());
    assert_eq!(scene.pool.idle(), 2);
    scene.cut();
    scene.keep(&[true]);
    assert!(scene.pool.has_idle());
    assert_eq!(scene.pool.idle(), 1);
    scene.cut();
    assert!(!scene.pool.has_idle());
}

#[test]
fn a_closed_pool_keeps_nothing_unless_a_quorum_needs_it() {
    let scene = Scene::plain();
    scene.keep(&[false]);
    scene.pool.serve_a_quorum();
    assert!(scene.pool.keeps());
    scene.pool.close();
    assert!(!scene.pool.keeps(), "the quorum has to say so again");
    assert_eq!(scene.pool.idle(), 0);
    scene.pool.serve_a_quorum();
    assert!(scene.pool.keeps());
    scene.keep(&[false]);
    assert_eq!(scene.pool.idle(), 1);
    assert!(Scene::plain().pool.keeps());
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
    scene.way.generation.store(4, Ordering::Relaxed);
    let suspected = || scene.way.suspected.load(Ordering::Relaxed);
    let outcome: Result<(), _> = scene.pool.with(soon(), |_| Err(readonly()));
    assert_eq!(outcome, Err(readonly()));
    assert_eq!((suspected(), scene.pool.idle()), (5, 0));
    scene.fails(readonly());
    assert_eq!((suspected(), scene.pool.idle()), (10, 0));
    for fault in faults() {
        scene.fails(fault);
    }
    assert_eq!(suspected(), 10);
}

/// How often a call runs that is never sent, on a kept connection or a fresh one.
fn tries_of_what_is_never_sent(is_kept: bool) -> u32 {
    let scene = Scene::plain();
    if is_kept {
        scene.keep(&[false]);
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
    scene.keep(&[false]);
    let mut tries = 0;
    let outcome: Result<(), _> = scene.pool.with(soon(), |_| {
        tries += 1;
        Err(no_reply(false))
    });
    // It may have been executed.
    assert_eq!((outcome, tries), (Err(no_reply(false)), 1));
}
