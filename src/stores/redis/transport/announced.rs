//! Addresses that sentinels and cluster nodes announce, and the user function `map_address` that translates them.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use redis::ConnectionAddr;

use crate::ground::background::Background;
use crate::stores::redis::transport::{Address, CallError, name_of};

type Place = (String, u16);
type Map = dyn Fn(&str, u16) -> Place + Send + Sync;

#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    pub(crate) by: Arc<str>,
    pub(crate) server_id: Option<ServerId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerId {
    /// A cluster node's reply to `CLUSTER MYID`.
    NodeId(Arc<str>),
    /// The field `run_id` of a server's reply to `INFO server`.
    RunId(Arc<str>),
}

/// All values are equal, so that two reports of the same master are equal even if different sentinels sent them.
impl PartialEq for Announced {
    fn eq(&self, _: &Announced) -> bool {
        true
    }
}

/// The user function `map_address` may block, so it runs on its own thread.
#[derive(Clone)]
pub(crate) struct Mapper {
    map: Arc<Map>,
    calls: Arc<Background<Place, Place>>,
}

impl Mapper {
    pub(crate) fn new(map: impl Fn(&str, u16) -> Place + Send + Sync + 'static) -> Mapper {
        Mapper {
            map: Arc::new(map),
            calls: Arc::default(),
        }
    }

    fn mapped(&self, announced: &Place, deadline: Instant) -> Result<Place, CallError> {
        let (map, (host, port)) = (Arc::clone(&self.map), announced.clone());
        let call = move || {
            let to = map(&host, port);
            match to.0.is_empty() || to.1 == 0 {
                true => Err(io::Error::other("it returned no host, or port 0")),
                false => Ok(to),
            }
        };
        let (number, prompt) = self.calls.start(announced, deadline, call);
        let of = format!("map_address of {}", name_of(&announced.0, announced.1));
        let mapped = self.calls.wait(announced, number, prompt);
        let mapped = mapped.or_else(|| self.calls.known(announced).map(Ok));
        match mapped.or_else(|| self.calls.wait(announced, number, deadline)) {
            Some(mapped) => mapped.map_err(|error| CallError::wrong_kind(format!("{of}: {error}"))),
            None => Err(CallError::NotSent(
                format!("{of} did not return in time").into(),
            )),
        }
    }
}

impl Address {
    pub(super) fn target(&self, deadline: Instant) -> Result<Address, CallError> {
        let mut target = self.clone();
        if let (Some(announced), Some(mapper), ConnectionAddr::Tcp(host, port)) =
            (&self.announced, &self.mapper, &self.place)
        {
            let from = (host.clone(), *port);
            let to = mapper.mapped(&from, deadline)?;
            if to != from {
                target = self.at_host(&to.0, to.1);
                target.node = Arc::clone(&self.node);
                target.expected_id = announced.server_id.clone();
            }
        }
        Ok(target)
    }

    pub(super) fn with_origin(&self, fault: CallError, target: &Address) -> CallError {
        let Some(Announced { by, .. }) = &self.announced else {
            return fault;
        };
        let how = match &target.place {
            ConnectionAddr::Tcp(host, port) if self.place != target.place => {
                format!("map_address leads to {}", name_of(host, *port))
            }
            _ => "map the address (Builder::map_address, --map) if it cannot be reached from here"
                .to_owned(),
        };
        let traced = |reason: &str| format!("{by} announced this address; {how}: {reason}");
        match fault {
            CallError::NotSent(reason) => CallError::NotSent(reason.reworded(traced)),
            CallError::Untrusted(reason) => CallError::Untrusted(reason.reworded(traced)),
            fault => fault,
        }
    }
}
