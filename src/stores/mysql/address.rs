//! The address of a database.

use std::sync::Arc;
use std::time::Duration;

use ::mysql::Opts;

use crate::ground::error::{Error, Result};
use crate::store::Traffic;
use crate::stores::slots::PoolSettings;

/// The settings of a client that its store needs.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) pool_size: u32,
    pub(crate) pool_settings: Arc<PoolSettings>,
    pub(crate) check_idle_after: Duration,
    pub(crate) table: String,
    /// Where connections are counted.
    pub(crate) traffic: Arc<Traffic>,
}

/// The server, the database, the user and the options of connections.
pub(super) struct Address {
    pub(super) opts: Opts,
    /// The name in messages, without user and password.
    pub(super) node: Arc<str>,
    pub(super) settings: Settings,
}

impl Address {
    pub(super) fn parse(url: &str, settings: Settings) -> Result<Address> {
        const FORM: &str = "it is mysql://user:password@host[:port]/database";
        let invalid = |reason: String| Error::config("the MySQL URL", format!("{reason}; {FORM}"));
        // The crate's own message may repeat a part of the URL that holds the password.
        let opts = Opts::from_url(url).map_err(|error| {
            use ::mysql::UrlError;
            invalid(match error {
                UrlError::ParseError(error) => error.to_string(),
                UrlError::UnknownParameter(_)
                | UrlError::InvalidValue(..)
                | UrlError::FeatureRequired(..) => {
                    "a parameter is unknown, or has an unusable value".to_owned()
                }
                _ => "it cannot be read".to_owned(),
            })
        })?;
        if url.contains('#') {
            let reason = "nothing may follow a # in it; in a password it is written %23";
            return Err(invalid(reason.to_owned()));
        }
        let path = url.split_once("://").map_or(url, |(_, path)| path);
        let path = path.split('?').next().unwrap_or_default();
        if path.trim_end_matches('/').matches('/').count() > 1 {
            return Err(invalid("it names more than a database".to_owned()));
        }
        let Some(database) = opts.get_db_name().filter(|name| !name.is_empty()) else {
            return Err(invalid("it names no database".to_owned()));
        };
        let node = match opts.get_socket() {
            Some(socket) => format!("unix:{socket}/{database}"),
            None => format!(
                "{}:{}/{database}",
                opts.get_ip_or_hostname(),
                opts.get_tcp_port()
            ),
        };
        Ok(Address {
            node: node.into(),
            opts,
            settings,
        })
    }
}
