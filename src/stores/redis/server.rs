//! One server: the connections for requests, for renewals, and for subscriptions.

use std::sync::Arc;
use std::time::Instant;

use crate::ground::backoff::Backoff;
use crate::ground::notify::Notifier;
use crate::stores::redis::Settings;
use crate::stores::redis::subscriber::Subscriber;
use crate::stores::redis::transport::{CallError, Connection, Connector, Hook, Pool, last_try};

pub(super) struct Node {
    pub(super) pool: Pool,
    /// A pool of one connection, so that renewals never queue behind other requests.
    pub(super) renewals: Pool,
    pub(super) subscriber: Subscriber,
}

impl Node {
    /// `on_move` is set for sharded unlock messages. The subscriber calls it when the server reports a moved slot.
    pub(super) fn new(
        connector: Arc<dyn Connector>,
        settings: &Settings,
        notifier: &Arc<Notifier>,
        on_move: Option<Hook>,
    ) -> Node {
        let pool = |size| {
            let idle = (&settings.pool_settings, settings.check_idle_after);
            Pool::new(Arc::clone(&connector), size, idle, on_move.is_some())
        };
        Node {
            pool: pool(settings.pool_size),
            renewals: pool(1),
            subscriber: Subscriber::new(
                Arc::clone(&connector),
                settings.command_timeout,
                Arc::clone(notifier),
                on_move,
            ),
        }
    }

    /// Connects early. At the first renewal, file descriptors may have run out, or the name server may be down.
    pub(super) fn prepare_renewal(&self, deadline: Instant) {
        if self.renewals.slots.are_none() {
            self.renewals.prepare(deadline);
        }
    }

    pub(super) fn name(&self) -> Arc<str> {
        self.pool.connector.master().node()
    }

    /// Repeats a request that was certainly not executed, until shortly before `deadline`. If no other server can take
    /// over, repeats only after an error reply or a closed connection.
    pub(super) fn with<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut backoff: Option<Backoff> = None;
        let mut until = None;
        loop {
            match self.pool.with(deadline, &mut talk) {
                Err(fault)
                    if fault.is_passing()
                        && (self.pool.connector.can_fail_over() || fault.is_of_a_server())
                        && backoff
                            .get_or_insert_default()
                            .pause(*until.get_or_insert_with(|| last_try(deadline))) => {}
                outcome => return outcome,
            }
        }
    }

    pub(super) fn close(&self) {
        self.pool.connector.close();
        self.subscriber.close();
        self.pool.slots.close();
        self.renewals.slots.close();
    }
}
