//! One sentinel, and what it says.

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::stores::redis::replies::{field_of, item_at, text_of};
use crate::stores::redis::transport::{
    Address, Announced, CallError, Connection, Proof, name_of, packed,
};

const NO_SENTINEL: &str = "it is not a sentinel; name the sentinels (port 26379 by default), or open this server \
    without Builder::sentinel (--sentinel)";

pub(super) struct Sentinel {
    pub(super) address: Address,
}

/// The master that a sentinel names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Named {
    pub(super) host: String,
    pub(super) port: u16,
    /// Of the failover that made it master; the higher one is the later one.
    pub(super) epoch: i64,
    pub(super) announced: Announced,
}

impl Named {
    pub(super) fn node(&self) -> String {
        name_of(&self.host, self.port)
    }

    /// Whether it changes nothing for somebody who knows this much.
    pub(super) fn is_no_news(&self, known: &Named) -> bool {
        self.epoch <= known.epoch && self.node() == known.node()
    }

    /// The same server, made master by another failover.
    pub(super) fn since(&self, epoch: i64) -> Named {
        Named {
            epoch,
            ..self.clone()
        }
    }
}

impl Sentinel {
    pub(super) fn new(address: Address) -> Sentinel {
        Sentinel {
            address: address.of_sentinel(),
        }
    }

    /// Its name as the one who announces an address.
    pub(super) fn name(&self) -> Arc<str> {
        format!("the sentinel {}", self.address.node).into()
    }

    /// Asks for the master of this name; `None` if this sentinel does not know it.
    pub(super) fn ask(&self, name: &str, deadline: Instant) -> Result<Option<Named>, CallError> {
        let (address, details) = match self.ask_for(name, deadline) {
            // A right that is missing is another error.
            Err(CallError::Server(text)) if text.contains("unknown command") => {
                return Err(CallError::misplaced(NO_SENTINEL));
            }
            told => told?,
        };
        let mut named = named_in(&address, &details);
        if let Some(named) = &mut named {
            named.announced.by = self.name();
        }
        Ok(named)
    }

    /// Asks for the addresses of the replicas of this master, which are talked to like `master`.
    pub(super) fn replicas(
        &self,
        name: &str,
        master: &Address,
        deadline: Instant,
    ) -> Result<Vec<Address>, CallError> {
        let mut connection = Connection::connect(&self.address, deadline)?;
        let reply = connection.call(&packed(&["SENTINEL", "REPLICAS", name]), deadline)?;
        let address = |replica: &Value| {
            let port = field_of(replica, "port")?.parse().ok()?;
            let mut address = master.elsewhere(&field_of(replica, "ip")?, port);
            let (by, proof) = (self.name(), None);
            address.announced = Some(Announced { by, proof });
            Some(address)
        };
        Ok(match reply {
            Value::Array(replicas) => replicas.iter().filter_map(address).collect(),
            _ => Vec::new(),
        })
    }

    /// Asks for the address and the details of the master of this name.
    pub(super) fn ask_for(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<(Value, Value), CallError> {
        let mut connection = Connection::connect(&self.address, deadline)?;
        let commands = ["GET-MASTER-ADDR-BY-NAME", "MASTER"];
        let request = commands.map(|it| packed(&["SENTINEL", it, name])).concat();
        connection.send(&request, deadline)?;
        let address = connection.receive(deadline);
        let details = match connection.receive(deadline) {
            // Without the right to ask for it, or for a name unknown there, there is the address alone.
            Err(CallError::Server(_)) => Value::Nil,
            details => details.map_err(CallError::of_a_search)?,
        };
        Ok((address.map_err(CallError::of_a_search)?, details))
    }
}

pub(super) fn named_in(address: &Value, details: &Value) -> Option<Named> {
    let (host, port) = (item_at(address, 0)?, item_at(address, 1)?);
    let field = |name: &str| field_of(details, name);
    let epoch = field("config-epoch").and_then(|epoch| epoch.parse().ok());
    // A sentinel does not know it yet for a server that it has just made the master.
    let run_id = field("runid").filter(|id| !id.is_empty());
    let proof = run_id.map(|id| Proof::RunId(id.into()));
    Some(Named {
        host: text_of(host),
        port: text_of(port).parse().ok()?,
        epoch: epoch.unwrap_or(0),
        announced: Announced {
            proof,
            ..Announced::default()
        },
    })
}
