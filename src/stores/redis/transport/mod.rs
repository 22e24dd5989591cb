//! Connections to one server, and their pool.

mod address;
mod announced;
mod call_error;
mod connection;
mod connector;
mod credentials;
mod decoder;
mod known_master;
mod pool;
mod reply_text;
mod socket;
mod stream;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
#[cfg(feature = "mysql")]
#[cfg_attr(
    not(feature = "tls"),
    allow(unused, reason = "no server is at the other end")
)]
mod tunnel;

use std::time::{Duration, Instant};

use crate::ground::time;

pub(crate) use address::{Address, asks_for_tls, name_of};
pub(crate) use announced::{Announced, Mapper, ServerId};
pub(crate) use call_error::{CallError, WRONG_KIND};
pub(crate) use connection::{
    CLUSTER_NODE, Connection, Identity, REFUSED_CREDENTIALS, Writer, encode, time_of,
};
pub(crate) use connector::Connector;
pub(crate) use credentials::{Credentials, CredentialsProvider, Provider};
pub(crate) use known_master::{Hook, Hooks, KnownMaster, Role, role_of};
pub(crate) use pool::{Borrowed, NotReady, Pool, lacks, lacks_eval, lacks_evalsha, lacks_script};
pub(crate) use reply_text::{brief, plain};
#[cfg(feature = "mysql")]
pub(crate) use tls::Peer;
#[cfg(feature = "tls")]
pub(crate) use tls::Pem;
pub(crate) use tls::TlsConfig;
#[cfg(feature = "mysql")]
pub(crate) use tunnel::Tunnel;

/// If a deferred reply is missing this long after the deadline of its request, `Connection::is_ready` returns false.
pub(crate) const LATENESS: Duration = Duration::from_millis(20);

pub(crate) use crate::stores::share;

/// Returns when the last retry may begin. A later retry would likely time out, and hide the last error reply.
pub(crate) fn last_try(deadline: Instant) -> Instant {
    deadline - deadline.saturating_duration_since(time::now()) / 4
}

#[cfg(test)]
mod tests;
