//! Locks in a table of a MySQL or MariaDB database, and what the other database locks share.
//!
//! One row per name. It stays when the lock is released, so that its fencing number always rises; whoever finds it
//! free, or its lease over, takes it over in the same statement that asks for it, so nothing has to be cleaned up. All
//! times are the server's. A waiter polls, one thread per process and name.

mod fault;
mod optimistic;
mod pool;
mod rows;
mod schema;
mod session;
mod sql;
pub(crate) mod value;
mod values;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, Kind, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Reason, Result};
use crate::ground::loss::LossCause;
use crate::ground::notify::{Notifier, Parker};
use crate::ground::sync::Mutex;
use crate::store::{
    Attempt, Delivery, HealthWarning, Holding, InDoubt, Purpose, Refusal, Release, Renewal, Store,
    Subscription, Transfer,
};
use crate::stores::quorum::quarantine::{NodeHandle, Quarantined};

pub(crate) use fault::CallError;
use fault::Class;
pub(crate) use optimistic::{Lookup, Update};
use pool::{Address, Connection, Pool, on_link};
pub(crate) use rows::{Wish, rest};
pub(crate) use schema::{Ident, Keyed};
pub(crate) use session::Session;
use sql::{BUSY, Statements};

pub(crate) use values::{from_driver, params_to_driver, rows_from_driver, to_driver};

use ::mysql::{Params, Row, params};

/// How often a request is sent anew because its clock turned out to be wrong, or a row was locked for a moment.
const CORRECTIONS: u32 = 3;

/// A statement waits this long for a row at most: the least that both products know, in whole seconds.
const ROW_WAIT: Duration = Duration::from_secs(1);

/// A statement may take effect this much later than it was begun: it can wait for the table and then for the row.
const LATEST_EFFECT: Duration = Duration::from_secs(4);

/// The longest name of a lock in bytes, prefix included.
const LONGEST_NAME: usize = 255;

/// What is wrong with a name beside what is wrong with it everywhere.
pub(crate) fn flaw(kind: Kind, name: &Arc<str>) -> Option<Error> {
    if kind != Kind::Reentrant {
        return Some(Error::Unsupported {
            lock: Arc::clone(name),
            reason: "a token lock is a key in Redis; a database has lock(name)".to_owned(),
        });
    }
    (name.len() > LONGEST_NAME).then(|| Error::InvalidName {
        name: format!("{}…", name.chars().take(64).collect::<String>()),
        reason: "it is longer than 255 bytes, prefix included, which is all that the lock table has room for",
    })
}

/// The settings of a client that concern its store.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) pool_size: u32,
    pub(crate) table: String,
}

/// The store of one client.
pub(crate) struct MySql {
    pool: Pool,
    /// The renewal thread's own connection; renewals never queue up behind other requests.
    renewals: Mutex<Option<Connection>>,
    statements: Statements,
    /// The lock table and that of the named rows.
    tables: schema::Tables,
    /// What was found out about tables, the lock table included.
    known: schema::Known,
    notifier: Arc<Notifier>,
    /// The visitors whose rows a transaction of this process has pinned.
    pinned: Mutex<HashSet<VisitorId>>,
    pub(crate) command_timeout: Duration,
}

impl MySql {
    pub(crate) fn open(url: &str, settings: Settings) -> Result<MySql> {
        let address = Arc::new(Address::parse(url, settings.connect_timeout)?);
        let tables = schema::Tables::named(&settings.table)?;
        Ok(MySql {
            pool: Pool::new(address, settings.pool_size)?,
            renewals: Mutex::default(),
            statements: Statements::new(&tables.locks.quoted()),
            tables,
            known: schema::Known::default(),
            notifier: Arc::default(),
            pinned: Mutex::default(),
            command_timeout: settings.command_timeout,
        })
    }

    pub(crate) fn node(&self) -> &Arc<str> {
        self.pool.node()
    }

    /// When a request that starts now has to be over.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.command_timeout
    }

    /// Runs a statement that changes nothing, or something that may be changed twice, and returns its rows.
    pub(crate) fn rows(
        &self,
        statement: &str,
        params: Params,
        deadline: Instant,
    ) -> Result<Vec<Row>, CallError> {
        self.pool.with(deadline, |connection| {
            connection.rows(statement, params.clone(), deadline)
        })
    }

    /// Runs a statement that must not run twice, and returns how many rows it touched.
    pub(crate) fn run_once(
        &self,
        statement: &str,
        params: Params,
        deadline: Instant,
    ) -> Result<u64, CallError> {
        self.pool.once(deadline, |connection| {
            connection
                .run(statement, params.clone(), deadline)
                .map(|(_, touched)| touched)
        })
    }

    /// Puts a fault into words.
    pub(crate) fn error(&self, lock: &Arc<str>, fault: CallError) -> Error {
        fault.into_error(lock, self.node(), &self.tables.advice())
    }

    /// As [`MySql::error`], for a statement on a table of the user's: making the tables of the locks does not help it.
    pub(crate) fn error_of_users(&self, subject: &Arc<str>, fault: CallError) -> Error {
        fault.into_error(subject, self.node(), "")
    }

    /// As [`MySql::error`], for a lock: that a row is locked for a moment is nothing its user knows of.
    fn lock_error(&self, lock: &Arc<str>, fault: CallError) -> Error {
        if fault.is_busy() {
            return Error::Unavailable {
                lock: Arc::clone(lock),
                node: Arc::clone(self.node()),
                reason: locked_words(fault),
            };
        }
        self.error(lock, fault)
    }

    fn unknown(
        &self,
        lock: &Arc<str>,
        visitor: Option<&VisitorId>,
        operation: &'static str,
        reason: Reason,
    ) -> Error {
        fault::unknown(lock, self.node(), operation, visitor, reason)
    }

    /// What is wrong with using the row of this hold from another connection than the one that has pinned it.
    fn pinned_error(&self, lock: &Arc<str>, visitor: &VisitorId) -> Option<Error> {
        let is_pinned = self.pinned.lock().contains(visitor);
        is_pinned.then(|| Error::in_its_transaction(lock))
    }

    /// Fails if a transaction of the calling thread has this row, through whichever client: to wait for it would be to
    /// wait for oneself.
    pub(crate) fn check_not_pinned_here(&self, name: &Arc<str>) -> Result<()> {
        let is_here = |pins: &RefCell<Vec<Pin>>| {
            let pins = pins.borrow();
            !pins.is_empty() && pins.contains(&self.pin_of(name))
        };
        // A thread past its thread-local values has no transaction.
        match PINS.try_with(is_here) {
            Ok(true) => Err(Error::in_its_transaction(name)),
            _ => Ok(()),
        }
    }

    fn pin_of(&self, name: &Arc<str>) -> Pin {
        Pin {
            pid: std::process::id(),
            place: self.place(),
            name: Arc::clone(name),
        }
    }

    /// Runs a statement on the row of one hold that carries the server's time after which it is refused, and tells
    /// what it answered and since when the lease counts.
    fn run_timed(
        &self,
        connection: &mut Connection,
        statement: &str,
        params: impl Fn(i64) -> Params,
        deadline: Instant,
        copies: &mut Copies,
    ) -> Result<(u64, BootInstant), CallError> {
        let mut corrections = 0;
        loop {
            let sent = BootInstant::now();
            let expiry = connection.expiry(deadline);
            copies.not_after = copies.not_after.max(expiry / 1000 + 1);
            match connection.run(statement, params(expiry), deadline) {
                Ok((answer, _)) => return Ok((answer, copies.lost.unwrap_or(sent))),
                Err(fault @ CallError::NoReply { .. }) => {
                    copies.lost.get_or_insert(sent);
                    return Err(fault);
                }
                Err(fault) if fault.class() == Some(Class::Late) => {
                    corrections += 1;
                    if corrections > CORRECTIONS {
                        return Err(CallError::NotSent(
                            "the server's clock runs away from ours".into(),
                        ));
                    }
                    connection.learn_time()?;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Whose row it is, how often held and how long still.
    fn look(
        connection: &mut Connection,
        statements: &Statements,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<Found>, CallError> {
        let rows = connection.rows(&statements.inspect, params! { "r" => name }, deadline)?;
        let Some(row) = rows.into_iter().next() else {
            return Ok(None);
        };
        let unreadable = |_| CallError::Usage("the lock table has rows of another kind".to_owned());
        let (owner, holds, left): (Vec<u8>, u32, i64) =
            ::mysql::from_row_opt(row).map_err(unreadable)?;
        Ok(Some(Found {
            owner: String::from_utf8_lossy(&owner).into_owned(),
            holds,
            left: u64::try_from(left)
                .ok()
                .map(Duration::from_micros)
                .filter(|left| !left.is_zero()),
        }))
    }

    /// Changes a row, which may be done only while it is ours.
    fn touch(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        change: Change<'_>,
        deadline: Instant,
        copies: &mut Copies,
    ) -> Result<Touch, CallError> {
        let lease = lease_of(claim);
        let mut corrections = 0;
        loop {
            let (name, owner) = (&*claim.name, claim.visitor.as_str());
            let (statement, params): (_, Box<dyn Fn(i64) -> Params>) = match change {
                Change::Enter(count) | Change::Leave(count) => (
                    match change {
                        Change::Leave(_) => &self.statements.leave,
                        _ => &self.statements.enter,
                    },
                    Box::new(
                        move |t| params! { "r" => name, "o" => owner, "n" => count, "us" => lease, "t" => t },
                    ),
                ),
                Change::Lease => (
                    &self.statements.renew,
                    Box::new(
                        move |t| params! { "r" => name, "o" => owner, "us" => lease, "t" => t },
                    ),
                ),
                Change::Owner(heir) => (
                    &self.statements.transfer,
                    Box::new(move |t| {
                        let (h, us) = (heir.visitor.as_str(), lease_of(heir));
                        params! { "r" => name, "o" => owner, "h" => h, "us" => us, "t" => t }
                    }),
                ),
            };
            let (answer, sent) =
                match self.run_timed(connection, statement, params, deadline, copies) {
                    // The row is locked for a moment; the statement was undone. A renewal has others behind it.
                    Err(fault)
                        if fault.is_busy()
                            && !matches!(change, Change::Lease)
                            && corrections < CORRECTIONS
                            && Instant::now() < deadline =>
                    {
                        corrections += 1;
                        continue;
                    }
                    outcome => outcome?,
                };
            if answer > 0 {
                return Ok(Touch::Done {
                    sent,
                    fence: answer,
                });
            }
            match MySql::look(connection, &self.statements, &claim.name, deadline)? {
                Some(found) if change.is_of(&found.owner, claim) && found.left.is_some() => {
                    // Ours, so it came too late: our idea of the server's clock was off.
                    corrections += 1;
                    if corrections > CORRECTIONS || Instant::now() >= deadline {
                        return Err(CallError::NotSent("it reached the server too late".into()));
                    }
                    connection.learn_time()?;
                }
                Some(found) if found.left.is_some() => {
                    return Ok(Touch::Gone(LossCause::held_by(&found.owner)));
                }
                _ => return Ok(Touch::Gone(LossCause::Gone)),
            }
        }
    }

    /// Renews one hold, without a wait for its row.
    fn renew_one(
        &self,
        connection: &mut Connection,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Touch, CallError> {
        if !connection.refuse_at_once(deadline)? {
            // The renewal itself could wait for a second, so the row is asked for before.
            let params = params! { "r" => &*claim.name };
            match connection.rows(&self.statements.probe, params, deadline) {
                // A server without NOWAIT.
                Ok(_) | Err(CallError::Server { code: 1064, .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        let mut copies = Copies::default();
        self.touch(connection, claim, Change::Lease, deadline, &mut copies)
    }

    fn touch_pooled(
        &self,
        claim: &Claim,
        change: Change<'_>,
        deadline: Instant,
    ) -> (Result<Touch, CallError>, i64) {
        let mut copies = Copies::default();
        let talk = |connection: &mut Connection| {
            self.touch(connection, claim, change, deadline, &mut copies)
        };
        let outcome = match change {
            // A late copy would shorten the lease under those that were sent meanwhile.
            Change::Leave(_) => self.pool.once(deadline, talk),
            Change::Enter(_) | Change::Lease | Change::Owner(_) => self.pool.with(deadline, talk),
        };
        let outcome = match outcome {
            // What became of the copy without an answer is not known, whatever the last one met with.
            Err(fault) if copies.lost.is_some() => Err(CallError::NoReply {
                reason: fault.into_reason(),
                timed_out: true,
            }),
            outcome => outcome,
        };
        (outcome, copies.not_after)
    }

    /// Takes the lock for a visitor that holds nothing yet.
    fn take(&self, claim: &Claim, deadline: Instant) -> Result<Attempt> {
        self.check_not_pinned_here(&claim.name)?;
        self.check_lock_table(&claim.name, deadline)?;
        let lease = lease_of(claim);
        let mut copies = Copies::default();
        let is_short = deadline.saturating_duration_since(Instant::now()) < ROW_WAIT * 6 / 5;
        // One copy, because another one that is late could take the lock again for a visitor that has released it.
        let outcome = self.pool.once(deadline, |connection| {
            if is_short {
                // A row that a transaction has pinned is waited for longer than there is time; a plain read is not.
                if let Some(found) = MySql::look(connection, &self.statements, &claim.name, deadline)? {
                    if let Some(left) = found.left {
                        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
                        return Ok((BUSY.saturating_add(left), BootInstant::now()));
                    }
                    // Its lease is over, but a transaction may have pinned it, which only asking without a wait tells.
                    let params = params! { "r" => &*claim.name };
                    match connection.rows(&self.statements.probe, params, deadline) {
                        // A server without NOWAIT.
                        Ok(_) | Err(CallError::Server { code: 1064, .. }) => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
            self.run_timed(
                connection,
                &self.statements.acquire,
                |t| params! { "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => lease, "t" => t },
                deadline,
                &mut copies,
            )
        });
        let refused = |left| {
            Ok(Attempt::Refused(Refusal {
                retry_after: Some(left),
                ..Refusal::default()
            }))
        };
        match outcome {
            Ok((0, _)) => {
                // Whether it was granted is not known; the answer that would say so is not to be had here.
                self.resolve(&mut claim.in_doubt(0), deadline)?;
                Err(Error::Unsupported {
                    lock: Arc::clone(&claim.name),
                    reason: format!(
                        "{} does not hand on LAST_INSERT_ID: connect without a proxy, or with one that leaves answers as they are",
                        self.node()
                    ),
                })
            }
            Ok((answer, _)) if answer >= BUSY => refused(Duration::from_micros(answer - BUSY)),
            Ok((fence, sent)) => Ok(Attempt::Granted {
                sent,
                fence: Some(fence),
                // No copy shortens a lease.
                leftover: None,
            }),
            // Somebody has the row locked at this moment.
            Err(fault) if fault.is_busy() => refused(Duration::from_secs(1)),
            // Only the look before it got no answer.
            Err(CallError::NoReply { reason, .. }) if copies.lost.is_none() => {
                Err(self.error(&claim.name, CallError::NotSent(reason)))
            }
            Err(CallError::NoReply { reason, .. }) => Ok(Attempt::Unknown {
                in_doubt: claim.in_doubt(copies.not_after.saturating_add(millis(LATEST_EFFECT))),
                error: self.unknown(&claim.name, Some(&claim.visitor), "acquire", reason),
            }),
            Err(fault) => Err(self.error(&claim.name, fault)),
        }
    }

    fn release_once(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Option<LossCause>, CallError> {
        self.pool.with(deadline, |connection| {
            let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
            let (answer, _) = connection.run(&self.statements.release, params, deadline)?;
            if answer > 0 {
                return Ok(None);
            }
            Ok(Some(
                match MySql::look(connection, &self.statements, &claim.name, deadline)? {
                    Some(found) if found.left.is_some() => LossCause::held_by(&found.owner),
                    _ => LossCause::Gone,
                },
            ))
        })
    }

    /// Puts the row of a hold under the protection of a transaction; `None` if the hold is gone.
    pub(crate) fn pin(&self, claim: &Claim, idle_limit: Duration) -> Result<Option<Session>> {
        // Without transactions in the table's engine a pin holds nothing.
        self.check_lock_table(&claim.name, self.deadline())?;
        let permit = self.pool.transaction_slot(self.deadline());
        let permit = permit.map_err(|fault| self.error(&claim.name, fault))?;
        let mut session = Session::begin(self, &claim.name, None, Some(idle_limit), permit)?;
        let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
        let rows = session.select(&self.statements.pin, params)?;
        Ok((!rows.is_empty()).then_some(session))
    }

    /// Extends the lease of a pinned hold within its transaction. Returns whether the row is still ours.
    pub(crate) fn extend_pinned(&self, session: &mut Session, claim: &Claim) -> Result<bool> {
        let params = params! {
            "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => lease_of(claim)
        };
        Ok(session.change(&self.statements.extend_pinned, params)?.0 > 0)
    }

    /// Why the row of a hold is not its own any more.
    pub(crate) fn cause_of_loss(&self, claim: &Claim) -> Result<LossCause> {
        let deadline = self.deadline();
        let found = self.pool.with(deadline, |connection| {
            MySql::look(connection, &self.statements, &claim.name, deadline)
        });
        Ok(
            match found.map_err(|fault| self.lock_error(&claim.name, fault))? {
                Some(found) if found.owner != claim.visitor.as_str() && found.left.is_some() => {
                    LossCause::held_by(&found.owner)
                }
                _ => LossCause::Gone,
            },
        )
    }

    /// Notes that a transaction of the calling thread has the row of this visitor.
    pub(crate) fn note_pinned(&self, name: &Arc<str>, visitor: &VisitorId) {
        self.pinned.lock().insert(visitor.clone());
        let _ = PINS.try_with(|pins| pins.borrow_mut().push(self.pin_of(name)));
    }

    /// Notes that it has it no longer.
    pub(crate) fn note_unpinned(&self, name: &Arc<str>, visitor: &VisitorId) {
        self.pinned.lock().remove(visitor);
        let pin = self.pin_of(name);
        let _ = PINS.try_with(|pins| pins.borrow_mut().retain(|other| *other != pin));
    }
}

/// A row of a lock table that a transaction has.
#[derive(PartialEq, Eq)]
struct Pin {
    /// A forked thread has a copy of what its parent has pinned.
    pid: u32,
    place: Arc<str>,
    name: Arc<str>,
}

thread_local! {
    /// The rows that transactions of this thread have. Each begins and ends on one thread.
    static PINS: RefCell<Vec<Pin>> = const { RefCell::new(Vec::new()) };
}

/// What stands in the row of a lock that has an owner.
struct Found {
    owner: String,
    holds: u32,
    /// `None` if the lease is over.
    left: Option<Duration>,
}

/// What is to be changed in the row of a hold.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// One level more, which makes this count.
    Enter(u32),
    /// One level less.
    Leave(u32),
    Lease,
    /// It becomes the hold of this claim.
    Owner(&'a Claim),
}

impl Change<'_> {
    /// Whether a row with this owner is the one to be changed, or was changed already.
    fn is_of(&self, owner: &str, claim: &Claim) -> bool {
        owner == claim.visitor.as_str()
            || matches!(self, Change::Owner(heir) if owner == heir.visitor.as_str())
    }
}

/// The copies of one request that were sent.
#[derive(Default)]
struct Copies {
    /// The latest of the server's times from which on one of them is refused, in ms.
    not_after: i64,
    /// When the first of those was sent that got no answer: it may run later than those behind it.
    lost: Option<BootInstant>,
}

/// What became of a statement on the row of a hold.
enum Touch {
    Done { sent: BootInstant, fence: u64 },
    Gone(LossCause),
}

fn locked_words(fault: CallError) -> String {
    format!(
        "the row of the lock is locked by a transaction ({})",
        fault.reason()
    )
}

fn lease_of(claim: &Claim) -> u64 {
    u64::try_from(claim.lease.as_micros()).unwrap_or(u64::MAX)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

impl Store for MySql {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Attempt> {
        if claim.count == 0 {
            return self.take(claim, deadline);
        }
        if let Some(error) = self.pinned_error(&claim.name, &claim.visitor) {
            return Err(error);
        }
        let (outcome, not_after) = self.touch_pooled(
            claim,
            Change::Enter(claim.count.saturating_add(1)),
            deadline,
        );
        match outcome {
            Ok(Touch::Done { sent, fence }) => Ok(Attempt::Granted {
                sent,
                fence: Some(fence),
                // No copy shortens a lease.
                leftover: None,
            }),
            Ok(Touch::Gone(cause)) => Ok(Attempt::Lost(cause)),
            Err(CallError::NoReply { reason, .. }) => Ok(Attempt::Unknown {
                in_doubt: claim.in_doubt(not_after.saturating_add(millis(LATEST_EFFECT))),
                error: self.unknown(&claim.name, Some(&claim.visitor), "acquire", reason),
            }),
            Err(fault) => Err(self.lock_error(&claim.name, fault)),
        }
    }

    fn release_level(&self, claim: &Claim, deadline: Instant) -> Result<Release> {
        if let Some(error) = self.pinned_error(&claim.name, &claim.visitor) {
            return Err(error);
        }
        let change = Change::Leave(claim.count.saturating_sub(1).max(1));
        let (outcome, not_after) = self.touch_pooled(claim, change, deadline);
        match outcome {
            Ok(Touch::Done { .. }) => Ok(Release::done()),
            Ok(Touch::Gone(cause)) => Ok(Release::NotHeld(cause)),
            Err(CallError::NoReply { reason, .. }) => Ok(Release::Unknown {
                in_doubt: claim.in_doubt(not_after.saturating_add(millis(LATEST_EFFECT))),
                error: self.unknown(&claim.name, Some(&claim.visitor), "release", reason),
            }),
            Err(fault) => Err(self.lock_error(&claim.name, fault)),
        }
    }

    fn release(&self, claim: &Claim, deadline: Instant) -> Result<Release> {
        if let Some(error) = self.pinned_error(&claim.name, &claim.visitor) {
            return Err(error);
        }
        // Half the time for the first try, so that a lost reply leaves time for the second.
        let now = Instant::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        let outcome = match self.release_once(claim, half) {
            Err(CallError::NoReply { .. }) => match self.release_once(claim, deadline) {
                // The first one did it: nobody else can have freed this visitor's hold and nothing proves a loss.
                Ok(_) => Ok(None),
                // Whether the first one did it is not known, whatever became of the second.
                Err(fault) => Err(CallError::NoReply {
                    reason: fault.into_reason(),
                    timed_out: true,
                }),
            },
            Err(CallError::NotSent(_)) if Instant::now() < half => {
                self.release_once(claim, deadline)
            }
            // The row was locked for a moment, by a visitor that waits for it.
            Err(fault) if fault.is_busy() => self.release_once(claim, deadline),
            outcome => outcome,
        };
        match outcome {
            // Who polls from another process is not known here, and is not waited for.
            Ok(None) => Ok(Release::done()),
            Ok(Some(cause)) => Ok(Release::NotHeld(cause)),
            Err(CallError::NoReply { reason, .. }) => Ok(Release::Unknown {
                // Any later answer settles it: the request itself can only free.
                in_doubt: claim.in_doubt(0),
                error: self.unknown(&claim.name, Some(&claim.visitor), "release", reason),
            }),
            Err(fault) => Err(self.lock_error(&claim.name, fault)),
        }
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        if claims.is_empty() {
            return Vec::new();
        }
        // Taken out, not locked, while it is in use.
        let mut place = self.renewals.lock().take();
        let mut outcomes: Vec<Option<Renewal>> = vec![None; claims.len()];
        let talked = on_link(
            &mut place,
            self.pool.address(),
            deadline,
            &mut |connection| {
                // A row that another transaction has is asked for twice, the second time behind all others, and waited for
                // never: that transaction may last for long, and the others have to be renewed meanwhile. The watchdog
                // comes back.
                for is_last in [false, true] {
                    for (claim, outcome) in claims.iter().zip(&mut outcomes) {
                        if outcome.is_some() {
                            continue;
                        }
                        *outcome = match self.renew_one(connection, claim, deadline) {
                            Ok(Touch::Done { .. }) => Some(Renewal::Renewed),
                            Ok(Touch::Gone(cause)) => Some(Renewal::Lost(cause)),
                            Err(fault) if fault.is_busy() => {
                                is_last.then(|| Renewal::Unknown(locked_words(fault)))
                            }
                            Err(fault) if fault.leaves_sound() => {
                                Some(Renewal::Unknown(fault.reason()))
                            }
                            Err(fault) => return Err(fault),
                        };
                    }
                }
                Ok(())
            },
        );
        *self.renewals.lock() = place;
        let rest = match talked {
            Ok(()) => String::new(),
            Err(fault) => fault.reason(),
        };
        let or_rest = |outcome: Option<Renewal>| outcome.unwrap_or(Renewal::Unknown(rest.clone()));
        outcomes.into_iter().map(or_rest).collect()
    }

    fn transfer(&self, from: &Claim, to: &Claim, deadline: Instant) -> Result<Transfer> {
        if let Some(error) = self.pinned_error(&from.name, &from.visitor) {
            return Err(error);
        }
        let (outcome, not_after) = self.touch_pooled(from, Change::Owner(to), deadline);
        match outcome {
            Ok(Touch::Done { sent, fence }) => Ok(Transfer::Done {
                sent,
                fence: Some(fence),
                // Who polls from another process is not known here; the line sets the lock free now and then anyway.
                others_wait: false,
            }),
            Ok(Touch::Gone(cause)) => Ok(Transfer::NotHeld(cause)),
            Err(CallError::NoReply { reason, .. }) => Ok(Transfer::Unknown {
                in_doubts: Box::new([
                    from.in_doubt(0),
                    to.in_doubt(not_after.saturating_add(millis(LATEST_EFFECT))),
                ]),
                error: self.unknown(&from.name, Some(&from.visitor), "hand-over", reason),
            }),
            Err(fault) => Err(self.lock_error(&from.name, fault)),
        }
    }

    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool> {
        if self.pinned.lock().contains(&in_doubt.visitor) {
            return Ok(false);
        }
        let outcome = self.pool.with(deadline, |connection| {
            let params = params! { "r" => &*in_doubt.name, "o" => in_doubt.visitor.as_str() };
            connection.run(&self.statements.release, params, deadline)?;
            connection.learn_time()
        });
        match outcome {
            Ok(now) => Ok(now / 1000 > in_doubt.not_after(0)),
            Err(fault) => Err(self.lock_error(&in_doubt.name, fault)),
        }
    }

    fn force_release(&self, _: Kind, name: &Arc<str>, deadline: Instant) -> Result<bool> {
        self.check_not_pinned_here(name)?;
        let outcome = self.pool.once(deadline, |connection| {
            let params = params! { "r" => &**name };
            connection.run(&self.statements.force_release, params, deadline)
        });
        match outcome {
            Ok((answer, _)) => Ok(answer > 0),
            Err(CallError::NoReply { reason, .. }) => {
                Err(self.unknown(name, None, "forced release", reason))
            }
            Err(fault) => Err(self.lock_error(name, fault)),
        }
    }

    fn inspect(
        &self,
        _: Kind,
        name: &Arc<str>,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        let found = self
            .pool
            .with(deadline, |connection| {
                MySql::look(connection, &self.statements, name, deadline)
            })
            .map_err(|fault| self.lock_error(name, fault))?;
        Ok(match found {
            Some(found) if found.left.is_some() => Holding {
                is_locked: true,
                count: match visitor {
                    Some(visitor) if visitor.as_str() == found.owner => found.holds,
                    _ => 0,
                },
                remaining: found.left,
            },
            _ => Holding::default(),
        })
    }

    fn subscribe(
        &self,
        _: Kind,
        name: &Arc<str>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        Subscription {
            registration: self.notifier.join_as(source, name, parker),
            delivery: Delivery::Polling,
            jitter: Duration::ZERO,
            keep: None,
        }
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        schema::warnings(self, deadline)
    }

    fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    fn close(&self) {
        *self.renewals.lock() = None;
        self.pool.close();
    }

    fn node(&self) -> Arc<str> {
        Arc::clone(self.pool.node())
    }

    fn place(&self) -> Arc<str> {
        format!("{}/{}", self.pool.place(), self.tables.locks.quoted()).into()
    }

    fn enlist(
        &self,
        _: &NodeHandle,
        _: Purpose<'_>,
        _: Instant,
    ) -> Result<Result<(), Quarantined>> {
        Err(Error::InvalidConfig {
            setting: "the nodes of a quorum",
            reason: format!(
                "{} is a database; a quorum is made of Redis servers",
                self.node()
            ),
        })
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySql")
            .field("node", self.node())
            .field("table", &self.tables.locks)
            .finish_non_exhaustive()
    }
}
