//! A lock on five servers, which end one after the other while it is held.
//!
//! It starts the Redis servers itself, so `redis-server` has to be in the PATH. It takes about eight seconds.
//!
//!     cargo run --example redlock
#![allow(clippy::print_stdout, reason = "it is there to be read")]

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
    let holder = redlock(&servers)?;
    let other = redlock(&servers)?.lock("lock:ledger");
    let lock = holder.lock("lock:ledger");
    let guard = lock.guard()?;
    println!("five servers, three of which have to agree");
    look(&guard, &other);

    for left in [4, 3] {
        servers.truncate(left);
        println!("\none is killed, {left} are left");
        // The lease would end meanwhile, if the rest did not extend it.
        thread::sleep(LEASE + LEASE / 2);
        look(&guard, &other);
    }

    let lost = guard.lost();
    servers.truncate(2);
    let killed = Instant::now();
    println!("\none is killed, two are left, which is no majority");
    look(&guard, &other);
    let loss = lost.recv_timeout(2 * LEASE)?;
    println!(
        "  holder: told of the loss {:.1?} after the kill: {}",
        killed.elapsed(),
        loss.cause
    );
    look(&guard, &other);
    match guard.unlock() {
        Err(error) if error.is_lost() => println!("  unlock(): {error}"),
        other => return Err(format!("expected a loss, got {other:?}").into()),
    }
    Ok(())
}

fn redlock(servers: &[Server]) -> Result<Redlock, Box<dyn Error>> {
    let clients: Vec<Client> = servers
        .iter()
        .map(|server| Client::open(&server.url))
        .collect::<Result<_, _>>()?;
    Ok(Redlock::builder()
        .nodes(clients)
        .max_lease(LEASE)
        // These have just been started, and have granted nothing before that they could have forgotten.
        .trust_new_nodes()
        .build()?)
}

/// What the holder and somebody else see.
fn look(guard: &Guard, other: &Lock) {
    println!("  holder: is_valid {}", guard.is_valid());
    match other.try_lock() {
        Ok(true) => println!("  other:  has the lock"),
        Ok(false) => println!("  other:  somebody else has the lock"),
        Err(LockError::NoQuorum {
            granted,
            refused,
            unreachable,
            needed,
            nodes,
            ..
        }) => {
            println!(
                "  other:  no quorum: {granted} granted it, {refused} refused it, {unreachable} cannot be reached, \
                 {needed} are needed"
            );
            for node in nodes {
                println!("          {}: {}", node.node, node.answer);
            }
        }
        Err(error) => println!("  other:  {error}"),
    }
}

/// A private Redis server, killed when it is dropped.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start() -> Result<Server, Box<dyn Error>> {
        // Somebody else may take the port first.
        for _ in 0..10 {
            let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            let mut server = Server {
                process: Command::new("redis-server")
                    .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                    .args(["--save", ""])
                    .stdout(Stdio::null())
                    .spawn()
                    .map_err(|error| {
                        format!("redis-server cannot be started ({error}); `make test` installs it")
                    })?,
                url: format!("redis://127.0.0.1:{port}"),
            };
            if server.is_up()? {
                return Ok(server);
            }
        }
        Err("no redis-server starts".into())
    }

    /// Whether it, and not somebody else at its port, answers soon.
    fn is_up(&mut self) -> Result<bool, Box<dyn Error>> {
        let own = format!("process_id:{}", self.process.id());
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && self.process.try_wait()?.is_none() {
            let info =
                redis::Client::open(&*self.url)?
                    .get_connection()
                    .and_then(|mut connection| {
                        redis::cmd("INFO")
                            .arg("server")
                            .query::<String>(&mut connection)
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
        // It may have ended by itself, and nobody is left to be told.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
