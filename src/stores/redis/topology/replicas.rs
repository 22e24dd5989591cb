//! A master and its replicas at fixed addresses. `ROLE` says which server is the master.
//!
//! Two servers may both report the role master, for example if an old master comes back after a failover. In this case
//! the server with replicas is used. Only Sentinel can decide reliably which server is the master.

use std::time::Instant;

use crate::stores::redis::transport::{
    Address, CallError, Connection, Connector, KnownMaster, Role, role_of, share,
};

pub(crate) struct Replicas {
    addresses: Vec<Address>,
    known_master: KnownMaster,
}

impl Replicas {
    pub(crate) fn new(addresses: Vec<Address>) -> Replicas {
        let names: Vec<&str> = addresses.iter().map(|address| &*address.node).collect();
        Replicas {
            known_master: KnownMaster::new(format!("the master of {}", names.join(", "))),
            addresses,
        }
    }

    /// Connects to the first master with replicas, otherwise to the master with the highest replication offset.
    fn search(
        &self,
        known: Option<&Address>,
        deadline: Instant,
    ) -> Result<(&Address, Connection), CallError> {
        let (mut best, mut found) = (None, None);
        let mut fault = None;
        // The last known master is queried last, because the caller has just queried it.
        let is_known = |address: &&Address| known.is_some_and(|known| known.node == address.node);
        let mut order: Vec<&Address> = self.addresses.iter().collect();
        order.sort_by_key(is_known);
        for (tried, address) in order.iter().enumerate() {
            let deadline = share(deadline, order.len() - tried);
            match ask(address, deadline) {
                Ok((connection, Role::Master { replicas, offset })) => {
                    let rank = (replicas, offset);
                    if best.is_none_or(|best| rank > best) {
                        (best, found) = (Some(rank), Some((*address, connection)));
                    }
                    if replicas > 0 {
                        break;
                    }
                }
                Ok((_, Role::Other(role))) => {
                    let said = format!("{} is {role}", address.node);
                    fault.get_or_insert(CallError::NotSent(said.into()));
                }
                // A retry does not cure an error such as a wrong password, so this error is returned, not another one.
                Err(refusal @ (CallError::Server(_) | CallError::Untrusted(_))) => {
                    fault = Some(refusal)
                }
                Err(trouble) => {
                    fault.get_or_insert(trouble.at(&address.node));
                }
            }
        }
        match (found, fault) {
            (Some(found), _) => Ok(found),
            (None, Some(CallError::NotSent(reason))) => {
                Err(CallError::NotSent(reason.reworded(|reason| {
                    format!("none of the servers is a master ({reason})")
                })))
            }
            (None, fault) => {
                Err(fault.unwrap_or_else(|| CallError::NotSent("no address is known".into())))
            }
        }
    }
}

fn ask(address: &Address, deadline: Instant) -> Result<(Connection, Role), CallError> {
    let mut connection = Connection::connect(address, deadline)?;
    let role = role_of(&mut connection, deadline)?;
    Ok((connection, role))
}

impl Connector for Replicas {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        let began = self.known_master.generation();
        let known = self.known_master.master();
        let known = known.and_then(|known| self.addresses.iter().find(|it| it.node == known));
        let still = known.map(|address| (address, ask(address, share(deadline, 2))));
        let (address, mut connection) = match still {
            // A master without replicas may be an old master that came back. So `search` also queries other servers.
            Some((address, Ok((connection, Role::Master { replicas: 1.., .. })))) => {
                (address, connection)
            }
            _ => self.search(known, deadline)?,
        };
        let generation = self.known_master.found(&address.node, began);
        connection.generation = generation
            .ok_or_else(|| CallError::NotSent("the master changed during discovery".into()))?;
        Ok(connection)
    }

    fn master(&self) -> &KnownMaster {
        &self.known_master
    }

    fn can_fail_over(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
