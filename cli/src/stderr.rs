//! Messages on stderr, which may be a pipe that nobody reads.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

/// If the queue is full, messages are dropped.
const CAPACITY: usize = 64;

/// The queue of the writer thread. Unset before `detach` is called.
static WRITER: OnceLock<Sender<Request>> = OnceLock::new();

enum Request {
    Write(String),
    Flush(Sender<()>),
}

/// Starts the writer thread. From then on, a full pipe blocks only this thread.
pub(crate) fn detach() -> io::Result<()> {
    let (requests, queue) = bounded(CAPACITY);
    thread::Builder::new()
        .name("redlatch-stderr".to_owned())
        .spawn(move || write_all(&queue))?;
    // If `detach` is called twice, the first thread stays, and the second one ends.
    let _ = WRITER.set(requests);
    Ok(())
}

fn write_all(requests: &Receiver<Request>) {
    for request in requests {
        match request {
            Request::Write(text) => write_now(&text),
            // The receiver may have timed out.
            Request::Flush(done) => drop(done.send(())),
        }
    }
}

fn write_now(text: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}

pub(crate) fn print(text: String) {
    match WRITER.get() {
        Some(writer) => drop(writer.try_send(Request::Write(text))),
        None => write_now(&text),
    }
}

pub(crate) fn flush(timeout: Duration) {
    let Some(writer) = WRITER.get() else { return };
    let deadline = Instant::now() + timeout;
    let (done, is_done) = bounded(1);
    if writer.send_deadline(Request::Flush(done), deadline).is_ok() {
        let _ = is_done.recv_deadline(deadline);
    }
}
