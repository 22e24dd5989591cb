//! The statements of the lock table as text, so that tests can run them one by one.
//!
//! Each statement that writes is atomic and changes one row, found by the whole primary key. No statement waits for a
//! second row while it has locked one, so none can deadlock. The reply is in `LAST_INSERT_ID`, because the count of
//! affected rows depends on the connection flag `CLIENT_FOUND_ROWS`. The assignments have the same effect whether they
//! see the old or the new values of the row, so MariaDB's `SIMULTANEOUS_ASSIGNMENT` has no effect. `RETURNING`,
//! `VALUES(column)`, row aliases, `WAIT n` and `max_statement_time` are not used, because MySQL or MariaDB lacks or
//! deprecates each of these.

/// The server's time in microseconds since 1970. Unlike `UNIX_TIMESTAMP`, it does not depend on the time zone.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// A reply of this value or more means that another owner holds the lock. The excess is the remaining lease in µs.
/// Fencing tokens are smaller.
pub(crate) const BUSY: u64 = 1 << 62;

#[derive(Debug)]
pub(crate) struct Statements {
    /// `:r` name, `:o` owner, `:us` lease and `:t` server time in µs. After `:t`, the statement fails with error 1048.
    /// Returns the fencing token, or `BUSY` plus the remaining lease. Returns 0 if a proxy removed `LAST_INSERT_ID`.
    pub(crate) acquire: String,
    /// `:r`, `:o`, `:n` the count, `:us`, `:t`. Returns the fencing token, or 0 if `:o` does not hold the lock or the
    /// request is late. The statement never shortens the lease, because it may wait for the row and take effect after a
    /// later request.
    pub(crate) enter: String,
    /// Like `enter`, but this statement can shorten the lease, so it must never be sent twice.
    pub(crate) leave: String,
    /// `:r`, `:o`, `:us`, `:t`. Returns the same as `enter`.
    pub(crate) renew: String,
    /// `:r`, `:o`, `:h` the successor, `:us` its lease, `:t`. Returns the successor's fencing token, or 0 in the same
    /// cases as `enter`. The statement may be sent twice: a second copy changes nothing and returns the same token.
    pub(crate) transfer: String,
    /// `:r`, `:o`. Returns 2 if the lease had not ended. Returns 1 if the lease had ended, but no other owner had acquired
    /// the row. Returns 0 if `:o` does not own the row.
    pub(crate) release: String,
    /// `:r`. Returns a positive number if the lock was held.
    pub(crate) force_release: String,
    /// `:r`. If the lock is held, returns its name, owner, count, remaining lease in microseconds and fencing token.
    pub(crate) inspect: String,
    /// `:a` the first name, `:z` the exclusive end of the names, `:k` the page size. Returns the columns of `inspect` for
    /// each held lock, ordered by name.
    pub(crate) survey: String,
    /// `:r`. Fails at once if a transaction has locked the row.
    pub(crate) probe: String,
    /// `:r`, `:o`. If the lease has not ended, the statement returns the fencing token, and locks the row until the
    /// transaction ends.
    pub(crate) pin: String,
    /// `:r`, `:o`, `:us`. Must run in the transaction of `pin`, which keeps the row locked even after the lease.
    pub(crate) extend_pinned: String,
    /// `:us` how long a row must have been unlocked, `:k` the largest number of names.
    pub(crate) purgeable: String,
    /// `:r` name, `:us` how long the row must have been unlocked.
    pub(crate) purge: String,
}

impl Statements {
    /// `table` must be an identifier in backticks.
    pub(crate) fn new(table: &str) -> Statements {
        const FREE: &str = "(owner IS NULL OR expires_at <= UTC_TIMESTAMP(6))";
        const LEASED: &str = "UTC_TIMESTAMP(6) + INTERVAL :us MICROSECOND";
        // After a purge, a name starts with the current time as its fencing token. So a row is purged only if its token is
        // at least `:us` behind the clock. Tokens then rise even if the clock goes back by `:us`.
        let old = format!(
            "owner IS NULL AND expires_at < UTC_TIMESTAMP(6) - INTERVAL :us MICROSECOND \
             AND CAST(fence AS SIGNED) < {NOW} - CAST(:us AS SIGNED)"
        );
        let mine = format!(
            "resource = :r AND owner = :o AND expires_at > UTC_TIMESTAMP(6) AND {NOW} <= :t"
        );
        let held = format!(
            "SELECT resource, owner, holds, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at), fence \
             FROM {table} WHERE owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)"
        );
        let update = format!("UPDATE {table} SET fence = LAST_INSERT_ID(fence),");
        let longer = format!("expires_at = GREATEST(expires_at, {LEASED})");
        let freed = "holds = 0, expires_at = UTC_TIMESTAMP(6), owner = NULL";
        Statements {
            // A late request inserts a NULL name, which fails with error 1048. If another owner holds the lock,
            // LAST_INSERT_ID must be overwritten. Otherwise the client would read the time of the rejected insert as a
            // token. A second copy of the request finds its own `:o` in the row. That copy keeps the count and does not
            // shorten the lease, because later requests may have changed both. If assignments run in order, `owner` is
            // no longer NULL when `expires_at` is assigned. So `acquired_at` has to show whether the grant is new.
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
            enter: format!("{update} holds = :n, {longer} WHERE {mine}"),
            leave: format!("{update} holds = :n, expires_at = {LEASED} WHERE {mine}"),
            renew: format!("{update} {longer} WHERE {mine}"),
            transfer: format!(
                "UPDATE {table} SET fence = LAST_INSERT_ID(fence + IF(owner = :h, 0, 1)), \
                 holds = IF(owner = :h, holds, 1), \
                 acquired_at = IF(owner = :h, acquired_at, UTC_TIMESTAMP(6)), \
                 expires_at = IF(owner = :h, expires_at, {LEASED}), owner = :h \
                 WHERE resource = :r AND owner IN (:o, :h) AND expires_at > UTC_TIMESTAMP(6) AND {NOW} <= :t"
            ),
            release: format!(
                "UPDATE {table} SET \
                 fence = fence + 0 * LAST_INSERT_ID(IF(expires_at > UTC_TIMESTAMP(6), 2, 1)), {freed} \
                 WHERE resource = :r AND owner = :o"
            ),
            force_release: format!(
                "{update} {freed} WHERE resource = :r AND owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)"
            ),
            inspect: format!("{held} AND resource = :r"),
            survey: format!(
                "{held} AND resource >= :a AND resource < :z ORDER BY resource LIMIT :k"
            ),
            probe: format!("SELECT 1 FROM {table} WHERE resource = :r FOR UPDATE NOWAIT"),
            pin: format!(
                "SELECT fence FROM {table} \
                 WHERE resource = :r AND owner = :o AND expires_at > UTC_TIMESTAMP(6) FOR UPDATE"
            ),
            extend_pinned: format!("{update} {longer} WHERE resource = :r AND owner = :o"),
            purgeable: format!("SELECT resource FROM {table} WHERE {old} LIMIT :k"),
            purge: format!("DELETE FROM {table} WHERE resource = :r AND {old}"),
        }
    }
}
