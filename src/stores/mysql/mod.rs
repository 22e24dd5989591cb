//! The store in a MySQL or MariaDB database: locks in a table, row locks and optimistic updates.
//!
//! A lock is one row, found by its name. The row stays after the release, until a purge. Its fencing token always rises.
//! One statement acquires a free or expired row, so expired rows need no clean-up. All times are from the server's clock.
//! Waiters poll. In each client, one thread polls for each name.

mod address;
mod call_error;
mod connection;
mod described_table;
mod keys;
mod lock_statements;
mod lock_table;
mod optimistic;
mod pool;
mod rows;
mod schema;
mod session;
mod survey;
pub(crate) mod values;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::prelude::FromRow;
use ::mysql::{Params, Row, params};

use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::error::{Error, Reason, Result};
use crate::ground::notify::Parker;
use crate::ground::sync::Mutex;
use crate::ground::time;
use crate::store::{
    ConnectionStats, Delivery, Facts, Granted, HealthWarning, Holding, InDoubt, Left, LockInfo,
    LockKind, Outcome, Position, Refusal, Released, Renewal, Store, StoreEntry, Subscription,
    SurveyOf,
};
use crate::stores::redis::Settings;

use address::Address;
use call_error::CallError;
pub(crate) use call_error::row_not_found;
pub(crate) use keys::{Ident, KeyedTable};
use lock_table::{Change, SentStatements, row_locked_reason};
pub(crate) use optimistic::VersionedTable;

use lock_statements::Statements;
use pool::{Pools, Request};
pub(crate) use rows::{LockedRows, sleep_until};
pub(crate) use session::Session;

/// The longest wait for a locked row, except in a user's transaction (`row_wait`). MySQL and MariaDB have no shorter
/// timeout, because they use whole seconds. An interrupt or a shutdown takes effect after at most this time.
const ROW_WAIT: Duration = Duration::from_secs(1);

/// A statement can take effect this long after its start, because it may wait for the table and then for the row.
const LATEST_EFFECT: Duration = Duration::from_secs(4);

/// The longest name of a lock in bytes, prefix included.
const LONGEST_NAME: usize = 255;

pub(crate) struct MySql {
    pools: Pools,
    statements: Statements,
    tables: schema::Tables,
    /// The tables that passed their check.
    known: Mutex<HashMap<Ident, Arc<described_table::Table>>>,
    facts: Facts,
    pub(crate) command_timeout: Duration,
}

impl MySql {
    pub(crate) fn open(url: &str, table: &str, settings: Settings) -> Result<MySql> {
        let tables = schema::Tables::named(table)?;
        let command_timeout = settings.command_timeout;
        let pools = Pools::new(Address::parse(url, settings)?);
        let area = format!("{}/{}", pools.address.node, tables.locks);
        Ok(MySql {
            pools,
            statements: Statements::new(&tables.locks.to_string()),
            tables,
            known: Mutex::default(),
            facts: Facts {
                refuses,
                is_polled: |_| true,
                lacks: "a lock in a database has no guarded writes, counts or conditions; Guard::transaction runs \
                    statements under the lock, and a lock in Redis has conditions",
                ..Facts::of(area, &Arc::default())
            },
            command_timeout,
        })
    }

    pub(crate) fn node(&self) -> &Arc<str> {
        &self.pools.address.node
    }

    pub(crate) fn deadline(&self) -> Instant {
        time::now() + self.command_timeout
    }

    /// The statement may run twice, so a second run must do no harm.
    pub(crate) fn query<T: FromRow>(
        &self,
        statement: &str,
        params: Params,
        deadline: Instant,
    ) -> Result<Vec<T>, CallError> {
        self.pools.run(Request::Repeatable, deadline, |connection| {
            connection.query(statement, params.clone(), deadline)
        })
    }

    pub(crate) fn error(&self, lock: &Arc<str>, error: CallError) -> Error {
        match error {
            // The library's own parameters are never wrong, so `Usage` means an unexpected row here.
            CallError::Usage(reason) => Error::Unexpected {
                lock: Arc::clone(lock),
                node: Arc::clone(self.node()),
                reason,
            },
            error => error.into_error(lock, self.node(), &self.tables.advice()),
        }
    }

    /// For statements on users' tables. The error contains no advice about the lock tables.
    pub(crate) fn error_of_users(&self, subject: &Arc<str>, error: CallError) -> Error {
        error.into_error(subject, self.node(), "")
    }

    /// A locked row becomes [`Error::Unavailable`], because users of a lock know nothing about its row.
    fn lock_error(&self, lock: &Arc<str>, error: CallError) -> Error {
        if error.is_busy() {
            return Error::Unavailable {
                lock: Arc::clone(lock),
                node: Arc::clone(self.node()),
                reason: row_locked_reason(error),
            };
        }
        self.error(lock, error)
    }

    fn unknown(
        &self,
        lock: &Arc<str>,
        visitor: Option<&VisitorId>,
        operation: &'static str,
        reason: Reason,
    ) -> Error {
        Error::unknown(lock, Arc::clone(self.node()), operation, visitor, reason)
    }
}

impl Store for MySql {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        match claim.count {
            0 => self.acquire_new(claim, deadline),
            count => {
                let enter = Change::Enter(count.saturating_add(1));
                self.change_hold(claim, enter, "acquire", deadline, |granted| granted)
            }
        }
    }

    fn release(
        &self,
        claim: &Claim,
        left: Left<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let (change, operation) = match left {
            Left::Levels(keep) => (Change::Leave(keep), "release"),
            Left::Successor(to) => (Change::Owner(to), "hand-over"),
            Left::Nothing | Left::NothingQuietly => return self.release_whole(claim, deadline),
        };
        self.change_hold(claim, change, operation, deadline, |granted| Released {
            successor: matches!(left, Left::Successor(_)).then_some(granted),
            ..Released::default()
        })
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let mut outcomes = Vec::with_capacity(claims.len());
        let outcome = self.pools.run(Request::Renewal, deadline, |connection| {
            for claim in claims.iter().skip(outcomes.len()) {
                // If a transaction has locked the row, `probe` fails at once. Without `probe`, the renewal would wait and
                // delay other renewals.
                let params = params! { "r" => &*claim.name };
                let is_free = connection.query::<Row>(&self.statements.probe, params, deadline);
                let mut copies = SentStatements::default();
                let renewed = is_free.and_then(|_| {
                    self.change_row(connection, claim, Change::Lease, deadline, &mut copies)
                });
                outcomes.push(match renewed {
                    Ok(Ok(_)) => Renewal::Renewed,
                    Ok(Err(cause)) => Renewal::Lost(cause),
                    Err(error) if error.is_busy() => Renewal::Unknown(row_locked_reason(error)),
                    Err(error) if error.keeps_connection() => Renewal::Unknown(error.reason()),
                    Err(error) => return Err(error),
                });
            }
            Ok(())
        });
        let reason = outcome.err().map(CallError::reason).unwrap_or_default();
        outcomes.resize(claims.len(), Renewal::Unknown(reason));
        outcomes
    }

    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool> {
        let outcome = self.pools.run(Request::Repeatable, deadline, |connection| {
            let params = params! { "r" => &*in_doubt.name, "o" => in_doubt.visitor.as_str() };
            connection.execute(&self.statements.release, params, deadline)?;
            match in_doubt.not_after(0) {
                // Until this server time, a late copy of the request may still be granted.
                Some(at) if at > 0 => Ok(connection.read_time()? / 1000 > at),
                _ => Ok(true),
            }
        });
        outcome.map_err(|error| self.lock_error(&in_doubt.name, error))
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        let name = &lock.name;
        let outcome = self.pools.run(Request::Once, deadline, |connection| {
            let params = params! { "r" => &**name };
            connection.execute(&self.statements.force_release, params, deadline)
        });
        match outcome {
            Ok((answer, _)) => Ok(answer > 0),
            Err(CallError::NoReply { reason, .. }) => {
                Err(self.unknown(name, None, "forced release", reason))
            }
            Err(error) => Err(self.lock_error(name, error)),
        }
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        let found = self.holder(&lock.name, deadline)?;
        let holder = found.as_ref().and_then(|found| found.holders.first());
        Ok(Holding {
            is_locked: holder.is_some(),
            count: match (holder, visitor) {
                (Some(holder), Some(me)) if holder.visitor == me.as_str() => holder.count,
                _ => 0,
            },
            remaining: found.and_then(|found| found.expires),
        })
    }

    fn survey(
        &self,
        of: SurveyOf<'_>,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        match of {
            SurveyOf::One(lock) => {
                let free = || LockInfo::free(&lock.name, LockKind::Fenced, Arc::clone(self.node()));
                Ok(vec![
                    self.holder(&lock.name, deadline)?.unwrap_or_else(free),
                ])
            }
            SurveyOf::All(scope) => self.survey_rows(scope, position, deadline),
        }
    }

    fn subscribe(
        &self,
        lock: &LockId,
        _: Option<StoreEntry<'_>>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let registration = self.facts.notifier.join(source, &lock.name, parker);
        Subscription::of(registration, Delivery::Polling)
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        schema::warnings(self, deadline)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn connections(&self) -> ConnectionStats {
        let idle = self.pools.idle();
        self.pools.address.settings.traffic.read(idle, false)
    }

    fn close(&self) {
        self.pools.close();
    }

    fn node(&self, _lock: Option<&str>) -> Arc<str> {
        Arc::clone(&self.pools.address.node)
    }
}

fn refuses(kind: Kind, name: &Arc<str>) -> Option<Error> {
    if kind != Kind::Reentrant {
        let reason = "this kind of lock is a key in Redis; in a database use lock(name)";
        return Some(Error::unsupported(name, reason));
    }
    (name.len() > LONGEST_NAME).then(|| Error::InvalidName {
        name: format!("{}…", name.chars().take(64).collect::<String>()),
        reason: "it is longer than 255 bytes, prefix included, which is the width of the column in the lock table",
    })
}

impl std::panic::RefUnwindSafe for MySql {}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MySql({})", self.facts.area)
    }
}
