mod fixtures;
pub(crate) mod stub;
