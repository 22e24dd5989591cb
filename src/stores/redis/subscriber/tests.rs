//! A subscriber at a server with scripted replies.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod messages;

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::ground::notify::{Parker, Registration, Wake};
use crate::stores::redis::tests::stub::{Route, StubServer};

fn channel(name: &str) -> Arc<str> {
    format!("redisson_lock__channel:{{{name}}}").into()
}

struct Scene {
    // Declared before the server, so that it is dropped first and its thread can unsubscribe while the server runs.
    subscriber: Subscriber,
    _server: StubServer,
    notifier: Arc<Notifier>,
    moves: Arc<AtomicUsize>,
}

impl Scene {
    fn with(server: StubServer, is_sharded: bool) -> Scene {
        let moves = Arc::<AtomicUsize>::default();
        let notifier = Arc::<Notifier>::default();
        let counted = Arc::clone(&moves);
        let on_move = is_sharded.then(|| -> Hook {
            Box::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            })
        });
        let connector: Arc<dyn Connector> = Route::to(&server);
        let timeout = Duration::from_secs(3);
        Scene {
            subscriber: Subscriber::new(connector, timeout, Arc::clone(&notifier), on_move),
            _server: server,
            notifier,
            moves,
        }
    }

    fn still(is_sharded: bool) -> Scene {
        let scene = Scene::with(StubServer::start(|_| None), is_sharded);
        scene.subscriber.thread.ensure_running("idle", || {});
        scene
    }

    fn listen(&self, name: &str) -> Interest {
        self.subscriber.listen(&channel(name), true).0
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
        self.subscriber.hears(&channel(name))
    }

    fn is_known(&self, name: &str) -> bool {
        let state = self.subscriber.shared.state.lock();
        state.channels.contains_key(&channel(name))
    }

    fn change<T>(&self, name: &str, act: impl FnOnce(&mut Channel) -> T) -> T {
        let mut state = self.subscriber.shared.state.lock();
        act(state.channels.get_mut(&channel(name)).unwrap())
    }

    fn moves(&self) -> usize {
        self.moves.load(Ordering::Relaxed)
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
}

#[test]
fn the_end_without_waiters_is_no_failure() {
    let scene = Scene::still(false);
    let shared = &scene.subscriber.shared;
    let mut connection = shared.connect().unwrap();
    assert_eq!(shared.listen(&mut connection), Ok(()));
    let mut connection = shared.connect().unwrap();
    shared.state.lock().writer.take().unwrap().shut_down();
    assert!(shared.listen(&mut connection).is_err());
}
