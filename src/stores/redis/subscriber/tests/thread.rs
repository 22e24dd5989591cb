//! The thread of a subscriber, and what it does on one connection.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use super::*;
use crate::stores::redis::tests::stub::Says;

const AT_ONCE: Pace = Pace {
    linger: FOR_LONG,
    ping_after: FOR_LONG,
    pong_within: FOR_LONG,
    lasting: Duration::ZERO,
};

/// One that is live: the thread has asked for the channel `a`, and heard that it is confirmed.
fn live(server: StubServer, pace: Pace) -> (Scene, Waiter, Interest) {
    let scene = Scene::with(server, pace, false);
    let waiter = scene.wait("a");
    let interest = scene.listen("a");
    waiter.waits();
    assert!(scene.is_live("a"));
    (scene, waiter, interest)
}

impl Scene {
    /// Does in another thread what the subscriber does on a connection. It ends with the scene.
    fn begin(&self, mut connection: Connection) -> JoinHandle<String> {
        let shared = Arc::clone(&self.subscriber.shared);
        thread::spawn(move || shared.listen(&mut connection))
    }

    fn end(&self, listening: JoinHandle<String>) -> String {
        self.server.until(|_| listening.is_finished());
        listening.join().unwrap()
    }

    fn publish(&self, waiter: &Waiter) {
        self.server.publish(&channel("a"), "0");
        waiter.waits();
    }

    fn has_rest(&self) -> bool {
        let state = self.subscriber.shared.state.lock();
        state.writer.as_ref().unwrap().has_rest()
    }
}

fn pings(asked: &[Request]) -> usize {
    asked.iter().filter(|request| request.is("PING")).count()
}

/// Pauses between five attempts are at least so long together.
const FOUR_PAUSES: Duration = Duration::from_millis(5 + 10 + 20 + 40);

fn assert_pauses(scene: &Scene) {
    scene.server.until(|_| scene.route.tries().len() >= 5);
    let tries = scene.route.tries();
    let took = tries[4].0 - tries[0].0;
    assert!(took >= FOUR_PAUSES, "{took:?}");
}

#[test]
fn a_thread_hears_what_is_wanted() {
    let (scene, waiter, _interest) = live(StubServer::start(|_| None), endless());
    scene.publish(&waiter);
    let other = scene.wait("b");
    let _other = scene.listen("b");
    other.waits();
    assert!(scene.is_live("b") && !scene.subscriber.is_over());
    assert_eq!(scene.server.connected(), 1);
    let (from, until) = scene.route.tries()[0];
    assert!(until > from && until <= Instant::now() + Duration::from_secs(3));
}

#[test]
fn what_is_wanted_is_asked_for_again_on_the_next_connection() {
    let (scene, waiter, _interest) = live(StubServer::start(|_| None), AT_ONCE);
    scene.server.cut_all();
    waiter.waits();
    assert!(scene.is_live("a"));
    scene.publish(&waiter);
    assert_eq!(scene.server.connected(), 2);
}

#[test]
fn a_new_master_is_listened_to_in_the_place_of_the_one_before() {
    let (scene, waiter, _interest) = live(StubServer::start(|_| None), AT_ONCE);
    scene.route.change();
    waiter.waits();
    assert_eq!(scene.server.connected(), 2);
}

#[test]
fn nobody_connects_for_channels_without_waiters() {
    let (scene, waiter, interest) = live(StubServer::start(|_| None), AT_ONCE);
    drop(interest);
    scene.server.cut_all();
    scene.server.until(|_| !scene.is_known("a"));
    assert_eq!(scene.route.tries().len(), 1);
    let _interest = scene.listen("a");
    waiter.waits();
    assert_eq!(scene.route.tries().len(), 2);
}

#[test]
fn connections_that_are_cut_at_once_are_made_ever_more_seldom() {
    let cut = |request: &Request| request.is("SUBSCRIBE").then_some(Says::Cut);
    let scene = Scene::with(StubServer::start(cut), endless(), false);
    let _interest = scene.listen("a");
    assert_pauses(&scene);
}

#[test]
fn a_server_that_is_not_there_is_looked_for_ever_more_seldom() {
    let scene = Scene::with(StubServer::start(|_| None), endless(), false);
    scene.route.fail(true);
    let waiter = scene.wait("a");
    let _interest = scene.listen("a");
    assert_pauses(&scene);
    assert!(scene.subscriber.is_down());
    scene.route.fail(false);
    waiter.waits();
    assert!(!scene.subscriber.is_down());
}

#[test]
fn a_closed_one_has_no_thread() {
    let (scene, _waiter, _interest) = live(StubServer::start(|_| None), endless());
    scene.subscriber.close();
    assert!(scene.subscriber.is_over());
    assert!(scene.subscriber.is_down());
    let _other = scene.listen("b");
    assert!(scene.subscriber.is_over());
    let error = scene.subscriber.shared.connect().err().unwrap();
    assert_eq!(error, "the client was shut down");
}

#[test]
fn one_that_is_dismissed_ends_by_itself() {
    let (scene, _waiter, interest) = live(StubServer::start(|_| None), AT_ONCE);
    drop(interest);
    scene.server.cut_all();
    scene.server.until(|_| !scene.is_known("a"));
    assert!(!scene.subscriber.is_over());
    // It sleeps until somebody wants something.
    scene.subscriber.dismiss();
    scene.server.until(|_| scene.subscriber.is_over());
}

#[test]
fn the_end_of_a_thread_is_waited_for() {
    let thread = ListenerThread::default();
    assert!(thread.is_over());
    let (is_done, started) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    for _ in 0..2 {
        let (is_done, started) = (Arc::clone(&is_done), Arc::clone(&started));
        thread.ensure_running("slow", move || {
            started.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(50));
            is_done.store(true, Ordering::Relaxed);
        });
    }
    assert!(!thread.is_over());
    thread.join();
    assert!(thread.is_over() && is_done.load(Ordering::Relaxed));
    assert_eq!(started.load(Ordering::Relaxed), 1);
}

#[test]
fn a_connection_to_the_master_before_is_of_no_use() {
    let scene = Scene::still(false);
    let _interest = scene.listen("a");
    let mut is_first = true;
    scene.route.meanwhile(move |route| {
        if std::mem::take(&mut is_first) {
            route.change_unheard();
        }
    });
    let error = scene.subscriber.shared.connect().err().unwrap();
    assert_eq!(error, "the master changed");
    assert!(scene.subscriber.is_down());
    let _connection = scene.connect();
    assert!(!scene.subscriber.is_down());
}

#[test]
fn nothing_is_live_after_the_end_of_a_connection() {
    let scene = Scene::still(true);
    let mut connection = scene.connect();
    let _interest = scene.hear(&mut connection, "a");
    scene.leave("b", 1);
    scene.subscriber.shared.disconnect();
    assert!(!scene.is_live("a"));
    let asked = scene.change("a", |entry| (entry.asked, entry.confirmed));
    assert_eq!((asked, scene.leaving("b")), ((0, 0), None));
}

#[test]
fn a_connection_that_ends_says_why() {
    let scene = Scene::still(false);
    let listening = scene.begin(scene.connect());
    scene.server.cut_all();
    let reason = scene.end(listening);
    assert!(reason.contains("was closed"), "{reason}");
}

#[test]
fn as_long_as_there_is_word_nothing_is_asked_and_nothing_swept() {
    let refused = |request: &Request| {
        request
            .is("SUBSCRIBE refused")
            .then(|| Says::Error("NOPERM No permissions to access a channel".to_owned()))
    };
    let scene = Scene::still_with(StubServer::start(refused), endless(), false);
    let mut connection = scene.connect();
    let _interest = scene.hear(&mut connection, "a");
    drop(scene.hear(&mut connection, "due"));
    scene.change("due", |entry| entry.idle_since = None);
    let waiter = scene.wait("a");
    let _listening = scene.begin(connection);
    scene.publish(&waiter);
    scene.publish(&waiter);
    let _refused = scene.subscriber.listen(&"refused".into(), true);
    scene
        .server
        .until_asked(|request| request.is("SUBSCRIBE refused"));
    scene.publish(&waiter);
    scene.publish(&waiter);
    assert!(scene.is_known("due"), "it is not time to look");
    let asked = scene.asked_until_now();
    assert_eq!((asked.len(), pings(&asked)), (3, 0), "{asked:?}");
}

#[test]
fn channels_are_swept_now_and_then_however_much_is_heard() {
    let pace = Pace {
        linger: Duration::from_millis(200),
        ..endless()
    };
    let scene = Scene::still_with(StubServer::start(|_| None), pace, false);
    let due = |name| {
        drop(scene.listen(name));
        scene.change(name, |entry| entry.idle_since = None);
    };
    let mut connection = scene.connect();
    let _interest = scene.hear(&mut connection, "a");
    due("b");
    let waiter = scene.wait("a");
    let begun = Instant::now();
    let _listening = scene.begin(connection);
    let mut known = begun;
    while scene.is_known("b") {
        known = Instant::now();
        scene.publish(&waiter);
    }
    assert!(begun.elapsed() >= pace.linger);
    due("c");
    scene.publish(&waiter);
    scene.publish(&waiter);
    // After the sweep, which was later than that, it is not time for another one.
    assert!(scene.is_known("c") || known.elapsed() >= pace.linger);
}

#[test]
fn a_silent_connection_is_asked_whether_it_lives_again_and_again() {
    let pace = Pace {
        ping_after: Duration::from_millis(5),
        ..endless()
    };
    let scene = Scene::still_with(StubServer::start(|_| None), pace, false);
    let mut connection = scene.connect();
    let _interest = scene.hear(&mut connection, "a");
    let _listening = scene.begin(connection);
    scene.server.until(|server| pings(&server.asked()) >= 3);
}

#[test]
fn a_server_that_says_nothing_is_taken_for_gone() {
    let pace = Pace {
        ping_after: Duration::from_millis(20),
        pong_within: Duration::from_millis(50),
        ..endless()
    };
    let silent = |request: &Request| request.is("PING").then_some(Says::Nothing);
    let scene = Scene::still_with(StubServer::start(silent), pace, false);
    let mut connection = scene.connect();
    let _interest = scene.hear(&mut connection, "a");
    let begun = Instant::now();
    let reason = scene.end(scene.begin(connection));
    assert_eq!(reason, "no answer to PING");
    assert!(begun.elapsed() >= pace.ping_after + pace.pong_within);
    scene.server.until_asked(|request| request.is("PING"));
    assert_eq!(pings(&scene.server.asked()), 1);
}

#[test]
fn a_silent_connection_that_nobody_needs_is_ended() {
    let pace = Pace {
        ping_after: Duration::from_millis(5),
        ..endless()
    };
    let scene = Scene::still_with(StubServer::start(|_| None), pace, false);
    let reason = scene.end(scene.begin(scene.connect()));
    assert_eq!(reason, "nobody listens any more");
    assert_eq!(scene.server.asked(), []);
    let connection = scene.connect();
    let _interest = scene.listen("a");
    scene.subscriber.shared.state.lock().is_closed = true;
    // The answer to its subscription comes first.
    assert_eq!(scene.end(scene.begin(connection)), "closed");
}

#[test]
fn a_connection_that_takes_no_more_is_read_all_the_same() {
    let (open, gate) = mpsc::channel::<()>();
    let server = StubServer::start(move |request| {
        if request.is("STUCK") {
            let _ = gate.recv();
        }
        let is_told = request.is("STUCK") || request.is("LARGE");
        is_told.then_some(Says::Nothing)
    });
    let scene = Scene::still_with(server, endless(), false);
    let mut connection = scene.connect();
    let _interest = scene.hear(&mut connection, "a");
    let send = |command: &redis::Cmd| {
        let mut state = scene.subscriber.shared.state.lock();
        let packed = command.get_packed_command();
        state.writer.as_mut().unwrap().send(&packed).unwrap();
    };
    send(&redis::cmd("STUCK"));
    scene.server.until_asked(|request| request.is("STUCK"));
    send(redis::cmd("LARGE").arg(vec![b'x'; 16 << 20]));
    assert!(scene.has_rest());
    let waiter = scene.wait("a");
    let _listening = scene.begin(connection);
    scene.publish(&waiter);
    assert!(scene.has_rest());
    open.send(()).unwrap();
    scene.server.until(|_| !scene.has_rest());
    assert_eq!(pings(&scene.asked_until_now()), 0);
}
