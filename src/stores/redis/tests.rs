//! Servers and values for the tests of this store.

pub(crate) mod stub;
