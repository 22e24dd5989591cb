use std::borrow::Cow;
use std::io::{self, Read};

use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::socket::Socket;
use crate::stores::redis::transport::tls::Session;

pub(super) struct Stream {
    pub(super) socket: Socket,
    pub(super) session: Option<Session>,
}

impl Stream {
    /// The caller writes the result to the socket.
    pub(super) fn seal<'a>(&self, plain: &'a [u8]) -> io::Result<Cow<'a, [u8]>> {
        match &self.session {
            Some(session) => session.seal(plain).map(Cow::Owned),
            None => Ok(Cow::Borrowed(plain)),
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            Some(session) => session.read(&self.socket, buffer),
            None => (&self.socket).read(buffer),
        }
    }

    pub(super) fn refusal(&mut self) -> Option<CallError> {
        self.session.as_mut()?.refusal(&self.socket)
    }

    pub(super) fn writing_end(&self) -> io::Result<Stream> {
        Ok(Stream {
            socket: self.socket.try_clone()?,
            session: self.session.as_ref().map(Session::writing_end),
        })
    }
}
