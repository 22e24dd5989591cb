//! A lock on five servers. While the lock is held, three servers are killed one after the other.
//!
//!     cargo run --example redlock
//!
//! The example starts its own servers, so `redis-server` must be in the PATH. The example runs for about eight seconds.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::error::Error;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error as LockError, Guard, Lock, Redlock};

const LEASE: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = (0..5)
        .map(|_| Server::start())
        .collect::<Result<Vec<_>, _>>()?;
    let redlock = open(&servers)?;
    let elsewhere = open(&servers)?.lock("lock:orders:42");
    let lock = redlock.lock("lock:orders:42");
    let guard = lock.guard()?;
    println!("five servers, three of which must agree");
    show(&guard, &elsewhere);

    for left in [4, 3] {
        servers.truncate(left);
        println!("\none is killed, {left} are left");
        // Longer than the lease: the other servers renew it.
        thread::sleep(LEASE + LEASE / 2);
        show(&guard, &elsewhere);
    }

    let lost = guard.lost();
    servers.truncate(2);
    let killed = Instant::now();
    println!("\none is killed, two are left, which is no majority");
    show(&guard, &elsewhere);
    let loss = lost.recv_timeout(2 * LEASE)?;
    println!(
        "  holder:    notified of the loss {:.1?} after the kill: {}",
        killed.elapsed(),
        loss.cause
    );
    show(&guard, &elsewhere);
    match guard.unlock() {
        Err(error) if error.is_lost() => println!("  unlock():  {error}"),
        other => return Err(format!("expected a loss, got {other:?}").into()),
    }
    Ok(())
}

fn open(servers: &[Server]) -> Result<Redlock, Box<dyn Error>> {
    let nodes: Vec<Client> = servers
        .iter()
        .map(|server| Client::open(&server.url))
        .collect::<Result<_, _>>()?;
    Ok(Redlock::builder()
        .nodes(nodes)
        .max_lease(LEASE)
        // They have just been started, so they cannot have forgotten a lock.
        .trust_new_nodes()
        .build()?)
}

/// Prints what the holder and another process see.
fn show(guard: &Guard, elsewhere: &Lock) {
    println!("  holder:    is_valid {}", guard.is_valid());
    match elsewhere.try_guard() {
        Ok(Some(_)) => println!("  elsewhere: acquired the lock"),
        Ok(None) => println!("  elsewhere: the lock is held"),
        Err(error @ LockError::NoQuorum { .. }) => println!("  elsewhere: no quorum: {error}"),
        Err(error) => println!("  elsewhere: {error}"),
    }
}

/// A private Redis server, killed on drop.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start() -> Result<Server, Box<dyn Error>> {
        // Another program may take the port first.
        for _ in 0..10 {
            let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            let mut server = Server {
                process: Command::new("redis-server")
                    .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                    .args(["--save", ""])
                    .stdout(Stdio::null())
                    .spawn()
                    .map_err(|error| format!("redis-server cannot be started: {error}"))?,
                url: format!("redis://127.0.0.1:{port}"),
            };
            if server.is_up()? {
                return Ok(server);
            }
        }
        Err("no redis-server could be started".into())
    }

    /// Returns whether this server, not another program at its port, answers within ten seconds.
    fn is_up(&mut self) -> Result<bool, Box<dyn Error>> {
        let own = format!("process_id:{}", self.process.id());
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && self.process.try_wait()?.is_none() {
            let connection = redis::Client::open(&*self.url)?.get_connection();
            let info = connection.and_then(|mut connection| {
                let mut command = redis::cmd("INFO");
                command.arg("server").query::<String>(&mut connection)
            });
            if info.is_ok_and(|info| info.lines().any(|line| line == own)) {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the server has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
