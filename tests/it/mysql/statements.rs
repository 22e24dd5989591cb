//! The truth table of the statements of the lock table, under every setting that could change their results.

#[path = "../../../src/stores/mysql/lock_statements.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the same file as in the library, where all of it is used"
)]
mod sql;

use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable;
use mysql::{Conn, Error, Params, params};

use super::database;
use sql::{BUSY, NOW, Statements};

/// A session with one combination of settings.
struct Session {
    conn: Conn,
    statements: Statements,
}

const LEASE: u64 = 30_000_000;
const HOUR: i64 = 3600;

impl Session {
    fn run(&mut self, statement: &str, params: Params) -> u64 {
        self.try_run(statement, params)
            .unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    fn try_run(&mut self, statement: &str, params: Params) -> mysql::Result<u64> {
        self.conn.exec_drop(statement, params)?;
        Ok(self.conn.last_insert_id())
    }

    fn now(&mut self) -> i64 {
        self.conn
            .query_first(format!("SELECT {NOW}"))
            .unwrap()
            .unwrap()
    }

    fn acquire(&mut self, owner: &str) -> u64 {
        let statement = self.statements.acquire.clone();
        let t = self.now() + 2_000_000;
        self.run(
            &statement,
            params! { "r" => "orders", "o" => owner, "us" => LEASE, "t" => t },
        )
    }

    fn enter(&mut self, owner: &str, n: u32, lease: u64) -> u64 {
        let statement = self.statements.enter.clone();
        self.set_count(&statement, owner, n, lease)
    }

    fn leave(&mut self, owner: &str, n: u32, lease: u64) -> u64 {
        let statement = self.statements.leave.clone();
        self.set_count(&statement, owner, n, lease)
    }

    fn set_count(&mut self, statement: &str, owner: &str, n: u32, lease: u64) -> u64 {
        let t = self.now() + 2_000_000;
        self.run(
            statement,
            params! { "r" => "orders", "o" => owner, "n" => n, "us" => lease, "t" => t },
        )
    }

    fn renew(&mut self, owner: &str, late: bool) -> u64 {
        let statement = self.statements.renew.clone();
        let t = self.now() + if late { -1 } else { 2_000_000 };
        self.run(
            &statement,
            params! { "r" => "orders", "o" => owner, "us" => LEASE, "t" => t },
        )
    }

    fn transfer(&mut self, owner: &str, heir: &str) -> u64 {
        let statement = self.statements.transfer.clone();
        let t = self.now() + 2_000_000;
        self.run(
            &statement,
            params! { "r" => "orders", "o" => owner, "h" => heir, "us" => LEASE, "t" => t },
        )
    }

    fn release(&mut self, owner: &str) -> u64 {
        let statement = self.statements.release.clone();
        self.run(&statement, params! { "r" => "orders", "o" => owner })
    }

    fn force_release(&mut self) -> u64 {
        let statement = self.statements.force_release.clone();
        self.run(&statement, params! { "r" => "orders" })
    }

    fn row(&mut self) -> Option<(String, u32, i64)> {
        let statement = self.statements.inspect.clone();
        let found: Option<(String, String, u32, i64, u64)> = self
            .conn
            .exec_first(statement, params! { "r" => "orders" })
            .unwrap();
        found.map(|(_, owner, holds, left, _)| (owner, holds, left))
    }

    /// Moves this session's clock forward by `seconds`, so that leases end without a sleep.
    fn shift(&mut self, seconds: i64) {
        self.conn.query_drop("SET timestamp = DEFAULT").unwrap();
        if seconds != 0 {
            self.conn
                .query_drop(format!("SET timestamp = UNIX_TIMESTAMP() + {seconds}"))
                .unwrap();
        }
    }
}

#[test]
fn every_statement_answers_the_same_in_every_setting() {
    let database = database();
    let mut combinations = 0;
    for found_rows in [false, true] {
        for simultaneous in [false, true] {
            for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
                for zone in ["+00:00", "+08:00", "-03:30"] {
                    for snapshot in [false, true] {
                        let conn = database.conn_with(|options| {
                            if found_rows {
                                options.additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
                            } else {
                                options
                            }
                        });
                        let mut session = Session {
                            conn,
                            statements: Statements::new("`redlatch`"),
                        };
                        if simultaneous {
                            session
                                .conn
                                .query_drop(
                                    "SET sql_mode = CONCAT(@@sql_mode, ',SIMULTANEOUS_ASSIGNMENT')",
                                )
                                .unwrap();
                        }
                        for setting in [
                            format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"),
                            format!("SET time_zone = '{zone}'"),
                            format!("SET innodb_snapshot_isolation = {}", i32::from(snapshot)),
                        ] {
                            session.conn.query_drop(setting).unwrap();
                        }
                        truth_table(&mut session);
                        combinations += 1;
                    }
                }
            }
        }
    }
    assert_eq!(combinations, 72);
}

fn truth_table(s: &mut Session) {
    s.conn.query_drop("DELETE FROM redlatch").unwrap();
    // A new row: the fencing number is the server's time.
    let before = s.now();
    let first = s.acquire("a");
    assert!(first >= before as u64 && first <= s.now() as u64, "{first}");
    let (owner, holds, left) = s.row().unwrap();
    assert_eq!((&*owner, holds), ("a", 1));
    assert!(left > 29_000_000 && left <= 30_000_000, "{left}");
    // A repeated request is the same grant.
    assert_eq!(s.acquire("a"), first);
    // Held, with the remaining time.
    let busy = s.acquire("b");
    assert!(
        busy > BUSY + 29_000_000 && busy <= BUSY + 30_000_000,
        "{busy}"
    );
    assert_eq!(s.row().unwrap().0, "a");
    // Only the owner changes counts and renews.
    assert_eq!(s.enter("a", 2, LEASE), first);
    assert_eq!(s.enter("b", 7, LEASE), 0);
    assert_eq!(s.row().unwrap().1, 2);
    // A request executed after a later request shortens no lease and lowers no count.
    assert_eq!(s.enter("a", 2, 2 * LEASE), first);
    assert_eq!(s.enter("a", 3, 1000), first);
    assert_eq!(s.renew("a", false), first);
    assert_eq!(s.acquire("a"), first);
    let (_, holds, left) = s.row().unwrap();
    assert!(holds == 3 && left > 59_000_000, "{holds} {left}");
    // Only the end of a level changes it, and sets the lease of the remaining levels.
    assert_eq!(s.leave("b", 2, LEASE), 0);
    assert_eq!(s.leave("a", 2, LEASE), first);
    let (_, holds, left) = s.row().unwrap();
    assert!(holds == 2 && left <= 30_000_000, "{holds} {left}");
    assert_eq!(s.renew("a", false), first);
    assert_eq!(s.renew("b", false), 0);
    assert_eq!(s.renew("a", true), 0, "it came too late");
    assert_eq!(s.release("b"), 0);
    assert_eq!(s.release("a"), 2);
    assert_eq!(s.release("a"), 0);
    assert_eq!(s.row(), None);
    assert_eq!(s.renew("a", false), 0, "a released lock is not revived");
    assert_eq!(s.acquire("b"), first + 1);
    assert_eq!(s.row().unwrap().1, 1, "the count starts anew");
    // An hour later the lease has ended: it can be released or taken over, but not renewed.
    s.shift(HOUR);
    assert_eq!(s.renew("b", false), 0, "an expired lease is not revived");
    assert_eq!(s.enter("b", 2, LEASE), 0);
    assert_eq!(s.force_release(), 0, "nobody holds it");
    assert_eq!(s.release("b"), 1, "late, but before anybody else");
    s.shift(0);
    assert_eq!(s.acquire("b"), first + 2);
    s.shift(HOUR);
    assert_eq!(s.acquire("c"), first + 3, "a steal");
    let (owner, holds, left) = s.row().unwrap();
    assert_eq!((&*owner, holds), ("c", 1));
    assert!(left > 29_000_000, "the new lease is whole: {left}");
    assert_eq!(s.release("b"), 0, "a stale release");
    assert_eq!(s.row().unwrap().0, "c");
    // The same owner after its end is a new hold.
    s.shift(2 * HOUR);
    assert_eq!(s.acquire("c"), first + 4);
    assert!(s.force_release() > 0);
    assert_eq!(s.release("c"), 0);
    assert_eq!(s.acquire("d"), first + 5);
    // Handed to a successor, with its own number and a count of one.
    assert_eq!(s.enter("d", 3, LEASE), first + 5);
    assert_eq!(s.transfer("d", "e"), first + 6);
    let (owner, holds, _) = s.row().unwrap();
    assert_eq!((&*owner, holds), ("e", 1));
    assert_eq!(s.enter("e", 2, 2 * LEASE), first + 6);
    assert_eq!(s.transfer("d", "e"), first + 6, "the same request again");
    let (_, holds, left) = s.row().unwrap();
    assert!(holds == 2 && left > 59_000_000, "{holds} {left}");
    assert_eq!(s.transfer("d", "f"), 0, "it is not its any more");
    assert_eq!(s.release("d"), 0);
    s.shift(4 * HOUR);
    assert_eq!(s.transfer("e", "f"), 0, "an expired lease is not handed on");
    // A late request changes nothing.
    s.release("e");
    let (statement, t) = (s.statements.acquire.clone(), s.now() - 1);
    for name in ["orders", "fresh"] {
        let late = s.try_run(
            &statement,
            params! { "r" => name, "o" => "e", "us" => LEASE, "t" => t },
        );
        assert!(matches!(late, Err(Error::MySqlError(error)) if error.code == 1048));
    }
    assert_eq!(s.row(), None);
    // The clock was set back since the release: the lease is still that of the new holder.
    s.conn
        .query_drop("UPDATE redlatch SET expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 DAY")
        .unwrap();
    assert!(s.acquire("g") < BUSY);
    let (_, _, left) = s.row().unwrap();
    assert!(left > 29_000_000 && left <= 30_000_000, "{left}");
    s.release("g");
    let rows: u64 = s
        .conn
        .query_first("SELECT COUNT(*) FROM redlatch")
        .unwrap()
        .unwrap();
    assert_eq!(rows, 1);
    s.shift(0);
}

#[test]
fn no_statement_uses_what_one_of_the_products_lacks() {
    let statements = format!("{:?}", Statements::new("`redlatch`"));
    for word in [
        "RETURNING",
        " VALUES(",
        "AS new",
        "WAIT ",
        "max_statement_time",
        "NOW()",
        "SYSDATE",
    ] {
        assert!(!statements.contains(word), "{word}");
    }
}
