//! What is said on stderr, which may be a pipe that nobody reads.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

/// More than this is not kept for a reader; what comes then is left out.
const CAPACITY: usize = 64;

/// The way to the thread that writes, once there is one.
static WRITER: OnceLock<Sender<Request>> = OnceLock::new();

enum Request {
    Write(String),
    /// Tells when all before it is written.
    Flush(Sender<()>),
}

/// Leaves all writing to a thread of its own from now on, so that nobody else ever waits for a reader.
pub(crate) fn detach() -> io::Result<()> {
    let (requests, queue) = bounded(CAPACITY);
    thread::Builder::new()
        .name("redlatch-stderr".to_owned())
        .spawn(move || write_all(&queue))?;
    // There is one already if this fails, and ours ends.
    let _ = WRITER.set(requests);
    Ok(())
}

fn write_all(requests: &Receiver<Request>) {
    for request in requests {
        match request {
            Request::Write(text) => write_now(&text),
            // Nobody may wait for it any more.
            Request::Flush(done) => drop(done.send(())),
        }
    }
}

fn write_now(text: &str) {
    // Nobody is left to be told that this failed, too.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Says it; what was asked for is done without it.
pub(crate) fn print(text: String) {
    match WRITER.get() {
        Some(writer) => drop(writer.try_send(Request::Write(text))),
        None => write_now(&text),
    }
}

/// Waits until all is written, but no longer than this for a reader.
pub(crate) fn flush(timeout: Duration) {
    let Some(writer) = WRITER.get() else { return };
    let deadline = Instant::now() + timeout;
    let (done, is_done) = bounded(1);
    if writer.send_deadline(Request::Flush(done), deadline).is_ok() {
        let _ = is_done.recv_deadline(deadline);
    }
}
