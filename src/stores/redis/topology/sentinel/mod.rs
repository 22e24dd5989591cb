//! A master that Redis Sentinel monitors.
//!
//! For a new connection, the client queries sentinels for the master, connects to the master, and checks its `ROLE`. An
//! old master that comes back after a failover is not used, because the sentinels report another server.
//!
//! A single sentinel may have an outdated view. So the client remembers one *accepted* master and its epoch. If a
//! sentinel reports another server or a later epoch, or if the accepted master fails, all sentinels are queried:
//!
//! | report | accepted from |
//! |---|---|
//! | a later failover | two sentinels, or one if fewer than three are configured |
//! | a later failover, if three or more sentinels are configured | one sentinel, under the conditions below |
//! | another master without a later failover | a majority of the configured sentinels |
//! | no report | none: the accepted master stays in use while it reports the role master |
//!
//! The report of a single sentinel is accepted in two cases. First case: the accepted master reports another role, and
//! no two sentinels agree on a server other than the reported one. Second case: the accepted master is unreachable, and
//! all sentinels that reply name the same server. In both cases the reported server must have the role master. Without
//! these two cases, a running client could not follow the last living sentinel, although a new client would follow it.
//!
//! A replaced master may still answer. So a thread subscribes to `+switch-master`, and queries all sentinels three
//! times per default lease. The client stops using its master as soon as another master is accepted, even if the new
//! master is unreachable.
//!
//! The sentinel client of the `redis` crate (1.8) is not used, for three reasons. It has no time-outs. It trusts the
//! first sentinel that names a server with the role master. It notices no failover while the old master answers.

mod acceptance;
mod health;
mod report;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::events;
use crate::ground::sync::{Condvar, Mutex};
use crate::store::HealthWarning;
use crate::stores::redis::Settings;
use crate::stores::redis::subscriber::LazyThread;
use crate::stores::redis::transport::{
    Address, CallError, Connection, Connector, KnownMaster, Role, Writer, role_of, share,
};
use acceptance::{MasterState, lone_report, newly_accepted, ranked, reason_to_ignore};
use report::{Report, Sentinel};

/// The bounds of the interval between two checks. Within these bounds, the interval is a third of the default lease.
const CHECKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

pub(crate) struct Sentinels {
    shared: Arc<Shared>,
    thread: LazyThread,
}

struct Shared {
    /// The name by which the sentinels know the master.
    name: String,
    /// Sentinels that failed are moved to the end.
    sentinels: Mutex<Vec<Arc<Sentinel>>>,
    /// The number of sentinels in the settings.
    configured: usize,
    /// A suspected failover does not reset this field.
    accepted: Mutex<Option<Report>>,
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
    writer: Option<Writer>,
}

#[derive(Debug)]
struct MasterFailure {
    state: MasterState,
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
        let sentinels = sentinels.into_iter().map(Sentinel::new);
        let sentinels: Vec<_> = sentinels.map(Arc::new).collect();
        Sentinels {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                configured: sentinels.len(),
                sentinels: Mutex::new(sentinels),
                accepted: Mutex::default(),
                credentials,
                known_master: KnownMaster::new(group),
                command_timeout: settings.command_timeout,
                check_every: (settings.lease / 3).clamp(CHECKS.0, CHECKS.1),
                state: Mutex::default(),
                wanted: Condvar::default(),
            }),
            thread: LazyThread::default(),
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
        let mut state = self.shared.state.lock();
        state.is_closed = true;
        if let Some(writer) = state.writer.take() {
            writer.shut_down();
        }
        drop(state);
        self.shared.wanted.notify_one();
        self.thread.join();
    }
}

impl Shared {
    fn order(&self) -> Vec<Arc<Sentinel>> {
        self.sentinels.lock().clone()
    }

    /// Moves a sentinel to the end of the list, because it failed or its report did not lead to a connection at once.
    fn put_last(&self, sentinel: &Arc<Sentinel>) {
        let mut sentinels = self.sentinels.lock();
        if let Some(index) = sentinels.iter().position(|it| Arc::ptr_eq(it, sentinel)) {
            let sentinel = sentinels.remove(index);
            sentinels.push(sentinel);
        }
    }

    fn ask(&self, sentinel: &Arc<Sentinel>, deadline: Instant) -> Result<Report, CallError> {
        let report = match sentinel.ask(&self.name, deadline) {
            Ok(Some(report)) => return Ok(report),
            Ok(None) => {
                CallError::NotSent(format!("it knows no master named {}", self.name).into())
            }
            Err(fault) => fault,
        };
        self.put_last(sentinel);
        let fault = report.at(&format!("the sentinel {}", sentinel.address.node));
        events::sentinel_failed(&sentinel.address.node, &fault.reason());
        Err(fault)
    }

    /// Returns the masters to try, the best master first. `before` is the master that was accepted before the query. If
    /// another thread has accepted another master since, these reports cannot bring back an earlier master.
    fn accept(&self, reports: &[Report], before: Option<&Report>) -> Vec<Report> {
        let mut accepted = self.accepted.lock();
        let Some(known) = &*accepted else {
            return ranked(reports, self.configured);
        };
        let may_go_back = before == Some(known);
        if let Some(other) = newly_accepted(known, reports, self.configured, may_go_back) {
            *accepted = Some(other);
        }
        accepted.iter().cloned().collect()
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
        let before = self.accepted.lock().clone();
        let mut last_fault = None;
        let mut failure: Option<MasterFailure> = None;
        let mut reports = Vec::with_capacity(order.len());
        for (tried, sentinel) in order.iter().enumerate() {
            let rest = order.len() - tried;
            let report = match self.ask(sentinel, share(deadline, rest + 1)) {
                Ok(report) => report,
                Err(fault) => {
                    fault.keep_in(&mut last_fault);
                    continue;
                }
            };
            reports.push(report.clone());
            match &before {
                Some(known) if report.is_no_newer_than(known) && failure.is_none() => {
                    match self.connect_to(known, None, began, share(deadline, rest)) {
                        Ok(connection) => return Ok(connection),
                        // The known master is not usable, but the next sentinel may report a failover.
                        Err(it) => failure = Some(it),
                    }
                    self.put_last(sentinel);
                }
                Some(known) if !report.is_no_newer_than(known) => self.put_last(sentinel),
                _ => {}
            }
        }
        let mut candidates = self.accept(&reports, before.as_ref());
        // A master that only one sentinel reports is tried last.
        let lone = before
            .as_ref()
            .filter(|known| candidates.first() == Some(known))
            .and_then(|known| Some((known, lone_report(known, &reports)?)));
        candidates.retain(|it| failure.is_none() || Some(it) != before.as_ref());
        for (tried, report) in candidates.iter().enumerate() {
            let rest = candidates.len() - tried + usize::from(lone.is_some());
            match self.connect_to(report, None, began, share(deadline, rest)) {
                Ok(connection) => return Ok(connection),
                Err(it) if Some(report) == before.as_ref() => failure = Some(it),
                Err(it) => it.fault.keep_in(&mut last_fault),
            }
        }
        let Some(failure) = failure.filter(|_| !reports.is_empty()) else {
            let none = || CallError::NotSent("no sentinel is known".into());
            return Err(last_fault.unwrap_or_else(none));
        };
        // A sentinel replied, so the returned error is about the master, not about the sentinels.
        match lone {
            Some((known, lone)) => {
                self.connect_to_lone(known, &failure, &lone, &reports, began, deadline)
            }
            None => Err(failure.fault),
        }
    }

    /// Accepts the reported server as the master if there is no accepted master, or if the accepted master is
    /// `instead_of`. Fails if the server's role is not master, or if another master stays accepted.
    fn connect_to(
        &self,
        report: &Report,
        instead_of: Option<&Report>,
        began: u64,
        deadline: Instant,
    ) -> Result<Connection, MasterFailure> {
        let mut address = self.credentials.at_host(&report.host, report.port);
        address.announced = Some(report.announced.clone());
        let silent = |fault: CallError| MasterFailure {
            state: match fault {
                CallError::NotSent(_) => MasterState::Silent,
                _ => MasterState::Unclear,
            },
            fault: fault.at(&address.node),
        };
        let mut connection = Connection::connect(&address, deadline).map_err(silent)?;
        if let Role::Other(role) = role_of(&mut connection, deadline).map_err(silent)? {
            let node = &address.node;
            let reason = format!("{node}, which a sentinel names as master, is {role}");
            return Err(MasterFailure {
                state: MasterState::NoMaster,
                fault: CallError::NotSent(reason.into()),
            });
        }
        let is_accepted = {
            let mut accepted = self.accepted.lock();
            if accepted.is_none() || instead_of.is_some_and(|it| Some(it) == accepted.as_ref()) {
                *accepted = Some(report.clone());
            }
            accepted.as_ref().map(Report::node) == Some(report.node())
        };
        let generation = is_accepted.then(|| self.known_master.found(&address.node, began));
        connection.generation = generation.flatten().ok_or_else(|| MasterFailure {
            state: MasterState::Unclear,
            fault: CallError::NotSent("the master changed during discovery".into()),
        })?;
        Ok(connection)
    }

    fn connect_to_lone(
        &self,
        known: &Report,
        failure: &MasterFailure,
        lone: &Report,
        reports: &[Report],
        began: u64,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let why = match reason_to_ignore(lone, reports, self.configured, failure.state) {
            Some(doubt) => doubt,
            None => match self.connect_to(lone, Some(known), began, deadline) {
                Ok(connection) => return Ok(connection),
                Err(it) => it.fault.reason().to_owned(),
            },
        };
        if let CallError::Server(_) | CallError::Untrusted(_) = failure.fault {
            // A retry does not cure an error such as a wrong password. So this error is not returned as `NotSent`.
            return Err(failure.fault.clone());
        }
        let told = format!(
            "{}; one sentinel names {} since failover {}, which is ignored: {why}",
            failure.fault.reason(),
            lone.node(),
            lone.epoch,
        );
        Err(CallError::NotSent(told.into()))
    }
}
