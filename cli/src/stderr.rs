//! Messages on stderr, which may be a pipe that nobody reads.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Messages that wait for the writer thread; further messages are dropped.
const CAPACITY: usize = 64;

/// Sends to the writer thread once `detach` has started it.
static WRITER: OnceLock<Sender<Request>> = OnceLock::new();

enum Request {
    Write(String),
    /// Reports that all earlier messages are written.
    Flush(Sender<()>),
}

/// Starts the writer thread, so that no other thread blocks on a full pipe.
pub(crate) fn detach() -> io::Result<()> {
    let (requests, queue) = bounded(CAPACITY);
    thread::Builder::new()
        .name("redlatch-stderr".to_owned())
        .spawn(move || write_all(&queue))?;
    // A second call keeps the first thread; the new one ends.
    let _ = WRITER.set(requests);
    Ok(())
}

fn write_all(requests: &Receiver<Request>) {
    for request in requests {
        match request {
            Request::Write(text) => write_now(&text),
            // The waiting thread may have timed out.
            Request::Flush(done) => drop(done.send(())),
        }
    }
}

fn write_now(text: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints a message. A failure to do so is ignored.
pub(crate) fn print(text: String) {
    match WRITER.get() {
        Some(writer) => drop(writer.try_send(Request::Write(text))),
        None => write_now(&text),
    }
}

/// Waits until all messages are written, for at most `timeout`.
pub(crate) fn flush(timeout: Duration) {
    let Some(writer) = WRITER.get() else { return };
    let deadline = Instant::now() + timeout;
    let (done, is_done) = bounded(1);
    if writer.send_deadline(Request::Flush(done), deadline).is_ok() {
        let _ = is_done.recv_deadline(deadline);
    }
}
