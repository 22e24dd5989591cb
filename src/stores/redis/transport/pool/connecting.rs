//! New connections, and the wait for one where there is no room for it.

use std::time::{Duration, Instant};

use super::Pool;
use crate::ground::time;
use crate::stores::connection_limit::patience;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;
use crate::stores::redis::transport::room::Turn;

/// The first of those who wait for a connection looks this often whether a late answer has come on one.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Pool {
    /// Connects. Where there is no room for one more connection, it is one that another request gives back, for which it
    /// waits after it has called `give_way`.
    pub(super) fn connect(
        &self,
        deadline: Instant,
        mut give_way: impl FnMut(),
    ) -> Result<Connection, CallError> {
        let (closed, lack) = self.room.look();
        if let Some(lack) = lack {
            // Others came first, and have tried.
            give_way();
            return self.wait_for_room(false, (lack, None), deadline);
        }
        match self.make(deadline) {
            Err(lack) if self.may_wait_after(&lack) => {
                give_way();
                self.wait_for_room(false, (lack, Some(closed)), deadline)
            }
            outcome => outcome,
        }
    }

    /// Whether there is room for no more connections, as far as the fault says, so that one of the others is waited for.
    fn may_wait_after(&self, fault: &CallError) -> bool {
        let may_come_back = || self.room.is_used() || self.idle() > 0;
        fault.is_for_want_of_room() || (fault.is_hang_up() && may_come_back())
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
    /// for the right to one. Fails with the lack of room if none is in use. A caller that has tried by itself tells how
    /// often connections had been closed before.
    pub(crate) fn wait_for_room(
        &self,
        is_urgent: bool,
        (mut lack, tried): (CallError, Option<u64>),
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let began = time::now();
        let until = began + patience(deadline.saturating_duration_since(began));
        let mut place = self.room.join(is_urgent, &lack, tried);
        while let Some(turn) = place.turn(time::now() + LOOK_AGAIN, until) {
            match turn {
                Turn::Take => {
                    self.collect();
                    if let Some(connection) = self.take(deadline) {
                        return Ok(connection);
                    }
                }
                Turn::Try { are_others } => {
                    let now = time::now();
                    let by = match are_others {
                        // One of them may come back before a connection that stalls.
                        true => now + until.saturating_duration_since(now) / 2,
                        false => deadline,
                    };
                    match self.make(by) {
                        Ok(connection) => return Ok(connection),
                        // That half of the time was too short for it says less.
                        Err(fault) if time::now() < by || !are_others => lack = fault,
                        Err(_) => {}
                    }
                    place.go_back(&lack);
                }
            }
        }
        Err(lack)
    }
}
