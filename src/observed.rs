//! The settings of what is counted and told, the same for a client and for a quorum.

use std::sync::Arc;
use std::time::Duration;

use crate::builder::{Builder, LEAST_TIMEOUT, check_within};
use crate::engine::counters::{ClassOf, CountSettings};
use crate::ground::error::Result;
use crate::ground::observer::{Observed, Observer};
use crate::redlock::RedlockBuilder;

/// The setters of both builders, with the docs of each.
macro_rules! count_setters {
    ($builder:ident: $(#[$class:meta])* lock_class, $(#[$observer:meta])* observer, $(#[$warn:meta])* warn_after) => {
        impl $builder {
            $(#[$class])*
            pub fn lock_class(
                mut self,
                class_of: impl for<'a> Fn(&'a str) -> &'a str + Send + Sync + 'static,
            ) -> $builder {
                self.count_settings.class_of = Some(ClassOf(Arc::new(class_of)));
                self
            }

            $(#[$observer])*
            pub fn observer(mut self, observer: impl Observer) -> $builder {
                self.count_settings.observer = Observed::by(Arc::new(observer));
                self
            }

            $(#[$warn])*
            pub fn warn_after(mut self, wait: Duration, hold: Duration) -> $builder {
                (self.count_settings.long_wait, self.count_settings.long_hold) = (wait, hold);
                self
            }
        }
    };
}

count_setters! {
    Builder:
    /// Sets which class a lock is counted in by the feature `metrics` and told in to an [`Observer`]: a part of its name.
    ///
    /// The function gets the name without the key prefix, once for each [`Lock`](crate::Lock) value. Classes are the labels of
    /// metrics, so there are to be few: the first 64 of a client count, and all locks of others count as `other`, as do those
    /// of a class that is longer than 64 bytes. Defaults to the name up to the last of `:`, `/`, `{` and `}`, but for a brace
    /// that it begins or ends with: `lock:orders` for `lock:orders:42`.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// // "eu.orders.42" counts as "eu.orders".
    /// let client = Client::builder()
    ///     .lock_class(|name| name.rsplit_once('.').map_or(name, |(class, _)| class))
    ///     .in_memory()?;
    /// client.lock("eu.orders.42").run(|_| ())?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    lock_class,
    /// Sets the observer that hears what happens to the locks of this client; see [`Observer`].
    ///
    /// There is at most one. Defaults to none.
    observer,
    /// Sets after which time a wait and a hold are told to last for long.
    ///
    /// They are told once then, and again each time that the time has doubled: to the [`Observer`], and as a warning of `tracing`
    /// (with that feature). A wait is told when it looks after the lock, every
    /// second to every third one, with the hold that refused it last; a hold when it is renewed. A hold with a fixed lease ends
    /// by itself, and is not told. At least 1 ms, and [`Duration::MAX`] for never. Defaults to 30 s and 10 min.
    warn_after
}

count_setters! {
    RedlockBuilder:
    /// Sets which class a lock is counted in; see [`Builder::lock_class`].
    lock_class,
    /// Sets the observer that hears what happens to the locks of this quorum; see [`Observer`].
    observer,
    /// Sets after which time a wait and a hold are told to last for long; see [`Builder::warn_after`].
    warn_after
}

impl CountSettings {
    /// Refuses settings that cannot be used.
    pub(crate) fn validate(&self) -> Result<()> {
        let shorter = self.long_wait.min(self.long_hold);
        let range = LEAST_TIMEOUT..=Duration::MAX;
        check_within("warn_after", shorter, range, "1 ms ..= Duration::MAX")
    }
}
