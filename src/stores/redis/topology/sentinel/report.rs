//! Queries to one sentinel.

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::stores::redis::replies::{field_of, item_at, text_of};
use crate::stores::redis::transport::{
    Address, Announced, CallError, Connection, ServerId, encode, name_of,
};

const NO_SENTINEL: &str = "it is not a sentinel; name the sentinels (port 26379 by default), or open this server \
    without Builder::sentinel (--sentinel)";

pub(super) struct Sentinel {
    pub(super) address: Address,
}

/// A master that a sentinel reports.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) host: String,
    pub(super) port: u16,
    /// The `config-epoch` of the failover that made this server the master. Later failovers have higher epochs.
    pub(super) epoch: i64,
    pub(super) announced: Announced,
}

impl Report {
    pub(super) fn node(&self) -> String {
        name_of(&self.host, self.port)
    }

    pub(super) fn is_no_newer_than(&self, known: &Report) -> bool {
        self.epoch <= known.epoch && self.node() == known.node()
    }

    pub(super) fn with_epoch(&self, epoch: i64) -> Report {
        Report {
            epoch,
            ..self.clone()
        }
    }
}

impl Sentinel {
    pub(super) fn new(address: Address) -> Sentinel {
        Sentinel {
            address: address.for_sentinel(),
        }
    }

    pub(super) fn name(&self) -> Arc<str> {
        format!("the sentinel {}", self.address.node).into()
    }

    /// Returns `None` if the sentinel does not know this name.
    pub(super) fn ask(&self, name: &str, deadline: Instant) -> Result<Option<Report>, CallError> {
        let (address, details) = match self.ask_for(name, deadline) {
            // The server is no sentinel: a sentinel knows the command, and reports a missing right with another text.
            Err(CallError::Server(text)) if text.contains("unknown command") => {
                return Err(CallError::wrong_kind(NO_SENTINEL));
            }
            told => told?,
        };
        let mut report = report_in(&address, &details);
        if let Some(report) = &mut report {
            report.announced.by = self.name();
        }
        Ok(report)
    }

    pub(super) fn replicas(
        &self,
        name: &str,
        master: &Address,
        deadline: Instant,
    ) -> Result<Vec<Address>, CallError> {
        let mut connection = Connection::connect(&self.address, deadline)?;
        let reply = connection.call(&encode(&["SENTINEL", "REPLICAS", name]), deadline)?;
        let address = |replica: &Value| {
            let port = field_of(replica, "port")?.parse().ok()?;
            let mut address = master.at_host(&field_of(replica, "ip")?, port);
            let (by, server_id) = (self.name(), None);
            address.announced = Some(Announced { by, server_id });
            Some(address)
        };
        Ok(match reply {
            Value::Array(replicas) => replicas.iter().filter_map(address).collect(),
            _ => Vec::new(),
        })
    }

    pub(super) fn ask_for(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<(Value, Value), CallError> {
        let mut connection = Connection::connect(&self.address, deadline)?;
        let mut request = encode(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]);
        request.extend(encode(&["SENTINEL", "MASTER", name]));
        connection.send(&request, deadline)?;
        let address = connection.receive(deadline);
        let details = match connection.receive(deadline) {
            // The user has no right to the details, or the name is unknown.
            Err(CallError::Server(_)) => Value::Nil,
            details => details.map_err(CallError::of_query)?,
        };
        Ok((address.map_err(CallError::of_query)?, details))
    }
}

pub(super) fn report_in(address: &Value, details: &Value) -> Option<Report> {
    let (host, port) = (item_at(address, 0)?, item_at(address, 1)?);
    let field = |name: &str| field_of(details, name);
    let epoch = field("config-epoch").and_then(|epoch| epoch.parse().ok());
    // Right after a failover, sentinels report an empty run id.
    let run_id = field("runid").filter(|id| !id.is_empty());
    let server_id = run_id.map(|id| ServerId::RunId(id.into()));
    Some(Report {
        host: text_of(host),
        port: text_of(port).parse().ok()?,
        epoch: epoch.unwrap_or(0),
        announced: Announced {
            server_id,
            ..Announced::default()
        },
    })
}
