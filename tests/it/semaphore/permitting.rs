//! The operations of both kinds of semaphores.

use std::time::Duration;

use redlatch::{Client, Interrupt, PermitSemaphore, Permits, Result, Semaphore};

use crate::invariants::{
    PERMIT_IDS_ACQUIRE, PERMIT_IDS_COUNT, PERMIT_IDS_RELEASE, PERMITS_ACQUIRE, PERMITS_COUNT,
    PERMITS_RELEASE,
};

pub(crate) trait Permitting: Sized + Send + Sync + 'static {
    const ACQUIRE: &'static str;
    const RELEASE: &'static str;
    const COUNT: &'static str;

    fn of(client: &Client, name: &str) -> Self;
    /// The key beside the semaphore that lists the owners of permits.
    fn owners(name: &str) -> String;
    /// A member of that key that has ended.
    const DEAD: &'static str;

    fn name(&self) -> &str;
    fn with_lease_time(&self, lease: Duration) -> Self;
    fn try_set(&self, permits: u32) -> Result<bool>;
    fn try_set_for(&self, permits: u32, life: Duration) -> Result<bool>;
    fn acquire(&self, permits: u32) -> Result<Permits>;
    fn acquire_interruptibly(&self, permits: u32, interrupt: &Interrupt) -> Result<Permits>;
    fn try_acquire(&self, permits: u32) -> Result<Option<Permits>>;
    fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>>;
    fn available(&self) -> Result<i64>;
    fn add_permits(&self, permits: i64) -> Result<()>;
    fn delete(&self) -> Result<bool>;
}

macro_rules! permitting {
    ($($kind:ident, $of:ident, [$acquire:ident, $release:ident, $count:ident], $owners:literal, $dead:literal;)*) => {$(
        impl Permitting for $kind {
            const ACQUIRE: &'static str = $acquire;
            const RELEASE: &'static str = $release;
            const COUNT: &'static str = $count;
            const DEAD: &'static str = $dead;

            fn of(client: &Client, name: &str) -> Self {
                client.$of(name)
            }

            fn owners(name: &str) -> String {
                format!($owners, name)
            }

            fn name(&self) -> &str {
                $kind::name(self)
            }

            fn with_lease_time(&self, lease: Duration) -> Self {
                $kind::with_lease_time(self, lease)
            }

            fn try_set(&self, permits: u32) -> Result<bool> {
                $kind::try_set(self, permits)
            }

            fn try_set_for(&self, permits: u32, life: Duration) -> Result<bool> {
                $kind::try_set_for(self, permits, life)
            }

            fn acquire(&self, permits: u32) -> Result<Permits> {
                $kind::acquire(self, permits)
            }

            fn acquire_interruptibly(&self, permits: u32, interrupt: &Interrupt) -> Result<Permits> {
                $kind::acquire_interruptibly(self, permits, interrupt)
            }

            fn try_acquire(&self, permits: u32) -> Result<Option<Permits>> {
                $kind::try_acquire(self, permits)
            }

            fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>> {
                $kind::try_acquire_for(self, permits, wait)
            }

            fn available(&self) -> Result<i64> {
                $kind::available(self)
            }

            fn add_permits(&self, permits: i64) -> Result<()> {
                $kind::add_permits(self, permits)
            }

            fn delete(&self) -> Result<bool> {
                $kind::delete(self)
            }
        }
    )*};
}

permitting! {
    Semaphore, semaphore, [PERMITS_ACQUIRE, PERMITS_RELEASE, PERMITS_COUNT],
        "redlatch_sc:{{{}}}", "1*dead:1:1";
    PermitSemaphore, permit_semaphore, [PERMIT_IDS_ACQUIRE, PERMIT_IDS_RELEASE, PERMIT_IDS_COUNT],
        "{{{}}}:timeout", "a dead one";
}
