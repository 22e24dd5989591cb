//! Where the laws are tried: in memory, on a Redis server, there with TLS and with no more rights than are needed, in a
//! database.

use std::time::Duration;

use redlatch::{Builder, Client};

#[cfg(feature = "mysql")]
use crate::kit::MariaDb;
use crate::kit::{RedisServer, ms};

/// Somewhere to keep locks.
pub(crate) struct Place {
    /// `None` for the memory of this process.
    open: Option<Box<dyn Fn(Builder) -> Client + Send + Sync>>,
    first: std::sync::OnceLock<Client>,
}

impl Place {
    fn of(open: impl Fn(Builder) -> Client + Send + Sync + 'static) -> Place {
        Place {
            open: Some(Box::new(open)),
            first: Default::default(),
        }
    }

    pub(crate) fn memory() -> Place {
        Place {
            open: None,
            first: Default::default(),
        }
    }

    pub(crate) fn redis() -> Place {
        let server = RedisServer::start();
        Place::of(move |builder| builder.open(&server.url()).unwrap())
    }

    /// A Redis server, as a user who has the rights in the documentation and no others.
    pub(crate) fn rights() -> Place {
        let (server, url) = crate::acl::least();
        Place::of(move |builder| {
            let _server = &server;
            builder.key_prefix(crate::acl::PREFIX).open(&url).unwrap()
        })
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls() -> Place {
        let server = crate::tls::Server::start();
        Place::of(move |builder| {
            let builder = builder.ca_certificate(crate::tls::authority());
            builder.open(&server.url()).unwrap()
        })
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn mysql() -> Place {
        let database = MariaDb::shared().database();
        let tables = Client::open(&database.url()).unwrap();
        tables.create_tables().unwrap();
        Place::of(move |builder| builder.open(&database.url()).unwrap())
    }

    /// A client of this place; each call is another process, so to say.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Client::builder().watchdog_timeout(LEASE))
    }

    /// A client with these settings; in memory only the first one has its own.
    pub(crate) fn client_with(&self, builder: Builder) -> Client {
        match &self.open {
            Some(open) => open(builder),
            None => match self.first.get() {
                Some(first) => first.another().unwrap(),
                None => {
                    let first = builder.in_memory().unwrap();
                    self.first.set(first.clone()).unwrap();
                    first
                }
            },
        }
    }

    /// Whether all clients of this place live in the process that made the first.
    pub(crate) fn is_one_process(&self) -> bool {
        self.first.get().is_some()
    }
}

/// The watchdog's lease in these tests: long enough for a busy machine, short enough to wait for.
pub(crate) const LEASE: Duration = ms(900);

/// Tries every law at every place.
macro_rules! laws {
    ($($law:ident)*) => {
        laws! { @memory $($law)* }
        laws! { @redis $($law)* }
        laws! { @rights $($law)* }
        #[cfg(feature = "tls")]
        laws! { @tls $($law)* }
        #[cfg(feature = "mysql")]
        laws! { @mysql $($law)* }
    };
    (@$place:ident $($law:ident)*) => {
        mod $place {
            $(#[test] fn $law() { super::$law(&crate::place::Place::$place()); })*
        }
    };
}
