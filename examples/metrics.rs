//! Prints the metrics of contended locks as a page for Prometheus.
//!
//!     cargo run --example metrics --features metrics
//!
//! The example needs no server. If `REDIS_URL` is set, the locks are on that Redis server.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use redlatch::Client;

fn main() -> Result<(), Box<dyn Error>> {
    // Any recorder of the crate `metrics` works. Install it before opening the client.
    let bounds = [0.001, 0.01, 0.1, 1.0, 5.0, 30.0, 300.0];
    let prometheus = PrometheusBuilder::new()
        .set_buckets(&bounds)?
        .install_recorder()?;
    let client = match std::env::var("REDIS_URL") {
        Ok(url) => Client::open(&url)?,
        Err(_) => Client::in_memory(),
    };
    let end = Instant::now() + Duration::from_secs(1);
    thread::scope(|scope| {
        for reviewer in 0..4 {
            let client = &client;
            scope.spawn(move || -> redlatch::Result<()> {
                let mut task = reviewer;
                while Instant::now() < end {
                    // Two names, one class: "task".
                    let lock = client.lock(&format!("task:{}", task % 2));
                    if let Some(guard) = lock.try_guard_for(Duration::from_millis(20))? {
                        thread::sleep(Duration::from_millis(10));
                        guard.unlock()?;
                    }
                    task += 1;
                }
                Ok(())
            });
        }
    });
    // A handler of /metrics answers with this text.
    println!("{}", prometheus.render());
    Ok(())
}
