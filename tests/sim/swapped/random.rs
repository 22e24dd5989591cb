//! The interface of `src/ground/random.rs` on the randomness of the world.

pub(crate) fn uuid() -> uuid::Uuid {
    let bytes = fastrand::u128(..).to_le_bytes();
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
