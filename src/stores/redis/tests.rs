//! Stub servers and values for the tests of this store.

mod fixtures;
pub(crate) mod stub;
