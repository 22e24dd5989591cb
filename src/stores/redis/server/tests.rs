//! The connection for renewals, and what a node tries again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod room;

use std::time::Duration;

use redis::Value;

use super::*;
use crate::stores::quorum::node::Node as _;
use crate::stores::quorum::node::Purpose;
use crate::stores::redis::node::RedisNode;
use crate::stores::redis::tests::stub::voter::{handle, identity};
use crate::stores::redis::tests::stub::{Request, Route, Says, StubServer, soon};

/// A node behind a route that a test changes, whose server tells who it is.
struct Scene {
    node: RedisNode,
    route: Arc<Route>,
    server: StubServer,
}

fn scene() -> Scene {
    scene_with(|_| None)
}

fn scene_with(mut answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> Scene {
    let server =
        StubServer::start(move |request| answers(request).or_else(|| identity("a", request)));
    let route = Route::to(&server);
    let node = route.store().as_node().unwrap();
    Scene {
        node,
        route,
        server,
    }
}

impl Scene {
    fn take(&self) -> Connection {
        self.node.server.take_renewing(soon()).unwrap()
    }

    fn put(&self, connection: Connection) {
        self.node.server.put_renewing(connection);
    }

    /// Makes a connection for requests, and lets it lie idle.
    fn warm(&self) {
        let pool = &self.node.server.pool;
        pool.keep(pool.connector().connect(soon()).unwrap());
    }

    fn identify(&self, connection: &mut Connection) {
        connection.identify(soon()).unwrap();
        self.server.until_asked(|request| request.is("CONFIG GET"));
    }

    fn tries(&self) -> usize {
        self.route.tries().len()
    }

    fn idle(&self) -> usize {
        self.node.server.pool.idle()
    }

    fn has_renewing(&self) -> bool {
        self.node.server.has_renewing()
    }

    fn is_ready(&self) -> bool {
        self.node.server.is_ready_to_renew()
    }

    fn get_ready(&self, prepare: &dyn Fn(&mut Connection) -> bool) {
        self.node.server.get_ready_to_renew(soon(), prepare);
    }

    fn ready_one(&self) -> Option<Connection> {
        self.node.server.take_ready_to_renew(soon())
    }

    /// Puts a connection back whose server has closed it behind an error.
    fn put_stale(&self, mut connection: Connection) {
        let refused = connection.call(&redis::cmd("ODD").get_packed_command(), soon());
        assert!(matches!(refused, Err(CallError::Server(_))), "{refused:?}");
        self.server.until(|_| connection.has_arrived());
        self.put(connection);
    }
}

/// Refuses `ODD`, and closes the connection behind that.
fn odd(request: &Request) -> Option<Says> {
    let refusal = Says::Error("ERR odd".to_owned());
    let cut = Says::Both(Box::new(refusal), Box::new(Says::Cut));
    request.is("ODD").then_some(cut)
}

#[test]
fn the_connection_for_renewals_is_kept_for_the_next_one() {
    let scene = scene();
    let connection = scene.take();
    assert!(!scene.has_renewing());
    scene.put(connection);
    assert!(scene.has_renewing());
    let connection = scene.take();
    assert!(!connection.is_new);
    assert_eq!((scene.tries(), scene.idle()), (1, 0));
    assert!(!scene.has_renewing());
}

#[test]
fn a_connection_to_the_server_before_renews_nothing() {
    let scene = scene();
    let connection = scene.take();
    scene.put(connection);
    scene.route.change();
    let connection = scene.take();
    assert_eq!((connection.generation, scene.tries()), (1, 2));
}

#[test]
fn a_connection_on_which_more_came_than_was_asked_renews_nothing() {
    let scene = scene_with(|request| {
        let twice = || Says::Bytes(b"+PONG\r\n+PONG\r\n".to_vec());
        request.is("PING").then(twice)
    });
    let mut connection = scene.take();
    let ping = redis::cmd("PING").get_packed_command();
    connection.call(&ping, soon()).unwrap();
    assert!(connection.has_unread());
    scene.put(connection);
    scene.take();
    assert_eq!(scene.tries(), 2);
}

#[test]
fn a_connection_that_was_closed_renews_nothing() {
    let scene = scene_with(odd);
    let connection = scene.take();
    scene.put_stale(connection);
    scene.take();
    assert_eq!(scene.tries(), 2);
}

#[test]
fn a_spent_connection_is_not_kept() {
    let scene = scene();
    let mut connection = scene.take();
    connection.is_spent = true;
    scene.put(connection);
    assert!(!scene.has_renewing());
}

#[test]
fn a_new_connection_is_new_as_long_as_it_owes_answers() {
    let scene = scene();
    let kept = || scene.node.server.renewals.lock().take().unwrap();
    let mut connection = scene.take();
    assert!(connection.is_new);
    connection.replies_due.push(None);
    scene.put(connection);
    let mut connection = kept();
    assert!(connection.is_new);
    connection.replies_due.clear();
    scene.put(connection);
    let mut connection = kept();
    assert!(!connection.is_new);
    connection.replies_due.push(None);
    scene.put(connection);
    assert!(!kept().is_new, "what was used once is not new again");
}

#[test]
fn one_connection_for_renewals_is_enough() {
    let scene = scene();
    let (mut first, second) = (scene.take(), scene.take());
    scene.identify(&mut first);
    scene.put(first);
    scene.put(second);
    assert!(scene.take().is_identified());
    assert!(!scene.has_renewing());
    assert_eq!(scene.idle(), 0);
}

#[test]
fn the_connection_for_renewals_is_made_before_it_is_needed() {
    let scene = scene();
    scene.get_ready(&|_| true);
    assert!(scene.has_renewing());
    assert!(!scene.take().is_new);
    assert_eq!(scene.tries(), 1);
    // That was it, whatever became of it.
    scene.get_ready(&|_| true);
    assert_eq!(scene.tries(), 1);
    scene.route.change();
    scene.get_ready(&|_| true);
    assert_eq!(scene.tries(), 2);
    assert!(scene.has_renewing());
}

#[test]
fn a_connection_that_could_not_be_prepared_is_not_kept() {
    let scene = scene();
    scene.get_ready(&|_| false);
    assert!(!scene.has_renewing());
    assert_eq!(scene.tries(), 1);
}

#[test]
fn nothing_is_made_ready_where_there_is_a_connection_already() {
    let scene = scene();
    let connection = scene.take();
    scene.put(connection);
    scene.get_ready(&|_| true);
    assert_eq!(scene.tries(), 1);
}

#[test]
fn a_connection_is_lent_while_another_one_is_being_made() {
    let scene = scene();
    scene.warm();
    scene.get_ready(&|_| {
        let lent = scene.take();
        assert!(lent.is_lent);
        scene.put(lent);
        scene.idle() == 1
    });
    assert!(scene.has_renewing());
    assert_eq!(scene.tries(), 2);
    assert!(!scene.take().is_lent, "it is made by now");
}

#[test]
fn a_connection_is_lent_where_none_can_be_made() {
    let scene = scene();
    scene.route.fail(true);
    let refused = scene.node.server.take_renewing(soon());
    assert!(matches!(refused, Err(CallError::NotSent(_))));
    scene.route.fail(false);
    scene.warm();
    scene.route.fail(true);
    let lent = scene.take();
    assert!(lent.is_lent && scene.idle() == 0);
    scene.put(lent);
    assert_eq!((scene.has_renewing(), scene.idle()), (false, 1));
}

#[test]
fn a_lent_connection_stays_where_the_time_to_make_another_one_was_too_short() {
    let scene = scene();
    scene.warm();
    scene
        .server
        .answer(|request| request.is("TIME").then_some(Says::Nothing));
    let deadline = Instant::now() + Duration::from_millis(200);
    let connection = scene.node.server.take_renewing(deadline).unwrap();
    assert!(!connection.is_lent);
    scene.put(connection);
    assert_eq!((scene.has_renewing(), scene.idle()), (true, 0));
    let [_, (from, until)] = scene.route.tries()[..] else {
        panic!("{:?}", scene.route.tries());
    };
    assert!(
        until - from < Duration::from_millis(101),
        "half of the time"
    );
}

#[test]
fn all_the_time_is_for_a_connection_where_there_is_no_other() {
    let scene = scene();
    let deadline = soon();
    scene.node.server.take_renewing(deadline).unwrap();
    assert_eq!(scene.route.tries()[0].1, deadline);
}

#[test]
fn renewals_of_a_quorum_take_what_leads_to_a_known_server() {
    let scene = scene();
    assert!(scene.ready_one().is_none());
    let mut own = scene.take();
    scene.identify(&mut own);
    scene.put(own);
    let own = scene.ready_one().unwrap();
    assert!(own.is_identified() && !own.is_lent);
    assert_eq!(scene.tries(), 1);
}

#[test]
fn renewals_of_a_quorum_borrow_a_connection_to_a_known_server() {
    let scene = scene();
    let own = scene.take();
    scene.put(own);
    scene.warm();
    assert!(scene.ready_one().is_none());
    assert_eq!((scene.has_renewing(), scene.idle()), (true, 1));
    let pool = &scene.node.server.pool;
    let mut known = pool.take(soon()).unwrap();
    scene.identify(&mut known);
    pool.keep(known);
    let lent = scene.ready_one().unwrap();
    assert!(lent.is_identified() && lent.is_lent);
    assert_eq!((scene.has_renewing(), scene.idle()), (true, 0));
}

#[test]
fn it_is_ready_to_renew_on_a_good_connection_to_a_known_server() {
    let scene = scene_with(odd);
    assert!(!scene.is_ready());
    let connection = scene.take();
    scene.put(connection);
    assert!(!scene.is_ready(), "nobody knows which server it is");
    let mut connection = scene.take();
    scene.identify(&mut connection);
    scene.put(connection);
    assert!(scene.is_ready());
    scene.route.change();
    assert!(!scene.is_ready(), "it is another one");
    let mut connection = scene.take();
    scene.identify(&mut connection);
    scene.put(connection);
    assert!(scene.is_ready());
    let connection = scene.take();
    scene.put_stale(connection);
    assert!(!scene.is_ready(), "it was closed");
}

#[test]
fn a_quorum_is_told_what_is_ready() {
    let scene = scene();
    assert!(!scene.node.is_ready(Purpose::Renewal));
    let joined = scene.node.connect(&handle(), Purpose::Renewal, soon());
    assert!(matches!(joined, Ok(Ok(()))), "{joined:?}");
    assert!(scene.node.is_ready(Purpose::Renewal));
    assert!(!scene.node.is_ready(Purpose::Request(None)));
    assert!(scene.has_renewing());
}

/// A server that is loading its data for so many requests.
fn loading(mut times: u32) -> Scene {
    scene_with(move |request| {
        let is_loading = request.is("GET") && times > 0;
        times -= u32::from(is_loading);
        match is_loading {
            true => Says::error("LOADING Redis is loading the dataset in memory"),
            false if request.is("GET") => Says::text("value"),
            false => None,
        }
    })
}

fn get(scene: &Scene, deadline: Instant) -> Result<Value, CallError> {
    let packed = redis::cmd("GET").get_packed_command();
    let server = &scene.node.server;
    server.with(deadline, |connection| connection.call(&packed, deadline))
}

#[test]
fn what_was_not_executed_is_tried_again() {
    let scene = loading(2);
    assert!(get(&scene, soon()).is_ok());
    assert_eq!(scene.server.asked().len(), 3);
}

#[test]
fn what_no_other_server_would_say_otherwise_is_the_answer() {
    let scene = scene_with(|request| {
        let wrong = || Says::Error("WRONGTYPE odd".to_owned());
        request.is("GET").then(wrong)
    });
    scene.route.fail_over();
    let answer = get(&scene, soon());
    assert!(matches!(&answer, Err(CallError::Server(text)) if text.starts_with("WRONGTYPE")));
    assert_eq!(scene.server.asked().len(), 1);
}

#[test]
fn a_closed_node_has_no_connections() {
    let scene = scene();
    let connection = scene.take();
    scene.put(connection);
    scene.warm();
    scene.node.server.close();
    assert!(scene.route.is_closed());
    assert_eq!((scene.has_renewing(), scene.idle()), (false, 0));
    scene.warm();
    assert_eq!(scene.idle(), 0);
}
