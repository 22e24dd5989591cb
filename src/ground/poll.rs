use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use smallvec::SmallVec;

use crate::ground::time;

pub(crate) type Source<'a> = BorrowedFd<'a>;

/// One entry for each source, in the order of the sources: true if the source is readable or closed.
pub(crate) type Readable = SmallVec<[bool; 8]>;

/// Waits until at least one of `sources` is readable or closed. Returns `None` at `deadline`.
pub(crate) fn wait<'a>(
    sources: impl Iterator<Item = Source<'a>>,
    deadline: Instant,
) -> io::Result<Option<Readable>> {
    let fds = sources.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let mut fds: SmallVec<[PollFd<'_>; 8]> = fds.collect();
    loop {
        let left = deadline.saturating_duration_since(time::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) if time::now() < deadline => {}
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {
                return Ok(Some(
                    fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
