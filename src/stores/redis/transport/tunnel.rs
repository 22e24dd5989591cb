//! TLS for connections of the crate `mysql`.
//!
//! The TLS of that crate always trusts the public authorities and always checks the host, but redlatch has settings for
//! these checks. So the crate connects to a Unix socket, and a thread forwards the bytes over TLS.

use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use redis::ConnectionAddr;

use crate::ground::poll;
use crate::ground::random;
use crate::ground::sync;
use crate::ground::time;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::socket::{Socket, passes};
use crate::stores::redis::transport::stream::Stream;
use crate::stores::redis::transport::tls::{Peer, Session};

/// `CLIENT_SSL` in the second byte of the capability flags.
const TLS: u8 = 0x08;
/// The length of an SSL request packet with its header, in bytes. A login packet has the same first fields.
const REQUEST: usize = 36;
/// The first payload byte of a packet that ends a login: OK or ERR.
const ACCEPTED: u8 = 0;
const REFUSED: u8 = 0xff;

const BLOCK: usize = 16 << 10;
const LONGEST_WRITE: Duration = Duration::from_secs(10);
/// The time-out of each `poll` on an idle connection.
const IDLE: Duration = Duration::from_secs(3600);

/// A Unix socket that accepts one connection.
pub(crate) struct Tunnel {
    pub(crate) path: PathBuf,
    pub(crate) fault: Receiver<CallError>,
}

impl Tunnel {
    /// The login must end by `deadline`.
    pub(crate) fn open(
        peer: &Peer,
        host: &str,
        port: u16,
        deadline: Instant,
    ) -> io::Result<Tunnel> {
        let (sender, fault) = bounded(1);
        // Mode 0700 keeps other users out.
        let folder = std::env::temp_dir().join(format!("redlatch-{}", random::uuid()));
        let path = folder.join("tls");
        let made = DirBuilder::new().mode(0o700).create(&folder);
        let listener = made.and_then(|()| UnixListener::bind(&path));
        let listener = listener.map_err(|error| {
            let _ = fs::remove_dir(&folder);
            let words = format!("no socket can be created at {path:?} (TMPDIR): {error}");
            io::Error::new(error.kind(), words)
        })?;
        let (peer, place) = (peer.clone(), ConnectionAddr::Tcp(host.to_owned(), port));
        sync::spawn("redlatch-tls", move || {
            let arrived = poll::wait([listener.as_fd()].into_iter(), deadline);
            let near = matches!(arrived, Ok(Some(_))).then(|| listener.accept());
            // The file of the socket is necessary only until a connection is accepted.
            let _ = fs::remove_dir_all(&folder);
            if let Some(Ok((near, _))) = near
                && let Err(fault) = carry(&near, &peer, &place, deadline)
            {
                let _ = sender.try_send(fault);
            }
        })?;
        Ok(Tunnel { path, fault })
    }
}

/// This function adds an SSL request to the login. So it shifts the sequence numbers of the later login packets.
fn carry(
    mut near: &UnixStream,
    peer: &Peer,
    place: &ConnectionAddr,
    deadline: Instant,
) -> Result<(), CallError> {
    let failed = CallError::of_connecting;
    let mut far = Stream {
        socket: Socket::connect(place, deadline).map_err(failed)?,
        session: None,
    };
    let greeting = packet(&mut far, deadline).map_err(failed)?;
    near.write_all(&greeting).map_err(failed)?;
    let mut block = vec![0; BLOCK];
    let mut count = near.read(&mut block).map_err(failed)?;
    // If the server's first packet is an error, the crate `mysql` closes the connection without a login.
    if count < REQUEST {
        return Ok(());
    }
    block[5] |= TLS;
    let request = [&[32, 0, 0], &block[3..REQUEST]].concat();
    (&far.socket).write_all(&request).map_err(failed)?;
    far.session = Some(Session::open(peer, &far.socket, deadline)?);
    let set = far.socket.set_write_timeout(LONGEST_WRITE);
    set.map_err(failed)?;
    let mut is_logged_in = false;
    loop {
        if !is_logged_in {
            block[3] = block[3].wrapping_add(1);
        }
        let sealed = far.seal(&block[..count]).map_err(failed)?;
        if let Err(error) = (&far.socket).write_all(&sealed) {
            // The server may have sent its reason before it closed the connection.
            while !passes(&error)
                && let Ok(count @ 1..) = far.read(&mut block)
            {
                near.write_all(&block[..count]).map_err(failed)?;
            }
            return Err(failed(error));
        }
        while !has_spoken_alone(near, &far).map_err(failed)? {
            if is_logged_in {
                match far.read(&mut block) {
                    Ok(0) => return Ok(()),
                    Ok(count) => near.write_all(&block[..count]).map_err(failed)?,
                    Err(error) if passes(&error) => {}
                    Err(error) => return Err(failed(error)),
                }
            } else {
                let packet = packet(&mut far, deadline);
                let mut packet =
                    packet.map_err(|error| far.refusal().unwrap_or_else(|| failed(error)))?;
                packet[3] = packet[3].wrapping_sub(1);
                is_logged_in = matches!(packet.get(4), Some(&(ACCEPTED | REFUSED)));
                near.write_all(&packet).map_err(failed)?;
            }
        }
        count = near.read(&mut block).map_err(failed)?;
        if count == 0 {
            return Ok(());
        }
    }
}

/// Waits until `near` or `far` is readable. Returns whether only `near` is readable.
fn has_spoken_alone(near: &UnixStream, far: &Stream) -> io::Result<bool> {
    while !far.session.as_ref().is_some_and(Session::has_buffered) {
        let ends = [far.socket.source(), near.as_fd()].into_iter();
        if let Some(readable) = poll::wait(ends, time::now() + IDLE)? {
            return Ok(!readable[0]);
        }
    }
    Ok(false)
}

/// Reads one packet: 3 bytes length, 1 byte sequence number, payload.
fn packet(far: &mut Stream, deadline: Instant) -> io::Result<Vec<u8>> {
    let (mut packet, mut filled) = (vec![0; 4], 0);
    while filled < packet.len() {
        let left = deadline.saturating_duration_since(time::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        far.socket.set_read_timeout(left)?;
        match far.read(&mut packet[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
        if filled == 4 {
            let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
            packet.resize(4 + length as usize, 0);
        }
    }
    Ok(packet)
}
