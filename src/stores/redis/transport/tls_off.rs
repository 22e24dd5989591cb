//! What stands in for TLS in a build without it: there are no sessions, and a URL that asks for one is refused.

use std::io;
use std::time::Instant;

use crate::ground::error::{Error, Result};
use crate::stores::redis::transport::connection::{CallError, Socket};

#[derive(Clone, Default)]
pub(crate) struct TlsConfig {}

impl TlsConfig {
    pub(crate) fn check_is_unused(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn toward(&self, _: &str) -> Result<Peer> {
        Err(Error::InvalidConfig {
            setting: "the Redis URL",
            reason: "TLS needs the feature `tls`: redlatch = { features = [\"tls\"], … }"
                .to_owned(),
        })
    }
}

#[derive(Clone)]
pub(crate) enum Peer {}

impl Peer {
    pub(crate) fn at(&self, _: &str) -> Peer {
        match *self {}
    }
}

pub(crate) enum Session {}

impl Session {
    pub(crate) fn open(peer: &Peer, _: &Socket, _: Instant) -> Result<Session, CallError> {
        match *peer {}
    }

    pub(crate) fn read(&mut self, _: &Socket, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn has_buffered(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_stale(&self, _: &Socket) -> bool {
        match *self {}
    }

    pub(crate) fn refusal(&mut self, _: &Socket) -> Option<String> {
        match *self {}
    }

    pub(crate) fn seal(&self, _: &[u8]) -> io::Result<Vec<u8>> {
        match *self {}
    }

    pub(crate) fn writing_end(&self) -> Session {
        match *self {}
    }
}
