//! The way from a store to the client that uses it, for what nobody has asked for.

use std::fmt;
use std::sync::Arc;

use crate::ground::sync::Mutex;
use crate::store::InDoubt;

/// Something that a store says without being asked.
pub(crate) enum Announcement {
    /// Another server has taken over: what stands there is to be asked.
    TakenOver,
    /// A renewal has left this in some part of the store, to be cleared up after.
    Leftover(InDoubt),
}

type Listener = Arc<dyn Fn(Announcement) + Send + Sync>;

/// The way from a store to the client that uses it.
#[derive(Default)]
pub(crate) struct Announcements {
    listener: Mutex<Option<Listener>>,
}

impl Announcements {
    /// Calls `listener`, which must not block, for each announcement from now on.
    pub(crate) fn listen(&self, listener: impl Fn(Announcement) + Send + Sync + 'static) {
        *self.listener.lock() = Some(Arc::new(listener));
    }

    pub(crate) fn announce(&self, announcement: Announcement) {
        let listener = self.listener.lock().clone();
        if let Some(listener) = listener {
            listener(announcement);
        }
    }
}

impl fmt::Debug for Announcements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announcements")
    }
}
