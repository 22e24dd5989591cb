//! The connections whose answers nobody has waited for, and the requests that may still arrive.

use std::time::{Duration, Instant};

use super::{Pool, lacks_script};
use crate::ground::claim::VisitorId;
use crate::store::{EXPIRY_SLACK, SETTLED};
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;

/// A request that may arrive after those behind it, which go on other connections.
pub(super) struct Lost {
    pub(super) visitor: VisitorId,
    /// The server refuses it after this time of its clock.
    pub(super) not_after: i64,
    /// By then it has been refused.
    pub(super) deadline: Instant,
}

/// A connection that still owes answers.
pub(super) struct UnreadConnection {
    pub(super) connection: Connection,
    pub(super) replies_due: u32,
    /// The sender of the requests that they answer.
    pub(super) visitor: VisitorId,
    /// The server refuses the last of them after this time of its clock, in ms.
    pub(super) not_after: i64,
    /// After this time it is closed.
    pub(super) deadline: Instant,
}

impl Pool {
    /// Takes a connection back that owes answers to requests of `visitor`, until `deadline`.
    pub(crate) fn check_in_unread(
        &self,
        connection: Connection,
        replies_due: u32,
        visitor: VisitorId,
        not_after: i64,
        deadline: Instant,
    ) {
        let mut late = self.late.lock();
        if self.keeps() {
            late.push(UnreadConnection {
                connection,
                replies_due,
                visitor,
                not_after,
                deadline,
            });
        } else {
            self.note_lost(visitor, not_after, deadline);
        }
    }

    /// Reads the late answers that have come, and closes what has had its time.
    pub(super) fn collect(&self) {
        let mut late = self.late.lock();
        if late.is_empty() {
            return;
        }
        let now = Instant::now();
        let settled = late.extract_if(.., |late| {
            while late.replies_due > 0 {
                // Some may have been read together with one before.
                let at_once = now + Duration::from_millis(u64::from(late.connection.has_arrived()));
                match late.connection.receive(at_once) {
                    Ok(_) => late.replies_due -= 1,
                    Err(CallError::Server(text)) => {
                        late.replies_due -= 1;
                        if lacks_script(&text) {
                            late.connection.has_forgotten_scripts();
                        }
                    }
                    Err(CallError::NoReply {
                        timed_out: true, ..
                    }) => return now >= late.deadline,
                    Err(_) => return true,
                }
            }
            true
        });
        let mut idle = self.idle.lock();
        for late in settled {
            if late.replies_due == 0 {
                idle.push(late.connection);
            } else {
                self.note_lost(late.visitor, late.not_after, late.deadline);
            }
        }
    }

    /// Notes that nobody will read the answer to a request, which may still arrive at the server.
    fn note_lost(&self, visitor: VisitorId, not_after: i64, deadline: Instant) {
        if not_after != SETTLED {
            let mut lost = self.lost.lock();
            let now = Instant::now();
            lost.retain(|lost| now < lost.deadline);
            lost.push(Lost {
                visitor,
                not_after,
                deadline: deadline + EXPIRY_SLACK,
            });
        }
    }
}
