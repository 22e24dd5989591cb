//! A subscriber at a server that answers as told. Where its thread has no part in it, the test reads in its place.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod channels;
mod messages;
mod thread;

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::ground::notify::{Parker, Registration, Wake};
use crate::store::ConnectionStats;
use crate::stores::redis::tests::stub::{Request, Route, StubServer, soon};
use crate::stores::redis::transport::Connection;

const FOR_LONG: Duration = Duration::from_secs(3600);

fn channel(name: &str) -> Arc<str> {
    format!("redisson_lock__channel:{{{name}}}").into()
}

/// Times of which none ends in a test.
fn endless() -> Pace {
    Pace {
        linger: FOR_LONG,
        ping_after: FOR_LONG,
        pong_within: FOR_LONG,
        lasting: FOR_LONG,
    }
}

struct Scene {
    // Before the server, so that its thread has somebody to hear of the end from.
    subscriber: Subscriber,
    server: StubServer,
    route: Arc<Route>,
    notifier: Arc<Notifier>,
    traffic: Arc<Traffic>,
    /// How often a slot was said to be elsewhere.
    moves: Arc<AtomicUsize>,
}

impl Scene {
    fn with(server: StubServer, pace: Pace, is_sharded: bool) -> Scene {
        let (route, moves) = (Route::to(&server), Arc::<AtomicUsize>::default());
        let (notifier, traffic) = (Arc::<Notifier>::default(), Arc::<Traffic>::default());
        let counted = Arc::clone(&moves);
        let shards = is_sharded.then(|| Shards {
            on_move: Box::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }),
        });
        let connector: Arc<dyn Connector> = Arc::clone(&route) as _;
        let heard = (Arc::clone(&notifier), Arc::clone(&traffic));
        let timeout = Duration::from_secs(3);
        Scene {
            subscriber: Subscriber::paced(connector, timeout, pace, heard, shards),
            server,
            route,
            notifier,
            traffic,
            moves,
        }
    }

    /// One whose thread does nothing.
    fn still(is_sharded: bool) -> Scene {
        Scene::still_with(StubServer::start(|_| None), endless(), is_sharded)
    }

    fn still_with(server: StubServer, pace: Pace, is_sharded: bool) -> Scene {
        let scene = Scene::with(server, pace, is_sharded);
        scene.subscriber.thread.ensure_running("idle", || {});
        scene
    }

    /// Connects in the place of the thread.
    fn connect(&self) -> Connection {
        self.subscriber.shared.connect().unwrap()
    }

    /// Reads one message in the place of the thread.
    fn read(&self, connection: &mut Connection) {
        let message = connection.receive(soon()).unwrap();
        self.subscriber.shared.handle(message);
    }

    fn listen(&self, name: &str) -> Interest {
        self.subscriber.listen(&channel(name), true).0
    }

    /// Listens, and reads until that is confirmed.
    fn hear(&self, connection: &mut Connection, name: &str) -> Interest {
        let interest = self.listen(name);
        self.read(connection);
        assert!(self.is_live(name));
        interest
    }

    /// Has a channel that was listened to for once, and that nobody has waited on for so long.
    fn idle(&self, connection: &mut Connection, name: &str, since: Duration) {
        drop(self.hear(connection, name));
        self.change(name, |entry| {
            entry.idle_since = Some(Instant::now() - since)
        });
    }

    fn wait(&self, name: &str) -> Waiter {
        let parker = self.notifier.parker();
        let registration = self.notifier.join(0, &channel(name), &parker);
        Waiter {
            parker,
            _registration: registration,
        }
    }

    fn is_live(&self, name: &str) -> bool {
        self.subscriber.messages(&channel(name)).is_some()
    }

    fn is_known(&self, name: &str) -> bool {
        let state = self.subscriber.shared.state.lock();
        state.channels.contains_key(&channel(name))
    }

    fn change<T>(&self, name: &str, act: impl FnOnce(&mut Channel) -> T) -> T {
        let mut state = self.subscriber.shared.state.lock();
        act(state.channels.get_mut(&channel(name)).unwrap())
    }

    fn leaving(&self, name: &str) -> Option<u32> {
        let state = self.subscriber.shared.state.lock();
        state.leaving.get(&channel(name)).copied()
    }

    fn leave(&self, name: &str, times: u32) {
        let mut state = self.subscriber.shared.state.lock();
        state.leaving.insert(channel(name), times);
    }

    fn moves(&self) -> usize {
        self.moves.load(Ordering::Relaxed)
    }

    fn stats(&self) -> ConnectionStats {
        self.traffic.read(0, 0, false)
    }

    /// Sends a word behind what was sent, and returns all that the server was asked before it.
    fn asked_until_now(&self) -> Vec<Request> {
        let mut state = self.subscriber.shared.state.lock();
        let mark = redis::cmd("PING").arg("mark").get_packed_command();
        state.writer.as_mut().unwrap().send(&mark).unwrap();
        drop(state);
        self.server.until_asked(|request| request.is("PING mark"));
        let mut asked = self.server.asked();
        asked.pop();
        asked
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.subscriber.dismiss();
    }
}

struct Waiter {
    parker: Arc<Parker>,
    _registration: Registration,
}

impl Waiter {
    fn is_woken(&self) -> bool {
        self.parker.park(Some(Instant::now())) != Wake::TimedOut
    }

    fn waits(&self) {
        assert_ne!(self.parker.park(Some(soon())), Wake::TimedOut);
    }
}

fn words(words: &str) -> Request {
    Request(words.split(' ').map(str::to_owned).collect())
}
