//! The way from a store to the client that uses it, for what nobody has asked for.

use std::sync::OnceLock;

use crate::store::InDoubt;

/// Something that a store says without being asked.
pub(crate) enum Announcement {
    /// Another server has taken over: what stands there is to be asked.
    TakenOver,
    /// A renewal has left this in some part of the store, to be cleared up after.
    Leftover(InDoubt),
}

/// The way from a store to the client that uses it.
#[derive(Default)]
pub(crate) struct Announcements {
    listener: OnceLock<Box<dyn Fn(Announcement) + Send + Sync>>,
}

impl Announcements {
    /// Calls `listener`, which must not block, for each announcement from now on. A store has one client, and so one listener.
    pub(crate) fn listen(&self, listener: impl Fn(Announcement) + Send + Sync + 'static) {
        self.listener.get_or_init(|| Box::new(listener));
    }

    pub(crate) fn announce(&self, announcement: Announcement) {
        if let Some(listener) = self.listener.get() {
            listener(announcement);
        }
    }
}
