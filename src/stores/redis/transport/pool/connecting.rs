//! New connections, and the wait for one where there is no room for it.

use std::time::{Duration, Instant};

use super::Pool;
use crate::ground::time;
use crate::stores::connection_limit::patience;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;

/// The first of those who wait for a connection looks this often whether a late answer has come on one, and tries this
/// often whether there is room again, for which nobody here has made it.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const TRY_AGAIN: Duration = Duration::from_millis(100);

impl Pool {
    /// Connects. Where there is no room for one more connection, it is one that another request gives back.
    pub(super) fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        let (closed, lack) = self.room.look();
        if let Some(lack) = lack {
            // Others came first, and have tried.
            return self.wait_for_room(false, (lack, Some(closed)), deadline);
        }
        match self.make(deadline) {
            Err(lack) if lack.is_for_want_of_room() => {
                self.wait_for_room(false, (lack, Some(closed)), deadline)
            }
            outcome => outcome,
        }
    }

    /// Makes a connection that counts as in use from now on.
    fn make(&self, deadline: Instant) -> Result<Connection, CallError> {
        let in_use = self.room.enter();
        match self.connector.connect(deadline) {
            Ok(mut connection) => {
                connection.in_use = Some(in_use);
                Ok(connection)
            }
            Err(fault) => {
                in_use.leave_without();
                Err(fault)
            }
        }
    }

    /// Waits until another request gives its connection back, or closes it so that there is room for one, for as long as
    /// for the right to one. Fails with the lack of room if none is in use. That was found when connections had been closed
    /// so often; `None` if it was not looked for.
    pub(crate) fn wait_for_room(
        &self,
        is_first: bool,
        (mut lack, mut tried_behind): (CallError, Option<u64>),
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let began = time::now();
        let until = began + patience(deadline.saturating_duration_since(began));
        let mut tried_at = began;
        let mut place = self.room.join(is_first, &lack);
        while let Some(closed) = place.turn(time::now() + LOOK_AGAIN, until) {
            self.collect();
            if let Some(connection) = self.take() {
                return Ok(connection);
            }
            let now = time::now();
            if tried_behind == Some(closed) && now < tried_at + TRY_AGAIN {
                continue;
            }
            (tried_behind, tried_at) = (Some(closed), now);
            match self.make(deadline) {
                Err(fault) if fault.is_for_want_of_room() => lack = fault,
                outcome => return outcome,
            }
        }
        Err(lack)
    }
}
