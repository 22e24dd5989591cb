//! The interface of `src/ground/poll.rs` on the network of the world.

use std::io;
use std::time::Instant;

use redlatch_world::network;
use smallvec::SmallVec;

use crate::ground::time;

pub(crate) type Source<'a> = &'a network::Socket;

pub(crate) type Readable = SmallVec<[bool; 8]>;

pub(crate) fn wait<'a>(
    sources: impl Iterator<Item = Source<'a>>,
    deadline: Instant,
) -> io::Result<Option<Readable>> {
    let sources: Vec<_> = sources.collect();
    let readable = network::wait_readable(&sources, time::moment(deadline));
    Ok(readable.map(SmallVec::from_vec))
}
