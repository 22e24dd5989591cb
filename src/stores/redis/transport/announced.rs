//! Addresses that sentinels and cluster nodes announce, and the program's function that maps them.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use redis::ConnectionAddr;

use crate::ground::background::Background;
use crate::ground::callback;
use crate::stores::redis::transport::address::{Address, name_of};
use crate::stores::redis::transport::call_error::CallError;

type Place = (String, u16);
type Map = dyn Fn(&str, u16) -> Place + Send + Sync;

/// Who announced an address, and how the server there is recognised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    pub(crate) by: Arc<str>,
    pub(crate) proof: Option<Proof>,
}

/// A command that identifies a server, and what its reply contains.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proof {
    pub(crate) command: &'static str,
    /// What stands before the id. A reply without it proves nothing.
    pub(crate) field: &'static str,
    pub(crate) id: Arc<str>,
}

/// Servers that name the same master agree, whoever they are.
impl PartialEq for Announced {
    fn eq(&self, _: &Announced) -> bool {
        true
    }
}

impl Eq for Announced {}

/// The program's function for announced addresses. It runs on a thread of its own, as it may block.
#[derive(Clone)]
pub(crate) struct Mapper {
    map: Arc<Map>,
    calls: Arc<Background<Place, Place>>,
}

impl fmt::Debug for Mapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mapper")
    }
}

impl Mapper {
    pub(crate) fn new(map: impl Fn(&str, u16) -> Place + Send + Sync + 'static) -> Mapper {
        Mapper {
            map: Arc::new(map),
            calls: Arc::default(),
        }
    }

    fn mapped(&self, announced: Place, deadline: Instant) -> Result<Place, CallError> {
        let (map, (host, port)) = (Arc::clone(&self.map), announced.clone());
        let call = move || {
            let to = callback::within(|| map(&host, port));
            match to.0.is_empty() || to.1 == 0 {
                true => Err(io::Error::other("it returned no host, or port 0")),
                false => Ok(to),
            }
        };
        let (number, _) = self.calls.start(&announced, call);
        let name = || name_of(&announced.0, announced.1);
        match self.calls.wait(&announced, number, deadline) {
            Some(Ok(to)) => Ok(to),
            Some(Err(error)) => Err(CallError::misplaced(format!(
                "map_address failed for {}: {error}",
                name()
            ))),
            None => Err(CallError::NotSent(
                format!("map_address did not return in time for {}", name()).into(),
            )),
        }
    }
}

impl Address {
    /// The same server, as another one announced it.
    pub(crate) fn announced(self, announced: Announced) -> Address {
        Address {
            announced: Some(announced),
            ..self
        }
    }

    pub(crate) fn mapped_by(self, mapper: Option<&Mapper>) -> Address {
        Address {
            mapper: mapper.cloned(),
            ..self
        }
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.is_some()
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.mapper.is_some()
    }

    /// How the server is recognised, if it was announced.
    pub(crate) fn proof(&self) -> Option<&Proof> {
        self.announced.as_ref()?.proof.as_ref()
    }

    /// Where to connect to: as announced, or where the program maps that.
    pub(super) fn target(&self, deadline: Instant) -> Result<Cow<'_, Address>, CallError> {
        let (Some(_), Some(mapper), ConnectionAddr::Tcp(host, port)) =
            (&self.announced, &self.mapper, &self.place)
        else {
            return Ok(Cow::Borrowed(self));
        };
        let (to, to_port) = mapper.mapped((host.clone(), *port), deadline)?;
        if (&to, to_port) == (host, *port) {
            return Ok(Cow::Borrowed(self));
        }
        let target = self.elsewhere(&to, to_port);
        Ok(Cow::Owned(Address {
            node: Arc::clone(&self.node),
            is_proven_by: self.proof().cloned(),
            ..target
        }))
    }

    /// Adds to a fault of connecting who announced the address, and where it was mapped to.
    pub(super) fn traced(&self, fault: CallError, target: &Address) -> CallError {
        let Some(announced) = &self.announced else {
            return fault;
        };
        let by = &announced.by;
        let how = match (self.place == target.place, &target.place) {
            (false, ConnectionAddr::Tcp(host, port)) => {
                format!(
                    "{by} announced it, and map_address leads to {}",
                    name_of(host, *port)
                )
            }
            _ => format!(
                "{by} announced it (map it with Builder::map_address or --map if it cannot be reached from here)"
            ),
        };
        let traced = |reason: &str| format!("{how}: {reason}");
        match fault {
            CallError::NotSent(reason) => CallError::NotSent(reason.reworded(traced)),
            CallError::Untrusted(reason) => CallError::Untrusted(reason.reworded(traced)),
            fault => fault,
        }
    }
}
