use std::sync::Arc;

use ::mysql::Opts;

use crate::ground::error::{Error, Result};
use crate::stores::redis::{Peer, Settings};

pub(super) struct Address {
    pub(super) opts: Opts,
    /// The TLS peer; `None` for plain text.
    pub(super) peer: Option<Peer>,
    /// The name of the server in messages, without user and password.
    pub(super) node: Arc<str>,
    pub(super) settings: Settings,
}

impl Address {
    pub(super) fn parse(url: &str, settings: Settings) -> Result<Address> {
        const FORM: &str =
            "expected mysql://user:password@host[:port]/database, or mysqls:// for TLS";
        let invalid = |reason: &str| Error::config("the MySQL URL", format!("{reason}; {FORM}"));
        let with_tls = url.strip_prefix("mysqls:");
        let plain = with_tls.map(|rest| format!("mysql:{rest}"));
        // The driver's error is dropped, because its text may contain the password.
        let opts = Opts::from_url(plain.as_deref().unwrap_or(url)).map_err(|_| {
            invalid("it cannot be parsed (in a password write # as %23), or a parameter is unknown or has an \
                invalid value")
        })?;
        let path = url.split('?').next().unwrap_or_default();
        if url.contains('#') || path.trim_end_matches('/').matches('/').count() > 3 {
            return Err(invalid("its path is more than the name of a database"));
        }
        let database = opts.get_db_name().filter(|name| !name.is_empty());
        let database = database.ok_or_else(|| invalid("it names no database"))?;
        let (host, port) = (opts.get_ip_or_hostname(), opts.get_tcp_port());
        let node = match opts.get_socket() {
            Some(socket) => format!("unix:{socket}/{database}"),
            None => format!("{host}:{port}/{database}"),
        };
        let tls_config = &settings.access.tls_config;
        let peer = match (with_tls, opts.get_socket()) {
            (None, _) => tls_config.check_is_unused().map(|()| None)?,
            (Some(_), None) => Some(tls_config.for_host(host.trim_matches(['[', ']']))?),
            (Some(_), Some(_)) => return Err(invalid("TLS is not available over a Unix socket")),
        };
        Ok(Address {
            node: node.into(),
            peer,
            opts,
            settings,
        })
    }
}
