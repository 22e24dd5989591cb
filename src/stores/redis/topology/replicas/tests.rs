#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::Value;

use std::sync::Arc;

use super::*;
use crate::stores::redis::tests::stub::{Says, StubServer, bulk};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn master(replicas: usize, offset: i64) -> Says {
    let replicas = Value::Array(vec![bulk("replica"); replicas]);
    Says::reply(Value::Array(vec![
        bulk("master"),
        Value::Int(offset),
        replicas,
    ]))
}

fn replica() -> Says {
    let parts = ["slave", "h", "1", "connected"].map(bulk);
    Says::reply(Value::Array(parts.to_vec()))
}

struct Scene {
    servers: Vec<StubServer>,
    roles: Vec<Arc<Mutex<Says>>>,
    client: Replicas,
}

impl Scene {
    fn of(roles: &[Says]) -> Scene {
        let roles: Vec<_> = roles
            .iter()
            .map(|it| Arc::new(Mutex::new(it.clone())))
            .collect();
        let servers = roles.iter().map(|role| {
            let role = Arc::clone(role);
            StubServer::start(move |request| {
                let role = role.lock().unwrap_or_else(PoisonError::into_inner).clone();
                request.is("ROLE").then_some(role)
            })
        });
        let servers: Vec<_> = servers.collect();
        let timeout = Duration::from_secs(20);
        let address = |it: &StubServer| Address::parse(&it.url(), timeout, &Default::default());
        let addresses = servers.iter().map(|it| address(it).unwrap()).collect();
        Scene {
            servers,
            roles,
            client: Replicas::new(addresses),
        }
    }

    fn is(&self, at: usize, role: Says) {
        *self.roles[at].lock().unwrap() = role;
    }

    /// Connects, and returns the index of the server.
    fn connect(&self) -> Result<usize, CallError> {
        self.connect_by(soon())
    }

    fn connect_by(&self, deadline: Instant) -> Result<usize, CallError> {
        let connection = self.client.connect(deadline)?;
        assert_eq!(connection.generation, self.client.known_master.generation());
        Ok(self.master().unwrap())
    }

    fn master(&self) -> Option<usize> {
        let node = self.client.known_master.node();
        self.servers.iter().position(|it| *it.address() == *node)
    }

    fn asked(&self) -> Vec<usize> {
        let count = |it: &StubServer| it.asked().iter().filter(|it| it.is("ROLE")).count();
        self.servers.iter().map(count).collect()
    }
}

#[test]
fn a_master_with_replicas_ends_the_search() {
    let scene = Scene::of(&[replica(), master(1, 5), master(3, 9)]);
    let [a, b, c] = [0, 1, 2].map(|at| scene.servers[at].address());
    assert_eq!(
        *scene.client.known_master.node(),
        *format!("the master of {a}, {b}, {c}")
    );
    assert_eq!(scene.connect(), Ok(1));
    assert_eq!(scene.asked(), [1, 1, 0]);
    // After that, only the known master is queried.
    assert_eq!(scene.connect(), Ok(1));
    assert_eq!(scene.asked(), [1, 2, 0]);
}

#[test]
fn masters_without_replicas_rank_by_offset() {
    for (offsets, best) in [([5, 5], 0), ([5, 6], 1), ([6, 5], 0)] {
        let scene = Scene::of(&offsets.map(|offset| master(0, offset)));
        assert_eq!(scene.connect(), Ok(best), "{offsets:?}");
        assert_eq!(scene.asked(), [1, 1]);
    }
    let scene = Scene::of(&[master(0, 9), master(1, 5)]);
    assert_eq!(scene.connect(), Ok(1));
}

#[test]
fn a_master_without_replicas_is_searched_again() {
    let scene = Scene::of(&[master(1, 5), replica()]);
    assert_eq!(scene.connect(), Ok(0));
    scene.is(0, master(0, 5));
    scene.is(1, master(1, 6));
    assert_eq!(scene.connect(), Ok(1));
    assert_eq!(scene.client.known_master.generation(), 1);
    // The known master is queried once more only if no other server has replicas.
    assert_eq!(scene.asked(), [2, 1]);
    scene.is(1, replica());
    scene.is(0, master(0, 5));
    assert_eq!(scene.connect(), Ok(0));
    assert_eq!(scene.asked(), [3, 3]);
}

#[test]
fn without_a_master_the_error_names_the_roles() {
    let scene = Scene::of(&[replica(), replica()]);
    let first = scene.servers[0].address();
    let words = format!("none of the servers is a master ({first} is a slave (connected))");
    assert_eq!(scene.connect(), Err(CallError::NotSent(words.into())));
    scene.is(1, Says::error("NOAUTH no"));
    assert_eq!(scene.connect(), Err(CallError::Server("NOAUTH no".into())));
    scene.is(0, Says::cut());
    scene.is(1, Says::cut());
    let words = format!(
        "none of the servers is a master ({first}: the connection was closed before the reply)"
    );
    assert_eq!(scene.connect().err().unwrap().reason(), words);
    let none = Replicas::new(Vec::new()).connect(soon()).err();
    assert_eq!(none, Some(CallError::NotSent("no address is known".into())));
}
