use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::params;

use super::{LONGEST_NAME, MySql};
use crate::ground::error::Result;
use crate::store::{Holder, LockInfo, LockKind, Position, Scope};

const ROWS_AT_ONCE: u32 = 512;

/// A row of the survey: name, owner, count, remaining lease in microseconds, fencing token.
pub(super) type Surveyed = (Vec<u8>, Vec<u8>, u32, i64, u64);

impl MySql {
    pub(super) fn survey_rows(
        &self,
        scope: &Scope,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        let all: Arc<str> = format!("{}*", scope.prefix).into();
        let from = match &position.after {
            // The smallest name after `after`.
            Some(after) => [after.as_bytes(), &[0]].concat(),
            None => scope.prefix.as_bytes().to_vec(),
        };
        let end = end_of(&scope.prefix);
        let params = params! { "a" => from, "z" => end, "k" => ROWS_AT_ONCE };
        position.is_over = true;
        let rows = self.query(&self.statements.survey, params, deadline);
        let rows = rows.map_err(|error| self.lock_error(&all, error))?;
        let locks: Vec<_> = rows.into_iter().map(|row| self.lock_info(row)).collect();
        position.is_over = locks.len() < ROWS_AT_ONCE as usize;
        position.after = locks.last().map(|info| Arc::clone(&info.name));
        Ok(locks)
    }

    pub(super) fn lock_info(&self, (name, owner, holds, left, fence): Surveyed) -> LockInfo {
        let name: Arc<str> = String::from_utf8_lossy(&name).into();
        let owner = String::from_utf8_lossy(&owner);
        LockInfo {
            holders: vec![Holder::of_field(&owner, holds)],
            expires: u64::try_from(left).ok().map(Duration::from_micros),
            fence: Some(fence),
            ..LockInfo::free(&name, LockKind::Fenced, Arc::clone(self.node()))
        }
    }
}

/// Returns the exclusive upper bound of the names with this prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // UTF-8 contains no byte 255, so the addition does not overflow.
        Some(last) => *last += 1,
        None => end = vec![u8::MAX; LONGEST_NAME],
    }
    end
}
