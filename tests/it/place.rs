//! Where the laws are tried: in memory, on a Redis server, in a database.

use std::time::Duration;

use redlatch::{Builder, Client};

#[cfg(feature = "mysql")]
use crate::kit::{Database, MariaDb};
use crate::kit::{RedisServer, ms};

/// Somewhere to keep locks.
pub(crate) struct Place {
    server: Option<RedisServer>,
    #[cfg(feature = "mysql")]
    database: Option<Database<'static>>,
    first: std::sync::OnceLock<Client>,
}

impl Place {
    pub(crate) fn memory() -> Place {
        Place {
            server: None,
            #[cfg(feature = "mysql")]
            database: None,
            first: Default::default(),
        }
    }

    pub(crate) fn redis() -> Place {
        Place {
            server: Some(RedisServer::start()),
            #[cfg(feature = "mysql")]
            database: None,
            first: Default::default(),
        }
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn mysql() -> Place {
        let database = MariaDb::shared().database();
        let tables = Client::open(&database.url()).unwrap();
        tables.create_tables().unwrap();
        Place {
            server: None,
            database: Some(database),
            first: Default::default(),
        }
    }

    /// A client of this place; each call is another process, so to say.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Client::builder().watchdog_timeout(LEASE))
    }

    /// A client with these settings; in memory only the first one has its own.
    pub(crate) fn client_with(&self, builder: Builder) -> Client {
        #[cfg(feature = "mysql")]
        if let Some(database) = &self.database {
            return builder.open(&database.url()).unwrap();
        }
        match &self.server {
            Some(server) => builder.open(&server.url()).unwrap(),
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
        mod memory {
            $(#[test] fn $law() { super::$law(&crate::place::Place::memory()); })*
        }
        mod redis {
            $(#[test] fn $law() { super::$law(&crate::place::Place::redis()); })*
        }
        #[cfg(feature = "mysql")]
        mod mysql {
            $(#[test] fn $law() { super::$law(&crate::place::Place::mysql()); })*
        }
    };
}
