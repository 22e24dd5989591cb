//! Random ids. `tests/sim` replaces this module. Other random numbers come from `fastrand`, which a test can seed.

pub(crate) fn uuid() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}
