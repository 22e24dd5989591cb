//! The stores on which the laws run: in memory; a Redis server, also with TLS, with minimal rights, as token locks and
//! as fenced locks; a quorum in both layouts; a database.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlatch::{Builder, Client, Lock, Locks, Redlock};

use crate::laws::Settings;
#[cfg(feature = "mysql")]
use crate::support::MariaDb;
use crate::support::{RedisServer, ms};

/// A store, and how to open its clients.
pub(crate) struct Backend {
    /// `None` for the memory of this process.
    open: Option<Box<dyn Fn(Builder) -> Client + Send + Sync>>,
    /// In memory: the first client, from which the others are made.
    first: Mutex<Option<Client>>,
    /// Its Redis server, if it has one.
    server: Option<Arc<RedisServer>>,
    quorum: Vec<RedisServer>,
    kind: Kind,
    /// Whether the quorum has the layout of the Redis documentation.
    is_canonical: bool,
}

/// A constructor of locks of one kind.
type Kind = fn(&Client, &str) -> Lock;

/// The source of the locks of one process.
pub(crate) enum Source {
    Client(Client, Kind),
    Redlock(Redlock),
}

impl Source {
    pub(crate) fn lock(&self, name: &str) -> Lock {
        match self {
            Source::Client(client, kind) => kind(client, name),
            Source::Redlock(redlock) => redlock.lock(name),
        }
    }

    pub(crate) fn locks(&self, prefix: &str) -> Locks {
        match self {
            Source::Client(client, _) => client.locks(prefix).with_tokens(),
            Source::Redlock(redlock) => redlock.locks(prefix),
        }
    }

    pub(crate) fn shutdown(&self) {
        match self {
            Source::Client(client, _) => client.shutdown(),
            Source::Redlock(redlock) => redlock.shutdown(),
        }
    }
}

impl Backend {
    pub(crate) fn memory() -> Backend {
        Backend {
            open: None,
            first: Mutex::default(),
            server: None,
            quorum: Vec::new(),
            kind: Client::lock,
            is_canonical: false,
        }
    }

    fn of(open: impl Fn(Builder) -> Client + Send + Sync + 'static) -> Backend {
        Backend {
            open: Some(Box::new(open)),
            ..Backend::memory()
        }
    }

    fn on(
        server: RedisServer,
        open: impl Fn(&RedisServer, Builder) -> Client + Send + Sync + 'static,
    ) -> Backend {
        let server = Arc::new(server);
        let own = Arc::clone(&server);
        Backend {
            server: Some(server),
            ..Backend::of(move |builder| open(&own, builder))
        }
    }

    pub(crate) fn redis() -> Backend {
        Backend::on(RedisServer::start(), |server, builder| {
            builder.open(&server.url()).unwrap()
        })
    }

    /// A Redis server, as a user with exactly the documented rights.
    pub(crate) fn rights() -> Backend {
        let (server, url) = crate::acl::least();
        Backend::on(server, move |_, builder| {
            builder.key_prefix(crate::acl::PREFIX).open(&url).unwrap()
        })
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls() -> Backend {
        let server = crate::tls::Server::start();
        let url = server.url();
        Backend::on(server.plain, move |_, builder| {
            let builder = builder.ca_certificate(crate::tls::authority());
            builder.open(&url).unwrap()
        })
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn mysql() -> Backend {
        let database = MariaDb::shared().database();
        crate::mysql::make_tables(&database);
        Backend::of(move |builder| builder.open(&database.url()).unwrap())
    }

    pub(crate) fn redlock() -> Backend {
        Backend {
            quorum: (0..3).map(|_| RedisServer::start()).collect(),
            ..Backend::memory()
        }
    }

    pub(crate) fn canonical() -> Backend {
        Backend {
            is_canonical: true,
            ..Backend::redlock()
        }
    }

    /// The same store with locks of another kind.
    fn of_kind(self, kind: Kind) -> Backend {
        Backend { kind, ..self }
    }

    pub(crate) fn token_in_memory() -> Backend {
        Backend::memory().of_kind(Client::token_lock)
    }

    pub(crate) fn token() -> Backend {
        Backend::redis().of_kind(Client::token_lock)
    }

    pub(crate) fn fenced_in_memory() -> Backend {
        Backend::memory().of_kind(Client::fenced_lock)
    }

    pub(crate) fn fenced() -> Backend {
        Backend::redis().of_kind(Client::fenced_lock)
    }

    pub(crate) fn write_in_memory() -> Backend {
        Backend::memory().of_kind(|client, name| client.read_write_lock(name).write())
    }

    pub(crate) fn write() -> Backend {
        Backend::redis().of_kind(|client, name| client.read_write_lock(name).write())
    }

    pub(crate) fn fair_in_memory() -> Backend {
        Backend::memory().of_kind(Client::fair_lock)
    }

    pub(crate) fn fair() -> Backend {
        Backend::redis().of_kind(Client::fair_lock)
    }

    pub(crate) fn spin() -> Backend {
        Backend::redis().of_kind(Client::spin_lock)
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn fenced_in_a_database() -> Backend {
        Backend::mysql().of_kind(Client::fenced_lock)
    }

    /// A client of this backend; each call represents another process.
    pub(crate) fn client(&self) -> Source {
        self.client_with(Settings::default().watchdog_timeout(LEASE))
    }

    /// A client with these settings; in memory only the first client has its own.
    pub(crate) fn client_with(&self, settings: Settings) -> Source {
        if !self.quorum.is_empty() {
            return Source::Redlock(self.redlock_with(settings));
        }
        Source::Client(self.plain_client_with(settings.builder()), self.kind)
    }

    fn plain_client_with(&self, builder: Builder) -> Client {
        if let Some(open) = &self.open {
            return open(builder);
        }
        let mut first = self.first.lock().unwrap();
        if let Some(first) = &*first {
            return first.another().unwrap();
        }
        first.insert(builder.in_memory().unwrap()).clone()
    }

    /// Drops all handles of clients; the next client in memory gets its own world.
    pub(crate) fn forget_clients(&self) {
        self.first.lock().unwrap().take();
    }

    /// The number of lock requests that its servers received; `None` where they are shared or there are none.
    pub(crate) fn requests(&self) -> Option<u64> {
        let servers = self.server.as_deref().into_iter().chain(&self.quorum);
        let counts: Vec<_> = servers.map(RedisServer::eval_count).collect();
        (!counts.is_empty()).then(|| counts.iter().sum())
    }

    fn redlock_with(&self, settings: Settings) -> Redlock {
        let nodes = self.quorum.iter().map(RedisServer::url);
        let builder = Redlock::builder()
            .nodes(nodes.map(|url| Client::open(&url).unwrap()))
            // A busy machine must not count as a silent node.
            .node_timeout(ms(5000))
            // The longest lease of other locks.
            .max_lease(Duration::from_secs(365 * 24 * 60 * 60))
            .watchdog_timeout(settings.watchdog_timeout.unwrap_or(Duration::from_secs(30)))
            .trust_new_nodes();
        let builder = if self.is_canonical {
            builder.canonical()
        } else {
            builder
        };
        let builder = match settings.on_lost {
            Some(hook) => builder.on_lost(hook),
            None => builder,
        };
        builder.build().unwrap()
    }

    /// Whether a grant needs several servers.
    pub(crate) fn is_slow(&self) -> bool {
        !self.quorum.is_empty()
    }
}

/// The watchdog's lease in these tests: long enough for a busy machine, short enough to wait for.
pub(crate) const LEASE: Duration = ms(900);

/// Runs every law in memory, on one Redis server, on a quorum and in a database, and on each kind of lock in memory;
/// `make test-all` runs them on the other backends, too. Laws of re-entry are for reentrant locks, laws of guarded
/// writes for stores with data beside the lock, except `rights`, whose user may not write data.
macro_rules! laws {
    (
        every { $($law:ident)* }
        reentrant { $($more:ident)* }
        with_data { $($data:ident)* }
        without_data { $($none:ident)* }
    ) => {
        laws! { @memory $($law)* $($more)* $($data)* }
        laws! { @redis $($law)* $($more)* $($data)* }
        laws! { @redlock $($law)* $($more)* $($none)* }
        laws! { @token_in_memory $($law)* $($data)* }
        laws! { @fenced_in_memory $($law)* $($more)* $($data)* }
        laws! { @write_in_memory $($law)* $($more)* $($data)* }
        laws! { @fair_in_memory $($law)* $($more)* $($data)* }
        #[cfg(feature = "mysql")]
        laws! { @mysql $($law)* $($more)* $($none)* }
        laws! { @for_test_all rights $($law)* $($more)* }
        laws! { @for_test_all canonical $($law)* $($none)* }
        laws! { @for_test_all token $($law)* $($data)* }
        laws! { @for_test_all fenced $($law)* $($more)* $($data)* }
        laws! { @for_test_all write $($law)* $($more)* $($data)* }
        laws! { @for_test_all fair $($law)* $($more)* $($data)* }
        laws! { @for_test_all spin $($law)* $($more)* $($data)* }
        #[cfg(feature = "tls")]
        laws! { @for_test_all tls $($law)* $($more)* $($data)* }
    };
    (looks { $($law:ident)* }) => {
        laws! { @memory $($law)* }
        laws! { @redis $($law)* }
        laws! { @redlock $($law)* }
        laws! { @canonical $($law)* }
        laws! { @token_in_memory $($law)* }
        laws! { @write_in_memory $($law)* }
        laws! { @fair_in_memory $($law)* }
        #[cfg(feature = "mysql")]
        laws! { @mysql $($law)* }
        laws! { @for_test_all token $($law)* }
        laws! { @for_test_all fenced $($law)* }
        laws! { @for_test_all write $($law)* }
        laws! { @for_test_all fair $($law)* }
        laws! { @for_test_all spin $($law)* }
    };
    (spin { $($law:ident)* }) => {
        laws! { @memory $($law)* }
        laws! { @redis $($law)* }
        laws! { @redlock $($law)* }
        #[cfg(feature = "mysql")]
        laws! { @mysql $($law)* }
    };
    (fenced { $($law:ident)* }) => {
        laws! { @fenced_in_memory $($law)* }
        laws! { @fenced $($law)* }
        #[cfg(feature = "mysql")]
        laws! { @fenced_in_a_database $($law)* }
    };
    (kind { $($law:ident)* }) => {
        laws! { @memory $($law)* }
        laws! { @redis $($law)* }
    };
    (conditions { $($law:ident)* }) => {
        laws! { kind { $($law)* } }
        laws! { @fenced_in_memory $($law)* }
        laws! { @write_in_memory $($law)* }
        laws! { @fair_in_memory $($law)* }
    };
    (@for_test_all $backend:ident $($law:ident)*) => {
        mod $backend {
            $(
                #[test]
                #[ignore = "another way to the same scripts: make test-all"]
                fn $law() { super::$law(&crate::backends::Backend::$backend()); }
            )*
        }
    };
    (@$backend:ident $($law:ident)*) => {
        mod $backend {
            $(#[test] fn $law() { super::$law(&crate::backends::Backend::$backend()); })*
        }
    };
}
