//! Sentinels and servers that answer as told.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Mutex;

use super::*;
use crate::stores::redis::tests::stub::{self, Request, Says, StubServer};

pub(super) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(super) fn soon() -> Instant {
    Instant::now() + ms(20_000)
}

/// What a sentinel says of the master.
#[derive(Clone)]
pub(super) enum Told {
    /// This server, since this failover.
    Master(usize, i64),
    Unknown,
    Other(Says),
}

pub(super) use Told::{Master, Unknown};

/// What a server does when it is asked for its role.
#[derive(Clone)]
pub(super) enum Does {
    Rules,
    Follows,
    Other(Says),
}

pub(super) use Does::{Follows, Rules};

pub(super) fn cut() -> Told {
    Told::Other(Says::cut())
}

pub(super) struct Scene {
    pub(super) sentinels: Vec<StubServer>,
    pub(super) servers: Vec<StubServer>,
    told: Vec<Arc<Mutex<Told>>>,
    does: Vec<Arc<Mutex<Does>>>,
    pub(super) client: Sentinels,
}

impl Scene {
    /// As many sentinels as there are words of them, two servers that call themselves master, and a client that looks after
    /// its master by itself once in ten seconds.
    pub(super) fn of(told: &[Told]) -> Scene {
        Scene::with(told, ms(30_000))
    }

    pub(super) fn with(told: &[Told], lease: Duration) -> Scene {
        let does = [(); 2].map(|()| Arc::new(Mutex::new(Rules)));
        let servers = does.iter().map(|does| {
            let does = Arc::clone(does);
            StubServer::start(move |request| {
                let does = does.lock().unwrap().clone();
                request.is("ROLE").then(|| role(does))
            })
        });
        let servers: Vec<_> = servers.collect();
        let told: Vec<_> = told
            .iter()
            .map(|it| Arc::new(Mutex::new(it.clone())))
            .collect();
        let places: Vec<_> = servers.iter().map(StubServer::address).collect();
        let sentinels = told.iter().map(|told| {
            let (told, places) = (Arc::clone(told), places.clone());
            StubServer::start(move |request| {
                let told = told.lock().unwrap().clone();
                request.is("SENTINEL").then(|| word(told, request, &places))
            })
        });
        let sentinels: Vec<_> = sentinels.collect();
        let settings = Settings {
            lease,
            command_timeout: ms(3000),
            ..stub::settings()
        };
        let address = |url: &str| Address::parse(url, ms(20_000), &Default::default()).unwrap();
        let addresses = sentinels.iter().map(|it| address(&it.url())).collect();
        let credentials = address("redis://127.0.0.1:1");
        let client = Sentinels::new("m", addresses, credentials, &settings);
        Scene {
            sentinels,
            servers,
            told,
            does: does.to_vec(),
            client,
        }
    }

    /// The same where the client knows the first server as the master since failover 1.
    pub(super) fn settled(count: usize) -> Scene {
        let scene = Scene::of(&vec![Master(0, 1); count]);
        assert_eq!(scene.connect(), Ok(0));
        scene
    }

    /// The sentinels say this from now on.
    pub(super) fn tell(&self, words: &[Told]) {
        for (told, word) in self.told.iter().zip(words) {
            *told.lock().unwrap() = word.clone();
        }
    }

    pub(super) fn does(&self, at: usize, what: Does) {
        *self.does[at].lock().unwrap() = what;
    }

    /// Connects to the master, and says which server that is. The thread that looks after it is left out.
    pub(super) fn connect(&self) -> Result<usize, CallError> {
        self.connect_by(soon())
    }

    pub(super) fn connect_by(&self, deadline: Instant) -> Result<usize, CallError> {
        let connection = self.client.shared.connect(deadline)?;
        assert_eq!(
            connection.generation,
            self.client.shared.known_master.generation()
        );
        Ok(self.master().unwrap())
    }

    /// The server that is known as the master.
    pub(super) fn master(&self) -> Option<usize> {
        let node = self.client.node();
        self.servers.iter().position(|it| *it.address() == *node)
    }

    /// How often each sentinel was asked for the master.
    pub(super) fn asked(&self) -> Vec<usize> {
        let count = |it: &StubServer| {
            let asked = it.asked();
            asked
                .iter()
                .filter(|it| it.is("SENTINEL GET-MASTER-ADDR-BY-NAME m"))
                .count()
        };
        self.sentinels.iter().map(count).collect()
    }

    /// The sentinels in the order in which they would be asked.
    pub(super) fn order(&self) -> Vec<usize> {
        let place = |it: &Arc<Sentinel>| {
            let mut sentinels = self.sentinels.iter();
            sentinels
                .position(|one| *one.address() == *it.address.node)
                .unwrap()
        };
        self.client.shared.order().iter().map(place).collect()
    }
}

fn role(does: Does) -> Says {
    let of = |role: &str| Value::Array(vec![text(role), Value::Int(7), Value::Array(Vec::new())]);
    match does {
        Rules => Says::reply(of("master")),
        Follows => Says::reply(of("slave")),
        Does::Other(says) => says,
    }
}

fn word(told: Told, request: &Request, places: &[String]) -> Says {
    let is_address = request.is("SENTINEL GET-MASTER-ADDR-BY-NAME");
    match told {
        Master(at, _) if is_address => {
            let (host, port) = places[at].rsplit_once(':').unwrap();
            Says::reply(Value::Array(vec![text(host), text(port)]))
        }
        Master(_, epoch) => {
            let epoch = epoch.to_string();
            let details = ["flags", "master", "quorum", "2", "config-epoch", &epoch];
            Says::reply(Value::Array(details.map(text).to_vec()))
        }
        Unknown if is_address => Says::reply(Value::Nil),
        Unknown => Says::error("ERR No such master with that name"),
        Told::Other(says) => says,
    }
}
