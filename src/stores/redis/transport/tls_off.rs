//! Replaces the module `tls` in builds without TLS. URLs with TLS are refused, so no session is ever created.

use std::io;
use std::time::Instant;

use crate::ground::error::{Error, Result};
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::socket::Socket;

#[derive(Clone, Default)]
pub(crate) struct TlsConfig {}

impl TlsConfig {
    pub(crate) fn check_is_unused(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn for_host(&self, _: &str) -> Result<Peer> {
        Err(Error::config(
            "the URL",
            "TLS needs the Cargo feature `tls`: redlatch = { features = [\"tls\"], … }",
        ))
    }
}

#[derive(Clone)]
pub(crate) enum Peer {}

impl Peer {
    pub(crate) fn at(&self, _: &str) -> Peer {
        match *self {}
    }
}

pub(super) enum Session {}

impl Session {
    pub(super) fn open(peer: &Peer, _: &Socket, _: Instant) -> Result<Session, CallError> {
        match *peer {}
    }

    pub(super) fn read(&mut self, _: &Socket, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn has_buffered(&self) -> bool {
        match *self {}
    }

    pub(super) fn is_stale(&self, _: &Socket) -> bool {
        match *self {}
    }

    pub(super) fn refusal(&mut self, _: &Socket) -> Option<CallError> {
        match *self {}
    }

    pub(super) fn ending(&self) -> Vec<(&'static str, u64)> {
        match *self {}
    }

    pub(super) fn seal(&self, _: &[u8]) -> io::Result<Vec<u8>> {
        match *self {}
    }

    pub(super) fn writing_end(&self) -> Session {
        match *self {}
    }
}
