//! The statements of the lock table, as text and nothing else, so that the tests can run them one by one.
//!
//! Each is one atomic statement on one row, found by the whole primary key: no statement ever waits for a second row
//! while it has a first, so there is nothing that could deadlock. What it did comes back in `LAST_INSERT_ID`, never in
//! the count of affected rows, whose meaning depends on a flag of the connection (`CLIENT_FOUND_ROWS`). Assignments
//! are in an order that is right whether they see the old values of the row or the new ones (MariaDB's
//! `SIMULTANEOUS_ASSIGNMENT`). Not used, because one of MySQL and MariaDB lacks or deprecates it: `RETURNING`,
//! `VALUES(column)`, a row alias, `WAIT n`, `max_statement_time`.

/// The server's time in microseconds since 1970, right in every time zone, which `UNIX_TIMESTAMP` is not.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// What an answer has to be at least to mean "somebody else has it"; the rest is how long still, in microseconds.
///
/// Below it lie the fencing numbers, which start at the time of a row's making.
pub(crate) const BUSY: u64 = 1 << 62;

/// The statements for one lock table, whose name stands in them.
#[derive(Debug)]
pub(crate) struct Statements {
    /// `:r` name, `:o` owner, `:us` lease, `:t` the server's time after which it is refused with error 1048.
    ///
    /// Answers the fencing number, or `BUSY` plus the remaining lease; 0 if a proxy in between dropped the answer.
    pub(crate) acquire: String,
    /// `:r`, `:o`, `:n` the count, `:us`, `:t`. Answers the fencing number, or 0 if it is not ours or it is too late.
    /// It may wait for the row and take effect behind a request that was sent later, so it never shortens the lease.
    pub(crate) enter: String,
    /// As `enter`, and the only one that shortens the lease: there must never be two copies of it.
    pub(crate) leave: String,
    /// `:r`, `:o`, `:us`, `:t`. As `enter`.
    pub(crate) renew: String,
    /// `:r`, `:o`, `:h` the heir, `:us` its lease, `:t`. Answers the heir's fencing number, or 0 as `enter`. A second
    /// copy finds the row with the heir, changes nothing and answers the same, so that a lost answer can be asked for
    /// again.
    pub(crate) transfer: String,
    /// `:r`, `:o`. Answers 2 if it was released in time, 1 if after the lease but before anybody else, 0 if not ours.
    pub(crate) release: String,
    /// `:r`. Answers a number above 0 if somebody held it.
    pub(crate) force_release: String,
    /// `:r`. A row of owner, count and remaining lease in microseconds, if there is an owner.
    pub(crate) inspect: String,
    /// `:r`. Refused at once if a transaction has the row. Not every server knows it.
    pub(crate) probe: String,
    /// `:r`, `:o`. The fencing number, if the lease has not ended; the row stays locked until the transaction ends.
    pub(crate) pin: String,
    /// `:r`, `:o`, `:us`. Only under a pin: nobody can have taken the row, so the lease may even be over.
    pub(crate) extend_pinned: String,
    /// `:us` how long free, `:k` how many names at most.
    pub(crate) purgeable: String,
    /// `:r`, `:us`.
    pub(crate) purge: String,
    pub(crate) create: String,
}

impl Statements {
    /// `table` is an identifier in back-ticks.
    pub(crate) fn new(table: &str) -> Statements {
        const FREE: &str = "(owner IS NULL OR expires_at <= UTC_TIMESTAMP(6))";
        const LEASED: &str = "UTC_TIMESTAMP(6) + INTERVAL :us MICROSECOND";
        // A name that comes back starts with the time as its number. So one goes only if its number lies as far back as
        // it has been free: the clock may be set back by that much afterwards.
        let old = format!(
            "owner IS NULL AND expires_at < UTC_TIMESTAMP(6) - INTERVAL :us MICROSECOND \
             AND CAST(fence AS SIGNED) < {NOW} - CAST(:us AS SIGNED)"
        );
        let mine = format!(
            "resource = :r AND owner = :o AND expires_at > UTC_TIMESTAMP(6) AND {NOW} <= :t"
        );
        Statements {
            // A name that is NULL is refused with error 1048: that is how a request that comes too late is told.
            // In the busy branch LAST_INSERT_ID has to be set anew, or the number made for the rejected row would
            // come back as a grant. A copy that finds the row with its own visitor leaves the count and shortens
            // nothing: more may have been built on the grant meanwhile. Where assignments see new values the row has
            // an owner by the time `expires_at` is set; that it was taken just now is then told by `acquired_at`.
            acquire: format!(
                "INSERT INTO {table} (resource, owner, holds, fence, acquired_at, expires_at) \
                 VALUES (IF({NOW} <= :t, :r, NULL), :o, 1, LAST_INSERT_ID({NOW}), \
                 UTC_TIMESTAMP(6), {LEASED}) \
                 ON DUPLICATE KEY UPDATE \
                 fence = IF({FREE}, LAST_INSERT_ID(fence + 1), IF(owner = :o, LAST_INSERT_ID(fence), \
                 fence + 0 * LAST_INSERT_ID({BUSY} + TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at)))), \
                 holds = IF({FREE}, 1, holds), \
                 acquired_at = IF({FREE}, UTC_TIMESTAMP(6), acquired_at), \
                 owner = IF({FREE} OR owner = :o, :o, owner), \
                 expires_at = IF({FREE} OR owner = :o, \
                 IF({FREE} OR acquired_at = UTC_TIMESTAMP(6), {LEASED}, GREATEST(expires_at, {LEASED})), \
                 expires_at)"
            ),
            enter: format!(
                "UPDATE {table} SET fence = LAST_INSERT_ID(fence), holds = :n, \
                 expires_at = GREATEST(expires_at, {LEASED}) WHERE {mine}"
            ),
            leave: format!(
                "UPDATE {table} SET fence = LAST_INSERT_ID(fence), holds = :n, expires_at = {LEASED} \
                 WHERE {mine}"
            ),
            renew: format!(
                "UPDATE {table} SET fence = LAST_INSERT_ID(fence), \
                 expires_at = GREATEST(expires_at, {LEASED}) WHERE {mine}"
            ),
            transfer: format!(
                "UPDATE {table} SET fence = LAST_INSERT_ID(fence + IF(owner = :h, 0, 1)), \
                 holds = IF(owner = :h, holds, 1), \
                 acquired_at = IF(owner = :h, acquired_at, UTC_TIMESTAMP(6)), \
                 expires_at = IF(owner = :h, expires_at, {LEASED}), owner = :h \
                 WHERE resource = :r AND owner IN (:o, :h) AND expires_at > UTC_TIMESTAMP(6) AND {NOW} <= :t"
            ),
            release: format!(
                "UPDATE {table} SET \
                 fence = fence + 0 * LAST_INSERT_ID(IF(expires_at > UTC_TIMESTAMP(6), 2, 1)), \
                 holds = 0, expires_at = UTC_TIMESTAMP(6), owner = NULL \
                 WHERE resource = :r AND owner = :o"
            ),
            force_release: format!(
                "UPDATE {table} SET fence = LAST_INSERT_ID(fence), \
                 holds = 0, expires_at = UTC_TIMESTAMP(6), owner = NULL \
                 WHERE resource = :r AND owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)"
            ),
            inspect: format!(
                "SELECT owner, holds, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) \
                 FROM {table} WHERE resource = :r AND owner IS NOT NULL"
            ),
            probe: format!("SELECT 1 FROM {table} WHERE resource = :r FOR UPDATE NOWAIT"),
            pin: format!(
                "SELECT fence FROM {table} \
                 WHERE resource = :r AND owner = :o AND expires_at > UTC_TIMESTAMP(6) FOR UPDATE"
            ),
            extend_pinned: format!(
                "UPDATE {table} SET fence = LAST_INSERT_ID(fence), \
                 expires_at = GREATEST(expires_at, {LEASED}) WHERE resource = :r AND owner = :o"
            ),
            purgeable: format!("SELECT resource FROM {table} WHERE {old} LIMIT :k"),
            purge: format!("DELETE FROM {table} WHERE resource = :r AND {old}"),
            // Bytes, because no text collation of both products tells 'Job' from 'job ' . No second index and no
            // AUTO_INCREMENT, because each of them was measured to bring deadlocks. DATETIME, because a TIMESTAMP
            // depends on the session's time zone and ends in 2038.
            create: format!(
                "CREATE TABLE IF NOT EXISTS {table} (\
                 resource VARBINARY(255) NOT NULL, \
                 owner VARBINARY(128) NULL, \
                 holds INT UNSIGNED NOT NULL, \
                 fence BIGINT UNSIGNED NOT NULL, \
                 acquired_at DATETIME(6) NOT NULL, \
                 expires_at DATETIME(6) NOT NULL, \
                 PRIMARY KEY (resource)) ENGINE=InnoDB"
            ),
        }
    }
}
