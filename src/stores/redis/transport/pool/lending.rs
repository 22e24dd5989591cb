//! Connections lent to those who talk on them, and then kept for the next one.

use std::time::Instant;

use super::{Pool, doubt_after, is_sound};
use crate::stores::connection_limit::Permit;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;

impl Pool {
    /// Runs `talk` on a connection. After a fault that leaves its state in doubt the connection is closed.
    pub(crate) fn with<T>(
        &self,
        deadline: Instant,
        talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.talk(Some(self.permit(deadline)?), false, deadline, talk)
    }

    /// Makes a connection ready for others, as `talk` does. Where there is no room for one more, those others use what is
    /// there meanwhile, so that it has no permit while it waits.
    pub(crate) fn make_ready<T>(
        &self,
        deadline: Instant,
        talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.talk(Some(self.permit(deadline)?), true, deadline, talk)
    }

    /// Runs `talk`, which may take many requests, beside those that the limit counts.
    pub(crate) fn beside<T>(
        &self,
        deadline: Instant,
        talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.talk(None, false, deadline, talk)
    }

    fn talk<T>(
        &self,
        mut permit: Option<Permit>,
        gives_way: bool,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let is_beside = permit.is_none();
        let mut give_way = || {
            if gives_way {
                permit = None;
            }
        };
        // What comes back is for those who came first.
        let mut place = if self.room.look().1.is_some() {
            None
        } else {
            self.take(deadline)
        };
        let mut is_fresh = false;
        let mut run = |place: &mut Option<Connection>, is_fresh: &mut bool| {
            let mut connection = match place.take() {
                Some(connection) => connection,
                None => {
                    *is_fresh = true;
                    self.connect(deadline, &mut give_way)?
                }
            };
            *is_fresh = connection.is_new;
            let outcome = talk(&mut connection);
            doubt_after(&outcome, &connection, self.connector());
            if is_sound(&outcome) && !connection.is_spent {
                *place = Some(connection);
            }
            outcome
        };
        let mut outcome = run(&mut place, &mut is_fresh);
        self.note_reset(&outcome);
        if matches!(outcome, Err(CallError::NotSent(_))) && !is_fresh {
            // The server had closed a connection that lay idle. Nothing was sent, so it is safe to send it again.
            outcome = run(&mut place, &mut is_fresh);
        }
        if let Some(connection) = place
            && (!is_beside || self.can_use_one_more())
        {
            self.keep(connection);
        }
        outcome
    }

    /// Whether requests could use a connection besides those that they have. Meanwhile they may have made another one.
    fn can_use_one_more(&self) -> bool {
        self.room.look().1.is_some() || self.limit.has_free(self.idle())
    }
}
