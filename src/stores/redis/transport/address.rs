//! Addresses and URLs of servers.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use crate::ground::clock::Timeline;
use crate::ground::error::{Error, Result};
use crate::store::ConnectionCounter;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::{NODE, World};
use crate::stores::redis::transport::tls::{Peer, TlsConfig};
use crate::stores::redis::transport::{
    Announced, CallError, Credentials, CredentialsProvider, Mapper, ServerId,
};

const USER_ALONE: &str = "it names a user without a password; for the default user write redis://:password@host, \
    and for a user without a password give any password";

#[derive(Clone)]
pub(crate) struct Address {
    pub(super) place: ConnectionAddr,
    pub(super) settings: RedisConnectionInfo,
    pub(super) provider: Option<Arc<CredentialsProvider>>,
    /// The server's name in error messages. It contains no password.
    pub(crate) node: Arc<str>,
    pub(super) connect_timeout: Duration,
    /// The sentinel or cluster node that announced this address. `None` if the address is from the settings.
    pub(crate) announced: Option<Announced>,
    pub(crate) mapper: Option<Mapper>,
    /// The identity that the server must have. `Some` only if `map_address` changed the address.
    pub(super) expected_id: Option<ServerId>,
    /// `None` for a connection without TLS.
    pub(super) peer: Option<Peer>,
    /// Sentinels lack commands such as `TIME`.
    pub(super) is_sentinel: bool,
    /// While false, each handshake sends `HELLO` to detect a cluster node. Always true if cluster nodes are allowed.
    pub(super) is_mode_known: Arc<AtomicBool>,
    pub(super) connection_name: Arc<str>,
    pub(super) traffic: Arc<ConnectionCounter>,
    /// The local clock with which the server's clock is compared.
    pub(super) timeline: Timeline,
    /// The in-process server that replaces the network.
    #[cfg(feature = "in-memory")]
    pub(super) world: Option<Arc<World>>,
}

impl Address {
    pub(crate) fn parse(
        url: &str,
        connect_timeout: Duration,
        tls_config: &TlsConfig,
    ) -> Result<Address> {
        let invalid = |reason: &str| Error::config("the Redis URL", reason);
        // The `redis` crate is built without TLS, and refuses the schemes `rediss` and `valkeys`.
        let plain = match url.split_once(':') {
            Some((scheme, rest)) if is_tls(scheme) => Some(format!("redis:{rest}")),
            _ => None,
        };
        let url = plain.as_deref().unwrap_or(url);
        let info = url.into_connection_info();
        // The details of the error may contain the password.
        let info = info.map_err(|error| invalid(&without_detail(&error)))?;
        let node = match info.addr() {
            ConnectionAddr::Tcp(host, port) => name_of(host, *port),
            ConnectionAddr::Unix(path) => format!("unix:{}", path.display()),
            _ => return Err(invalid("this kind of address is not supported")),
        };
        let peer = match (&plain, info.addr()) {
            (Some(_), ConnectionAddr::Tcp(host, _)) => Some(tls_config.for_host(host)?),
            _ => {
                tls_config.check_is_unused()?;
                None
            }
        };
        if let Some(flaw) = error_in(url) {
            return Err(invalid(flaw));
        }
        let node = node.into();
        let settings = info.redis_settings().clone();
        Ok(Address {
            settings,
            peer,
            ..Address::plain(info.addr().clone(), node, connect_timeout)
        })
    }

    fn plain(place: ConnectionAddr, node: Arc<str>, connect_timeout: Duration) -> Address {
        Address {
            place,
            settings: RedisConnectionInfo::default(),
            provider: None,
            node,
            connect_timeout,
            announced: None,
            mapper: None,
            expected_id: None,
            peer: None,
            is_sentinel: false,
            is_mode_known: Arc::default(),
            connection_name: "redlatch".into(),
            traffic: Arc::default(),
            timeline: Timeline::default(),
            #[cfg(feature = "in-memory")]
            world: None,
        }
    }

    #[cfg(feature = "in-memory")]
    pub(crate) fn in_memory(world: &Arc<World>, connect_timeout: Duration) -> Address {
        let place = ConnectionAddr::Unix(NODE.into());
        Address {
            timeline: world.timeline.clone(),
            world: Some(Arc::clone(world)),
            ..Address::plain(place, NODE.into(), connect_timeout)
        }
    }

    pub(crate) fn for_client(
        self,
        connection_name: &Arc<str>,
        traffic: &Arc<ConnectionCounter>,
    ) -> Address {
        Address {
            connection_name: Arc::clone(connection_name),
            traffic: Arc::clone(traffic),
            ..self
        }
    }

    pub(crate) fn at_host(&self, host: &str, port: u16) -> Address {
        let place = ConnectionAddr::Tcp(host.to_owned(), port);
        Address {
            place,
            node: name_of(host, port).into(),
            peer: self.peer.as_ref().map(|peer| peer.at(host)),
            ..self.clone()
        }
    }

    pub(crate) fn for_sentinel(mut self) -> Address {
        self.is_sentinel = true;
        self
    }

    pub(crate) fn for_cluster_node(mut self) -> Address {
        self.is_mode_known = Arc::new(AtomicBool::new(true));
        self
    }

    pub(crate) fn for_master(
        mut self,
        credentials: Option<&Credentials>,
        database: i64,
    ) -> Address {
        self.settings = settings_of(credentials, database);
        self.provider = None;
        self.is_sentinel = false;
        self
    }

    /// If the address of the server is an IP address, the certificate may be for a host of `others` instead.
    pub(crate) fn with_tls_of(
        mut self,
        tls: Option<&TlsConfig>,
        others: &[Address],
    ) -> Result<Address> {
        self.peer = None;
        for host in others.iter().filter_map(Address::host) {
            self.peer = tls.map(|tls| tls.for_host(host)).transpose()?;
        }
        if self.peer.is_none() && tls.is_some() {
            let reason = "certificate checks need the host name of a sentinel, and no URL has one";
            return Err(Error::config("master_tls", reason));
        }
        Ok(self)
    }

    pub(crate) fn with_provider(
        mut self,
        provider: Option<&Arc<CredentialsProvider>>,
    ) -> Result<Address> {
        if provider.is_some() && self.settings.password().is_some() {
            let reason = "the URL has a password, too; remove it from the URL";
            return Err(Error::config("credentials_with", reason));
        }
        self.provider = provider.cloned();
        Ok(self)
    }

    pub(super) fn login(&self, deadline: Instant) -> Result<RedisConnectionInfo, CallError> {
        match &self.provider {
            None => Ok(self.settings.clone()),
            Some(provider) => Ok(settings_of(Some(&provider.get(deadline)?), self.database())),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.peer.is_some()
    }

    pub(crate) fn database(&self) -> i64 {
        self.settings.db()
    }

    /// `None` for a Unix socket.
    pub(crate) fn host(&self) -> Option<&str> {
        match &self.place {
            ConnectionAddr::Tcp(host, _) => Some(host),
            _ => None,
        }
    }
}

fn settings_of(credentials: Option<&Credentials>, database: i64) -> RedisConnectionInfo {
    let settings = RedisConnectionInfo::default().set_db(database);
    let Some(Credentials { user, password }) = credentials else {
        return settings;
    };
    match &**user {
        "" => settings.set_password(password),
        user => settings.set_password(password).set_username(user),
    }
}

/// Finds errors in URLs that the `redis` crate accepts. The text omits the URL, because any part may be a secret.
fn error_in(url: &str) -> Option<&'static str> {
    let url = redis::parse_redis_url(url)?;
    let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let has_user = !url.username().is_empty();
    let mut options: Vec<_> = url.query_pairs().collect();
    options.sort();
    let has = |name: &str| options.iter().any(|(option, _)| option == name);
    let is_twice = |two: &[(_, _)]| matches!(two, [one, other] if one.0 == other.0);
    let is_unknown = |name: &str| !["db", "user", "pass"].contains(&name);
    let is_bad_database = |(name, value): &(_, Cow<'_, str>)| name == "db" && !is_number(value);
    let flaws: &[(bool, &str)] = match url.scheme().ends_with("unix") {
        true => &[
            (url.fragment().is_some(), "nothing may follow a #"),
            (
                has_user || url.password().is_some(),
                "for a Unix socket the user follows the path: ?user=…&pass=…",
            ),
            (
                options.windows(2).any(is_twice) || options.iter().any(|it| is_unknown(&it.0)),
                "after the path of a Unix socket only db, user and pass are allowed, each once",
            ),
            (has("user") && !has("pass"), USER_ALONE),
            (
                options.iter().any(is_bad_database),
                "the database is a number, 0 or higher",
            ),
        ],
        false => &[
            (
                url.fragment().is_some(),
                "nothing may follow a #: in a password write # as %23, and the server's certificate is always checked",
            ),
            (has_user && url.password().is_none(), USER_ALONE),
            (
                !is_number(url.path().trim_matches('/')),
                "the database is a number, 0 or higher, after the host: redis://host/1",
            ),
            (url.port() == Some(0), "port 0 does not exist"),
            (
                !options.is_empty(),
                "no options are allowed after a ?; write the database as the path (redis://host/1), and set time-outs, pool \
                    size and connection name with the Builder",
            ),
        ],
    };
    let flaw = flaws.iter().find(|(is_so, _)| *is_so)?;
    Some(flaw.1)
}

pub(crate) fn name_of(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

pub(crate) fn asks_for_tls(url: &str) -> bool {
    matches!(url.split_once(':'), Some((scheme, _)) if is_tls(scheme))
}

fn is_tls(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("rediss") || scheme.eq_ignore_ascii_case("valkeys")
}

fn without_detail(error: &redis::RedisError) -> String {
    let text = error.to_string();
    let first = text.split(':').next().unwrap_or_default();
    format!(
        "{first}; expected redis://[user:password@]host[:port][/database], rediss:// for TLS, or redis+unix:///path"
    )
}

#[cfg(test)]
mod tests;
