//! Replies, and how they are made of parts.

pub use redlatch_server::Reply;

/// Makes an array of these parts.
macro_rules! array {
    ($($part:expr),* $(,)?) => {
        $crate::reply::Reply::Array(vec![$(Into::<$crate::reply::Reply>::into($part)),*])
    };
}
pub(crate) use array;
