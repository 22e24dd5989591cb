//! A shop that sells from one stock under a lock; a unit sold twice proves two holders.
//!
//! Several processes with several threads each sell units: they read the stock, work for a while, and write it back.
//! The stock is on its own server, without faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::Lock;

use super::child::{arg, listen, say};
use super::contender::{Contenders, Counts, contend};
use super::history::{Overlap, Summary};
use super::{RedisServer, eventually, ms};

/// The units that there are at first.
pub const STOCK: u64 = 1_000_000;

/// No lease covers the moment between the check of the guard and the write; a seller leaves this margin.
const MARGIN: Duration = ms(200);

/// The role of a process that sells.
pub const SELLER: &str = "seller";

/// The connection of one thread to the stock.
struct Seller {
    connection: redis::Connection,
    own: String,
}

impl Seller {
    fn begin() -> Seller {
        let client = redis::Client::open(arg("STOCK")).expect("the address of the stock");
        Seller {
            connection: client.get_connection().expect("the stock answers"),
            own: format!("sold by {}", arg("NUMBER")),
        }
    }

    /// Sells one unit, unless `may` returns false right before the write.
    fn sell(&mut self, may: impl FnOnce() -> bool) -> redis::RedisResult<bool> {
        let left: u64 = redis::cmd("GET").arg("left").query(&mut self.connection)?;
        thread::sleep(Duration::from_micros(fastrand::u64(..3000)));
        if !may() {
            return Ok(false);
        }
        let (is_first,): (u64,) = redis::pipe()
            .cmd("SET")
            .arg("left")
            .arg(left - 1)
            .ignore()
            .cmd("SADD")
            .arg("sold")
            .arg(left)
            .cmd("INCR")
            .arg(&self.own)
            .ignore()
            .query(&mut self.connection)?;
        if is_first == 0 {
            let twice = redis::cmd("INCR").arg("sold twice").to_owned();
            twice.query::<u64>(&mut self.connection)?;
        }
        Ok(true)
    }
}

/// In a contender: sells with one thread for each of `locks`.
pub fn sell_under(locks: Vec<Lock>) {
    contend(
        locks,
        Some(Duration::from_secs(4)),
        Seller::begin,
        |seller, visit| {
            // Occasionally a seller is slow, past some renewals and into the next fault.
            let is_slow = fastrand::u32(..25) == 0;
            let sales = if is_slow { 60 } else { fastrand::u32(1..=4) };
            for _ in 0..sales {
                let may = || visit.is_valid() && visit.guard.remaining_validity() > MARGIN;
                let is_sold = seller.sell(may).expect("the stock answers");
                if !is_sold && !visit.guard.is_valid() {
                    break;
                }
                if is_slow {
                    thread::sleep(ms(40));
                }
            }
        },
    );
}

/// In a contender: sells with this many threads and no lock.
pub fn sell_without_a_lock(threads: usize) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut seller = Seller::begin();
                while !is_over.load(Ordering::Relaxed) {
                    seller.sell(|| true).expect("the stock answers");
                }
            });
        }
        say("open");
        while listen().is_some() {}
        is_over.store(true, Ordering::Relaxed);
    });
}

/// The result of a day in the shop.
#[derive(Debug)]
pub struct ShopResult {
    /// Units that were sold, once or more.
    pub sold: u64,
    /// Units that went from the stock.
    pub gone: u64,
    /// Repeated sales of a unit.
    pub twice: u64,
    /// The errors that the sellers got.
    pub counts: Counts,
    /// The result of checking their records.
    pub history: Result<Summary, Overlap>,
}

/// The fixture: the stock and the selling processes.
pub struct Shop {
    stock: RedisServer,
    pub sellers: Contenders,
}

impl Shop {
    /// A shop with a full stock and no sellers.
    pub fn open() -> Shop {
        let stock = RedisServer::start();
        stock.cmd(&["SET", "left", &STOCK.to_string()]);
        Shop {
            stock,
            sellers: Contenders::none(),
        }
    }

    /// Starts another selling process, with environment variables.
    pub fn hire(&mut self, env: &[(&str, &str)]) {
        let stock = self.stock.url();
        self.sellers
            .start(SELLER, &[env, &[("STOCK", &stock)]].concat());
    }

    /// Kills the process that has sold longest, during a sale.
    pub fn fire(&mut self) {
        self.sellers.kill_one();
    }

    fn number(&self, key: &str) -> u64 {
        let text = self.stock.text(&["GET", key]);
        text.map_or(0, |text| text.parse().expect("a number"))
    }

    /// How many different units were sold.
    pub fn sold(&self) -> u64 {
        self.stock.int(&["SCARD", "sold"]).unsigned_abs()
    }

    /// How many sales were repeated sales of a unit.
    pub fn sold_twice(&self) -> u64 {
        self.number("sold twice")
    }

    /// The sales of each process ever started.
    pub fn sales(&self) -> Vec<u64> {
        (0..self.sellers.started)
            .map(|number| self.number(&format!("sold by {number}")))
            .collect()
    }

    /// Waits until fifty more units are sold, and returns how long that took.
    #[track_caller]
    pub fn sells_on(&self, limit: Duration) -> Duration {
        let (start, sold) = (Instant::now(), self.sold());
        eventually(limit, "the shop goes on selling", || {
            self.sold() > sold + 50
        });
        start.elapsed()
    }

    /// Waits until every running process has sold another unit.
    #[track_caller]
    pub fn everybody_sells(&self, limit: Duration) {
        let first = self.sellers.started - self.sellers.running.len();
        let before = self.sales();
        eventually(limit, "every process sells again", || {
            let now = self.sales();
            now[first..]
                .iter()
                .zip(&before[first..])
                .all(|(now, before)| now > before)
        });
    }

    /// Ends all processes and checks their sales.
    pub fn close(self) -> ShopResult {
        let (counts, history) = self.sellers.end();
        let stock = self.stock;
        let shop = Shop {
            stock,
            sellers: Contenders::none(),
        };
        ShopResult {
            sold: shop.sold(),
            gone: STOCK - shop.number("left"),
            twice: shop.sold_twice(),
            counts,
            history,
        }
    }

    /// Ends processes that sell without a lock.
    pub fn close_without_a_lock(&mut self) {
        for seller in &mut self.sellers.running {
            assert!(seller.wait(Duration::from_secs(30)).success());
        }
    }
}
