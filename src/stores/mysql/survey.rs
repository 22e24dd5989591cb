//! The look of an operator at the rows of the lock table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Row, params};

use super::MySql;
use super::call_error::CallError;
use crate::ground::claim::LockId;
use crate::ground::error::Result;
use crate::store::{Holder, LockInfo, LockKind, Position, Scope};

/// How many rows are read at once.
const ROWS_AT_ONCE: u32 = 512;

/// The longest name of a row.
const LONGEST_NAME: usize = 255;

impl MySql {
    /// Reads the row of one lock.
    pub(super) fn describe_lock(&self, lock: &LockId, deadline: Instant) -> Result<LockInfo> {
        let name = &lock.name;
        let params = params! { "a" => &**name, "z" => [name.as_bytes(), &[0]].concat(), "k" => 1 };
        let rows = self.query(&self.statements.survey, params, deadline);
        let rows = rows.map_err(|error| self.lock_error(name, error))?;
        let found = rows.into_iter().next().map(|row| self.told_by(row));
        let found = found
            .transpose()
            .map_err(|error| self.lock_error(name, error))?;
        let free = || LockInfo::free(name, LockKind::Fenced, Arc::clone(self.node()));
        Ok(found.unwrap_or_else(free))
    }

    /// Reads the next rows from where `position` is.
    pub(super) fn survey_rows(
        &self,
        scope: &Scope,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        let all: Arc<str> = format!("{}*", scope.prefix).into();
        let from = match &position.after {
            // The least name behind it.
            Some(after) => [after.as_bytes(), &[0]].concat(),
            None => scope.prefix.as_bytes().to_vec(),
        };
        let end = end_of(&scope.prefix);
        let params = params! { "a" => from, "z" => end, "k" => ROWS_AT_ONCE };
        position.is_over = true;
        let rows = self.query(&self.statements.survey, params, deadline);
        let rows = rows.map_err(|error| self.lock_error(&all, error))?;
        let is_full = rows.len() >= ROWS_AT_ONCE as usize;
        let told = rows.into_iter().map(|row| self.told_by(row));
        let told: Result<Vec<LockInfo>, CallError> = told.collect();
        let told = told.map_err(|error| self.lock_error(&all, error))?;
        position.is_over = !is_full;
        position.after = told.last().map(|info| Arc::clone(&info.name));
        Ok(told)
    }

    fn told_by(&self, row: Row) -> Result<LockInfo, CallError> {
        let unreadable = |_| CallError::Usage("the lock table has rows of another kind".to_owned());
        let (name, owner, holds, left, fence): (Vec<u8>, Vec<u8>, u32, i64, u64) =
            ::mysql::from_row_opt(row).map_err(unreadable)?;
        let name: Arc<str> = String::from_utf8_lossy(&name).into();
        let owner = String::from_utf8_lossy(&owner);
        Ok(LockInfo {
            holders: vec![Holder::of_field(&owner, holds)],
            expires: u64::try_from(left).ok().map(Duration::from_micros),
            fence: Some(fence),
            ..LockInfo::free(&name, LockKind::Fenced, Arc::clone(self.node()))
        })
    }
}

/// The least name behind all that begin so.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of text is the largest one.
        Some(last) => *last += 1,
        None => end = vec![u8::MAX; LONGEST_NAME],
    }
    end
}
