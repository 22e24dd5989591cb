//! A node of a quorum, whose requests go to a server that has a vote.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::stores::redis::tests::stub::voter::{handle, identity, outdate};
use crate::stores::redis::tests::stub::{
    GRANTED, Request, Route, Says, StubServer, bulk, claim, soon, within,
};

struct Scene {
    node: RedisNode,
    handle: NodeHandle,
    claim: Claim,
    route: Arc<Route>,
    server: StubServer,
}

/// A node at a server that says this to scripts, of which each call has its number.
fn scene(mut answers: impl FnMut(u32) -> Option<Says> + Send + 'static) -> Scene {
    let called = AtomicU32::new(0);
    let server = StubServer::start(move |request| match request.is_script() {
        true => answers(called.fetch_add(1, Ordering::Relaxed)),
        false => identity("a", request),
    });
    let route = Route::to(&server);
    Scene {
        node: route.store().as_node().unwrap(),
        handle: handle(),
        claim: claim("lock"),
        route,
        server,
    }
}

impl Scene {
    fn acquire(&self, deadline: Instant) -> Pending<'_, Outcome<Granted, Refusal>> {
        let Scene { claim, handle, .. } = self;
        self.node.send_acquire(claim, false, handle, deadline)
    }

    fn connect(&self) {
        let purpose = Purpose::Vote(&self.claim.visitor);
        let joined = self.node.connect(&self.handle, purpose, soon());
        assert!(matches!(joined, Ok(Ok(()))), "{joined:?}");
    }

    fn asked(&self, words: &str) -> usize {
        let asked = self.server.asked();
        asked.iter().filter(|request| request.is(words)).count()
    }

    fn scripts(&self) -> Vec<Request> {
        let mut asked = self.server.asked();
        asked.retain(Request::is_script);
        asked
    }

    fn lost_until(&self) -> Option<i64> {
        let visitor = Some(&self.claim.visitor);
        self.node.server.pool.lost_until(visitor)
    }
}

fn answer<T>(pending: Pending<'_, T>) -> T {
    let Pending::Sent(sent) = pending else {
        panic!("it was not sent");
    };
    sent.receive(soon()).unwrap().unwrap()
}

fn is_not_connected<T>(pending: &Pending<'_, T>) -> bool {
    matches!(pending, Pending::NotConnected)
}

#[test]
fn a_request_goes_where_a_vote_is_known() {
    let scene = scene(|_| Says::int(GRANTED));
    assert!(is_not_connected(&scene.acquire(soon())));
    scene.connect();
    assert_eq!(scene.server.connected(), 1);
    let outcome = answer(scene.acquire(soon()));
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(scene.asked("INFO server"), 1);
    let scripts = scene.scripts();
    // It is refused by a server with another history.
    assert_eq!(scripts[0].args().last().unwrap(), "history-of-a");
}

#[test]
fn a_server_that_nobody_knows_is_not_asked_who_it_is_by_the_way() {
    let scene = scene(|_| Says::int(GRANTED));
    let pool = &scene.node.server.pool;
    pool.keep(pool.connector().connect(soon()).unwrap());
    assert!(is_not_connected(&scene.acquire(soon())));
    assert_eq!(pool.idle(), 1);
    assert_eq!(scene.server.asked(), []);
}

#[test]
fn a_request_goes_behind_one_of_its_visitor_without_waiting_for_its_answer() {
    let scene = scene(|_| Some(Says::Nothing));
    scene.connect();
    drop(scene.acquire(soon()));
    let late = within(600_000);
    let sent = scene.acquire(late);
    assert!(matches!(sent, Pending::Sent(_)));
    scene.server.until(|_| scene.scripts().len() == 2);
    assert_eq!(
        (scene.server.connected(), scene.asked("INFO server")),
        (1, 1)
    );
    assert!(Instant::now() + Duration::from_secs(500) < late);
}

#[test]
fn a_server_that_was_another_one_meanwhile_is_asked_behind_the_answers_due() {
    let (open, gate) = mpsc::channel::<()>();
    let scene = scene(move |_| {
        let _ = gate.recv();
        Says::int(GRANTED)
    });
    scene.connect();
    drop(scene.acquire(soon()));
    outdate(&scene.handle, "b");
    let sent = thread::scope(|scope| {
        scope.spawn(|| {
            // Then the answer is waited for.
            let pool = &scene.node.server.pool;
            scene.server.until(|_| pool.late() == 0);
            let _ = open.send(());
        });
        scene.acquire(soon())
    });
    // It is the one that it was before, which is in its place again.
    let Pending::Ready(Err(refused)) = sent else {
        panic!("it has a vote, or was not asked");
    };
    assert!(refused.to_string().contains("no vote"), "{refused}");
    assert_eq!((scene.asked("INFO server"), scene.scripts().len()), (2, 1));
    assert_eq!(
        scene.node.server.pool.idle(),
        1,
        "all its answers were read"
    );
    assert_eq!(scene.lost_until(), None);
}

#[test]
fn a_request_behind_which_nobody_could_be_asked_may_still_come() {
    let scene = scene(|_| Some(Says::Nothing));
    scene.connect();
    drop(scene.acquire(soon()));
    outdate(&scene.handle, "b");
    assert_eq!(scene.lost_until(), None);
    let sent = scene.acquire(within(30));
    assert!(matches!(sent, Pending::Ready(Err(_))));
    assert_eq!(scene.asked("INFO server"), 1);
    assert!(scene.lost_until().is_some());
}

#[test]
fn a_node_may_fail_over_as_its_server_may() {
    let scene = scene(|_| None);
    assert!(!scene.node.can_fail_over());
    scene.route.fail_over();
    assert!(scene.node.can_fail_over());
}

#[test]
fn a_node_is_ready_for_what_it_has_a_connection_for() {
    let scene = scene(|_| None);
    let visitor = &scene.claim.visitor;
    let is_ready = || {
        let purposes = [Purpose::Request(Some(visitor)), Purpose::Vote(visitor)];
        purposes.map(|purpose| scene.node.is_ready(purpose))
    };
    assert_eq!(is_ready(), [false, false]);
    let pool = &scene.node.server.pool;
    pool.keep(pool.connector().connect(soon()).unwrap());
    assert_eq!(is_ready(), [true, false]);
    scene.connect();
    assert_eq!(is_ready(), [true, true]);
}

#[test]
fn a_node_without_a_vote_says_why() {
    let scene = scene(|_| None);
    outdate(&scene.handle, "b");
    for purpose in [Purpose::Request(None), Purpose::Renewal] {
        let joined = scene.node.connect(&scene.handle, purpose, soon());
        assert!(
            matches!(joined, Ok(Err(Quarantined::For(..)))),
            "{joined:?}"
        );
    }
}

#[test]
fn a_node_tells_what_may_cost_it_its_vote() {
    let server = StubServer::start(|request| {
        let pair = || vec![bulk("repl-backlog-ttl"), bulk("3600")];
        let words = request.join(" ");
        match &*words {
            "COMMAND INFO FLUSHALL FLUSHDB" => {
                let known = vec![redis::Value::Nil, bulk("flushdb")];
                Some(Says::Reply(redis::Value::Array(known)))
            }
            "ACL WHOAMI" => Says::text("default"),
            "ACL DRYRUN default FLUSHDB" => Some(Says::Reply(redis::Value::Okay)),
            "INFO replication" => Says::text("role:master\r\nrepl_backlog_active:1\r\n"),
            "CONFIG GET repl-backlog-ttl" => Some(Says::Reply(redis::Value::Array(pair()))),
            _ => None,
        }
    });
    let node = server.store().as_node().unwrap();
    let told = |warning: Option<HealthWarning>| format!("{:?}", warning.unwrap());
    assert!(told(node.may_be_flushed(soon())).contains("FLUSHDB"));
    assert!(told(node.may_change_id(soon())).contains("3600 s"));
}
