//! What is said on stderr, which may be a pipe that nobody reads.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

/// More than this is not kept for a reader; what comes then is left out.
const MOST: usize = 64;

/// The way to the thread that writes, once there is one.
static WRITER: OnceLock<Sender<Order>> = OnceLock::new();

enum Order {
    Write(String),
    /// Tells when all before it is written.
    Tell(Sender<()>),
}

/// Leaves all writing to a thread of its own from now on, so that nobody else ever waits for a reader.
pub(crate) fn detach() -> io::Result<()> {
    let (orders, ordered) = bounded(MOST);
    thread::Builder::new()
        .name("redlatch-stderr".to_owned())
        .spawn(move || write_all(&ordered))?;
    // There is one already if this fails, and ours ends.
    let _ = WRITER.set(orders);
    Ok(())
}

fn write_all(orders: &Receiver<Order>) {
    for order in orders {
        match order {
            Order::Write(text) => write(&text),
            // Nobody may wait for it any more.
            Order::Tell(done) => drop(done.send(())),
        }
    }
}

fn write(text: &str) {
    // Nobody is left to be told that this failed, too.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Says it; what was asked for is done without it.
pub(crate) fn say(text: String) {
    match WRITER.get() {
        Some(writer) => drop(writer.try_send(Order::Write(text))),
        None => write(&text),
    }
}

/// Waits until all is written, but no longer than this for a reader.
pub(crate) fn flush(patience: Duration) {
    let Some(writer) = WRITER.get() else { return };
    let until = Instant::now() + patience;
    let (done, is_done) = bounded(1);
    if writer.send_deadline(Order::Tell(done), until).is_ok() {
        let _ = is_done.recv_deadline(until);
    }
}
