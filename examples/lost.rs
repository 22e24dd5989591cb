//! A server freezes while a lock is held. The holder is notified before another client can acquire the lock.
//!
//!     cargo run --example lost
//!
//! The example starts its own server, so `redis-server` must be in the PATH. The example runs for about seven seconds.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{select, tick};
use redlatch::Client;
use rustix::process::{Pid, Signal, kill_process};

const LEASE: Duration = Duration::from_secs(3);

/// A busy machine may run a thread this much late.
const TOLERANCE: Duration = Duration::from_millis(250);

fn main() -> Result<(), Box<dyn Error>> {
    let home = tempfile::tempdir()?;
    let server = Server::start(home.path())?;
    let socket = home.path().join(SOCKET);
    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .on_lost(|loss| println!("  on_lost:  {loss}"))
        .open(&format!("redis+unix://{}", socket.display()))?;
    wait_for(&client)?;

    let lock = client.lock("lock:orders:42");
    let guard = lock.guard()?;
    let lost = guard.lost();
    let began = Instant::now();
    println!("locked, renewed every {:?}", LEASE / 3);

    // Longer than the lease, and half of a renewal interval before the next renewal.
    thread::sleep(LEASE + LEASE / 2);
    println!(
        "after {:.1?}: is_valid {}",
        began.elapsed(),
        guard.is_valid()
    );

    let key_ends = Instant::now() + lock.remaining_lease()?.ok_or("the key is gone")?;
    let validity_ends = Instant::now() + guard.remaining_validity();
    if key_ends < validity_ends {
        return Err("the hold is valid for longer than its key".into());
    }
    server.signal(Signal::STOP)?;
    let frozen = Instant::now();
    println!("the server freezes");

    // Work in small steps stops when the lock is lost.
    let next_step = tick(LEASE / 5);
    loop {
        select! {
            recv(lost.as_receiver()) -> loss => {
                println!("  lost():   {:.1?} after the freeze, {}", frozen.elapsed(), loss?.cause);
                break;
            }
            recv(next_step) -> _ => println!(
                "  working:  is_valid {}, for {:.1?} more", guard.is_valid(), guard.remaining_validity()
            ),
        }
    }
    let notified = Instant::now();
    println!("  is_valid: {}", guard.is_valid());
    match key_ends.checked_duration_since(notified) {
        Some(rest) => println!("  in time:  the key expires in {rest:.1?}"),
        None if notified - key_ends < TOLERANCE => println!("  late, on a busy machine"),
        None => return Err("the holder was notified too late".into()),
    }

    server.signal(Signal::CONT)?;
    println!("the server continues");
    match guard.unlock() {
        Err(error) if error.is_lost() => println!("  unlock(): {error}"),
        other => return Err(format!("expected a loss, got {other:?}").into()),
    }
    Ok(())
}

const SOCKET: &str = "redis.sock";

/// A private Redis server, killed on drop.
struct Server(Child);

impl Server {
    /// Listens on a Unix socket in `home`.
    fn start(home: &Path) -> Result<Server, Box<dyn Error>> {
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket", SOCKET, "--dir"])
            .arg(home)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server cannot be started: {error}"))?;
        Ok(Server(server))
    }

    fn signal(&self, signal: Signal) -> Result<(), Box<dyn Error>> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the server has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the server answers.
fn wait_for(client: &Client) -> redlatch::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = client.check() {
        if Instant::now() > deadline {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
