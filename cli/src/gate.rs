//! The gate before a command: its process waits there until all that ends it in time is in place.
//!
//! It is a socket in place of the standard input, and opens when that comes through it. It closes with redlatch, and neither side
//! of it reaches the command.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The side of redlatch.
pub(crate) struct Gate(UnixStream);

impl Gate {
    /// Makes one that is closed, and the standard input for the process that waits at it.
    pub(crate) fn new() -> io::Result<(Gate, Stdio)> {
        let (ours, its) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Gate(ours), OwnedFd::from(its).into()))
    }

    /// Lets the process become the command.
    pub(crate) fn open(&self) -> io::Result<()> {
        let stdin = io::stdin();
        let files = [stdin.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        match sendmsg(
            &self.0,
            &[IoSlice::new(b"o")],
            &mut control,
            SendFlags::empty(),
        ) {
            // It has ended, which is told elsewhere.
            Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the command was there, once the process has ended.
    pub(crate) fn was_command_executed(&self) -> bool {
        let mut reports = [0; 2];
        // It says that it goes, and then that it could not.
        matches!((&self.0).read(&mut reports), Ok(1))
    }
}

/// The side of the process that becomes the command.
pub(crate) struct GateWaiter(UnixStream);

impl GateWaiter {
    /// Waits until the gate is open, and puts the standard input in its place; an error if it never will be.
    pub(crate) fn wait() -> io::Result<GateWaiter> {
        let gate = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        loop {
            let mut bytes = [IoSliceMut::new(&mut byte)];
            match recvmsg(&gate, &mut bytes, &mut control, RecvFlags::empty()) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let files = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let stdin = files.ok_or(io::ErrorKind::UnexpectedEof)?;
        rustix::stdio::dup2_stdin(stdin)?;
        Ok(GateWaiter(gate))
    }

    /// Says that the command is started now, and again if that has failed.
    pub(crate) fn report(&self) -> io::Result<()> {
        (&self.0).write_all(b"s")
    }
}
