//! The connections whose answers nobody has waited for, and the requests that may still arrive.

use std::time::{Duration, Instant};

use redis::Value;

use super::{CheckedOut, Pool, lacks_script, lay_down};
use crate::ground::claim::VisitorId;
use crate::ground::time;
use crate::store::EXPIRY_SLACK;
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
    /// The sender of the requests that they answer, if they have one.
    pub(super) visitor: Option<VisitorId>,
    /// The server refuses the last of them after this time of its clock, in ms, if it ever does.
    pub(super) not_after: Option<i64>,
    /// After this time it is closed.
    pub(super) deadline: Instant,
}

impl Pool {
    /// Takes a connection back that owes answers to requests of `visitor`, until `deadline`.
    pub(crate) fn check_in_unread(
        &self,
        connection: Connection,
        replies_due: u32,
        visitor: Option<VisitorId>,
        not_after: Option<i64>,
        deadline: Instant,
    ) {
        let mut unread = self.unread.lock();
        if self.keeps() {
            unread.push(UnreadConnection {
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

    /// Takes a connection back on which nothing more was sent, because of `reply`. If it owes answers to requests of
    /// `visitor`, which were to arrive by `deadline`, it is closed, and they may still arrive.
    pub(crate) fn check_in(
        &self,
        checked_out: CheckedOut,
        reply: &Result<Value, CallError>,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) {
        if checked_out.replies_due == 0 {
            self.give_back(checked_out.connection, reply);
        } else {
            self.note_lost(visitor.cloned(), checked_out.due_until, deadline);
        }
    }

    /// Reads the late answers that have come, and closes what has had its time.
    pub(super) fn collect(&self) {
        let mut unread = self.unread.lock();
        if unread.is_empty() {
            return;
        }
        let now = time::now();
        let settled = unread.extract_if(.., |unread| {
            while unread.replies_due > 0 {
                // Some may have been read together with one before.
                let at_once =
                    now + Duration::from_millis(u64::from(unread.connection.has_arrived()));
                match unread.connection.receive(at_once) {
                    Ok(_) => unread.replies_due -= 1,
                    Err(CallError::Server(text)) => {
                        unread.replies_due -= 1;
                        if lacks_script(&text) {
                            unread.connection.has_forgotten_scripts();
                        }
                    }
                    Err(CallError::NoReply {
                        timed_out: true, ..
                    }) => return now >= unread.deadline,
                    Err(_) => return true,
                }
            }
            true
        });
        let mut idle = self.idle.lock();
        for unread in settled {
            if unread.replies_due == 0 {
                lay_down(&mut idle, unread.connection);
            } else {
                self.note_lost(unread.visitor, unread.not_after, unread.deadline);
            }
        }
    }

    /// Until which time of the server's clock a request of `visitor` may still arrive on a connection that is closed.
    pub(crate) fn lost_until(&self, visitor: Option<&VisitorId>) -> Option<i64> {
        let lost = self.lost.lock();
        let mine = lost.iter().filter(|lost| Some(&lost.visitor) == visitor);
        let open = mine.filter(|lost| time::now() < lost.deadline);
        open.map(|lost| lost.not_after).max()
    }

    /// Notes that nobody will read the answer to a request, which may still arrive at the server.
    pub(crate) fn note_lost(
        &self,
        visitor: Option<VisitorId>,
        not_after: Option<i64>,
        deadline: Instant,
    ) {
        if let (Some(visitor), Some(not_after)) = (visitor, not_after) {
            let mut lost = self.lost.lock();
            let now = time::now();
            lost.retain(|lost| now < lost.deadline);
            lost.push(Lost {
                visitor,
                not_after,
                deadline: deadline + EXPIRY_SLACK,
            });
        }
    }
}
