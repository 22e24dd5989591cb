//! A master that Redis Sentinel monitors.
//!
//! Before every connection a sentinel is queried for the master, and the master itself is queried with `ROLE`. An old master that
//! comes back after a failover is not used, because no sentinel reports it.
//!
//! A single sentinel may have an outdated view. So the client keeps the *accepted* master with the highest known epoch. If a
//! sentinel reports another master or epoch, all sentinels are queried:
//!
//! | report | accepted from |
//! |---|---|
//! | a later failover | two sentinels, or one if fewer than three are configured |
//! | a later failover, reported by one of three or more | this sentinel, under the conditions below |
//! | another master without a later failover | a majority of the configured sentinels |
//! | no sentinel replies | the accepted master stays in use while it reports the role master |
//!
//! The report of one sentinel is accepted in two cases: the accepted master reports another role, and no two sentinels agree on a
//! third server; or the accepted master is unreachable, and every sentinel that replies names the same server. In both cases the
//! reported server must have the role master. Without this rule a client could not follow the last living sentinel, but a new
//! client would.
//!
//! A replaced master may still answer. So a thread subscribes to `+switch-master`, and queries all sentinels every third of a
//! lease. The client leaves its master as soon as another one is accepted, even if the new one is unreachable. Then it tries to
//! connect at least once a second.
//!
//! The sentinel client of the `redis` crate (1.8) is not used, for three reasons. It has no time-outs. It trusts the first sentinel
//! that names a server with the role master. It notices no failover while the old master answers.

mod answer;
mod belief;
mod health;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::events;
use crate::ground::sync::{Condvar, Mutex};
use crate::store::HealthWarning;
use crate::stores::redis::Settings;
use crate::stores::redis::subscriber::ListenerThread;
use crate::stores::redis::transport::{
    Address, CallError, Connection, Connector, KnownMaster, Role, Writer, role_of, share,
};
use answer::{Named, Sentinel};
use belief::{Standing, doubt_about, overruled, ranked, told_by_one};

/// Bounds of the interval between two checks, which is a third of a lease.
const CHECKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

pub(crate) struct Sentinels {
    shared: Arc<Shared>,
    thread: ListenerThread,
}

struct Shared {
    /// The name of the master at the sentinels.
    name: String,
    /// Sentinels that failed are moved to the end.
    sentinels: Mutex<Vec<Arc<Sentinel>>>,
    /// The number of sentinels in the settings.
    configured: usize,
    /// The accepted master. It stays set when its server is suspected.
    believed: Mutex<Option<Named>>,
    /// The settings for connections to the master.
    credentials: Address,
    known_master: KnownMaster,
    command_timeout: Duration,
    check_every: Duration,
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// The writing end of the subscribed connection.
    writer: Option<Writer>,
}

/// Why a server cannot be used as the master.
#[derive(Debug)]
struct Miss {
    standing: Standing,
    fault: CallError,
}

impl Sentinels {
    pub(crate) fn new(
        name: &str,
        sentinels: Vec<Address>,
        credentials: Address,
        settings: &Settings,
    ) -> Sentinels {
        let names: Vec<&str> = sentinels.iter().map(|address| &*address.node).collect();
        let group = format!("the master {name} of the sentinels {}", names.join(", "));
        let sentinels: Vec<_> = sentinels
            .into_iter()
            .map(|address| Arc::new(Sentinel::new(address)))
            .collect();
        Sentinels {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                configured: sentinels.len(),
                sentinels: Mutex::new(sentinels),
                believed: Mutex::default(),
                credentials,
                known_master: KnownMaster::new(group),
                command_timeout: settings.command_timeout,
                check_every: (settings.lease / 3).clamp(CHECKS.0, CHECKS.1),
                state: Mutex::default(),
                wanted: Condvar::default(),
            }),
            thread: ListenerThread::default(),
        }
    }
}

impl Connector for Sentinels {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        if !self.shared.state.lock().is_closed {
            let shared = Arc::clone(&self.shared);
            self.thread
                .ensure_running("redlatch-sentinel", move || shared.run());
        }
        self.shared.connect(deadline)
    }

    fn master(&self) -> &KnownMaster {
        &self.shared.known_master
    }

    fn can_fail_over(&self) -> bool {
        true
    }

    fn watchers(&self, deadline: Instant) -> Vec<HealthWarning> {
        self.shared.health(deadline)
    }

    fn close(&self) {
        {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            if let Some(writer) = state.writer.take() {
                writer.shut_down();
            }
        }
        self.shared.wanted.notify_one();
        self.thread.join();
    }
}

impl Shared {
    fn order(&self) -> Vec<Arc<Sentinel>> {
        self.sentinels.lock().clone()
    }

    /// Moves a sentinel to the end, because its query failed or its reply was outdated.
    fn put_last(&self, sentinel: &Arc<Sentinel>) {
        let mut sentinels = self.sentinels.lock();
        if let Some(index) = sentinels.iter().position(|it| Arc::ptr_eq(it, sentinel)) {
            let sentinel = sentinels.remove(index);
            sentinels.push(sentinel);
        }
    }

    fn ask(&self, sentinel: &Arc<Sentinel>, deadline: Instant) -> Result<Named, CallError> {
        let named = match sentinel.ask(&self.name, deadline) {
            Ok(Some(named)) => return Ok(named),
            Ok(None) => {
                CallError::NotSent(format!("it knows no master named {}", self.name).into())
            }
            Err(fault) => fault,
        };
        self.put_last(sentinel);
        let fault = named.at(&format!("the sentinel {}", sentinel.address.node));
        events::sentinel_failed(&sentinel.address.node, &fault.reason());
        Err(fault)
    }

    /// The masters to try after these reports, the best one first. `before` is the master that was accepted before the query. If
    /// another thread accepted a later one since, the reports cannot revert that.
    fn believe(&self, answers: &[Named], before: Option<&Named>) -> Vec<Named> {
        let mut believed = self.believed.lock();
        let Some(known) = &*believed else {
            return ranked(answers, self.configured);
        };
        let may_go_back = before == Some(known);
        if let Some(other) = overruled(known, answers, self.configured, may_go_back) {
            *believed = Some(other);
        }
        believed.iter().cloned().collect()
    }

    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        let began = self.known_master.generation();
        let found = self.search(began, deadline);
        if found.is_err() {
            self.leave_replaced(began);
        }
        found
    }

    fn search(&self, began: u64, deadline: Instant) -> Result<Connection, CallError> {
        let order = self.order();
        let before = self.believed.lock().clone();
        let mut last_fault = None;
        let mut missed: Option<Miss> = None;
        let mut answers = Vec::with_capacity(order.len());
        for (tried, sentinel) in order.iter().enumerate() {
            let rest = order.len() - tried;
            let named = match self.ask(sentinel, share(deadline, rest + 1)) {
                Ok(named) => named,
                Err(fault) => {
                    fault.keep_in(&mut last_fault);
                    continue;
                }
            };
            answers.push(named.clone());
            match &before {
                Some(known) if named.is_no_news(known) && missed.is_none() => {
                    match self.reach(known, None, began, share(deadline, rest)) {
                        Ok(connection) => return Ok(connection),
                        // Other sentinels may report a failover.
                        Err(miss) => missed = Some(miss),
                    }
                    self.put_last(sentinel);
                }
                Some(known) if !named.is_no_news(known) => self.put_last(sentinel),
                _ => {}
            }
        }
        let mut candidates = self.believe(&answers, before.as_ref());
        // A master that only one sentinel reports is tried last.
        let lone = before
            .as_ref()
            .filter(|known| candidates.first() == Some(known))
            .and_then(|known| Some((known, told_by_one(known, &answers)?)));
        candidates.retain(|it| missed.is_none() || Some(it) != before.as_ref());
        for (tried, named) in candidates.iter().enumerate() {
            let rest = candidates.len() - tried + usize::from(lone.is_some());
            match self.reach(named, None, began, share(deadline, rest)) {
                Ok(connection) => return Ok(connection),
                Err(miss) if Some(named) == before.as_ref() => missed = Some(miss),
                Err(miss) => miss.fault.keep_in(&mut last_fault),
            }
        }
        let Some(missed) = missed.filter(|_| !answers.is_empty()) else {
            return Err(
                last_fault.unwrap_or_else(|| CallError::NotSent("no sentinel is known".into()))
            );
        };
        // One sentinel replied, so the failure of the master is reported, not of another sentinel.
        match lone {
            Some((known, lone)) => {
                self.reach_lone(known, &missed, &lone, &answers, began, deadline)
            }
            None => Err(missed.fault),
        }
    }

    /// Connects to a reported master, if it has the role master and is the accepted master. It becomes the accepted master if there
    /// is none, or if `instead_of` still is.
    fn reach(
        &self,
        named: &Named,
        instead_of: Option<&Named>,
        began: u64,
        deadline: Instant,
    ) -> Result<Connection, Miss> {
        let mut address = self.credentials.elsewhere(&named.host, named.port);
        address.announced = Some(named.announced.clone());
        let silent = |fault: CallError| Miss {
            standing: match fault {
                CallError::NotSent(_) => Standing::Silent,
                _ => Standing::Unclear,
            },
            fault: fault.at(&address.node),
        };
        let mut connection = Connection::connect(&address, deadline).map_err(silent)?;
        match role_of(&mut connection, deadline).map_err(silent)? {
            Role::Master { .. } => {}
            Role::Other(role) => {
                let reason = format!(
                    "{}, which a sentinel names as master, is {role}",
                    address.node
                );
                return Err(Miss {
                    standing: Standing::NoMaster,
                    fault: CallError::NotSent(reason.into()),
                });
            }
        }
        let is_believed = {
            let mut believed = self.believed.lock();
            if believed.is_none() || instead_of.is_some_and(|it| Some(it) == believed.as_ref()) {
                *believed = Some(named.clone());
            }
            believed.as_ref().map(Named::node) == Some(named.node())
        };
        let generation = is_believed.then(|| self.known_master.found(&address.node, began));
        connection.generation = generation.flatten().ok_or_else(|| Miss {
            standing: Standing::Unclear,
            fault: CallError::NotSent("the master changed during discovery".into()),
        })?;
        Ok(connection)
    }

    /// Connects to a master that only one sentinel reports, if that report can be accepted after the known master failed.
    fn reach_lone(
        &self,
        known: &Named,
        missed: &Miss,
        lone: &Named,
        answers: &[Named],
        began: u64,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let why = match doubt_about(lone, answers, self.configured, missed.standing) {
            Some(doubt) => doubt,
            None => match self.reach(lone, Some(known), began, deadline) {
                Ok(connection) => return Ok(connection),
                Err(miss) => miss.fault.reason().to_owned(),
            },
        };
        if matches!(missed.fault, CallError::Server(_) | CallError::Untrusted(_)) {
            // A retry does not cure an error such as a wrong password.
            return Err(missed.fault.clone());
        }
        let told = format!(
            "{}; one sentinel names {} since failover {}, which is ignored: {why}",
            missed.fault.reason(),
            lone.node(),
            lone.epoch,
        );
        Err(CallError::NotSent(told.into()))
    }
}
