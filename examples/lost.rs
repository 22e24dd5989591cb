//! A server freezes while a lock is held: the holder is told before anybody else can have the lock.
//!
//! It starts a Redis server of its own, so `redis-server` has to be in the PATH. It takes about three seconds.
//!
//!     cargo run --example lost
#![allow(clippy::print_stdout, reason = "it is there to be read")]

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{select, tick};
use redlatch::Client;
use rustix::process::{Pid, Signal, kill_process};

const LEASE: Duration = Duration::from_secs(3);

/// So much later than planned may a thread get to run on a busy machine.
const BUSY: Duration = Duration::from_millis(250);

fn main() -> Result<(), Box<dyn Error>> {
    let home = tempfile::tempdir()?;
    let server = Server::start(home.path())?;

    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .on_lost(|loss| println!("  on_lost:  {loss}"))
        .open(&format!(
            "redis+unix://{}",
            home.path().join(SOCKET).display()
        ))?;
    wait_for(&client)?;

    let lock = client.lock("lock:ledger");
    let guard = lock.guard()?;
    let lost = guard.lost();
    let began = Instant::now();
    println!("locked, and renewed every {:?}", LEASE / 3);

    // Long enough for a few renewals, without which the lease would be over; the next one is half a step away.
    thread::sleep(LEASE + LEASE / 2);
    println!(
        "after {:.1?}: is_valid {}",
        began.elapsed(),
        guard.is_valid()
    );

    let key_ends = Instant::now() + lock.remaining_lease()?.ok_or("the key is gone")?;
    let validity = guard.remaining_validity();
    let validity_ends = Instant::now() + validity;
    if key_ends < validity_ends {
        return Err("the holder believes in the lock for longer than it has it".into());
    }
    server.signal(Signal::STOP)?;
    let frozen = Instant::now();
    println!("the server freezes");

    // The work goes on in small steps, and stops when it has to.
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
    let told = Instant::now();
    println!("  is_valid: {}", guard.is_valid());
    match key_ends.checked_duration_since(told) {
        Some(spare) => println!("  in time:  the key ends in the server {spare:.1?} from now"),
        None if told - key_ends < BUSY => println!("  is_valid was in time, this machine was busy"),
        None => return Err("the holder was told too late".into()),
    }

    server.signal(Signal::CONT)?;
    println!("the server goes on");
    match guard.unlock() {
        Err(error) if error.is_lost() => println!("  unlock(): {error}"),
        other => return Err(format!("expected a loss, got {other:?}").into()),
    }
    Ok(())
}

const SOCKET: &str = "redis.sock";

/// A private Redis server, killed when it is dropped.
struct Server(Child);

impl Server {
    /// On a socket below `home`, which no other server can have.
    fn start(home: &Path) -> Result<Server, Box<dyn Error>> {
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket", SOCKET, "--dir"])
            .arg(home)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| {
                format!("redis-server cannot be started ({error}); `make test` installs it")
            })?;
        Ok(Server(server))
    }

    fn signal(&self, signal: Signal) -> Result<(), Box<dyn Error>> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, and nobody is left to be told.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the server is up.
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
