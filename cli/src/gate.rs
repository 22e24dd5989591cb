//! The gate before a command: its process waits here until the supervision is set up.
//!
//! The gate is a socket in place of stdin. redlatch opens the gate by sending its own stdin through the socket. If redlatch
//! dies, the socket closes, and the process exits. The command inherits no end of the socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// redlatch's end of the socket.
pub(crate) struct Gate(UnixStream);

impl Gate {
    /// The `Stdio` is for the process that waits at the gate.
    pub(crate) fn new() -> io::Result<(Gate, Stdio)> {
        let (ours, its) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Gate(ours), OwnedFd::from(its).into()))
    }

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
            // The process has exited, which the reaper thread reports.
            Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// May be called only after the process has ended.
    pub(crate) fn was_command_executed(&self) -> bool {
        let mut reports = [0; 2];
        // The process sends one byte before `exec`, and a second byte if `exec` failed.
        matches!((&self.0).read(&mut reports), Ok(1))
    }
}

/// The end of the socket in the process that executes the command.
pub(crate) struct GateWaiter(UnixStream);

impl GateWaiter {
    /// Waits until the gate opens, and installs the received stdin. Fails if redlatch closes the gate.
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

    /// The first call reports that `exec` follows. The second call reports that `exec` failed.
    pub(crate) fn report(&self) -> io::Result<()> {
        (&self.0).write_all(b"s")
    }
}
