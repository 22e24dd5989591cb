//! The command line.

use std::env;
use std::process;
use std::str::FromStr;
use std::time::Duration;

const HELP: &str = "\
usage: stock [option...], with the address of a Redis server in REDIS_URL

  --processes P     processes that sell (4)
  --threads T       threads that sell in each of them (8)
  --items N         items in stock (2000)
  --without-lock    sell without the lock
  --hold-ms MS      time between reading and writing the stock (0)
  --watchdog-ms MS  lease time of the lock, which is renewed at a third of it (30000)
  --limit-s S       give up after this time (120)
  --stock-url URL   Redis server of the stock, if another than that of the lock";

const NO_SERVER: &str = "\
REDIS_URL is not set: no server for the stock and the lock.

  make demo                                    starts a Redis server
  tests/with-redis cargo run --example stock   also starts one
  redis-server --port 6379                     starts one, for REDIS_URL=redis://127.0.0.1:6379";

pub(crate) struct Options {
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    pub(crate) items: u64,
    pub(crate) without_lock: bool,
    pub(crate) hold: Duration,
    pub(crate) watchdog: Duration,
    pub(crate) limit: Duration,
    pub(crate) lock_url: String,
    pub(crate) stock_url: String,
    /// Set in the processes that sell.
    pub(crate) seller: Option<Seller>,
}

/// Options that only the parent process sets.
#[derive(Default)]
pub(crate) struct Seller {
    pub(crate) process: usize,
    pub(crate) run: String,
}

impl Options {
    /// Reads the command line, or returns what is wrong with it.
    pub(crate) fn from_command_line() -> Result<Options, String> {
        let mut options = Options {
            processes: 4,
            threads: 8,
            items: 2000,
            without_lock: false,
            hold: Duration::ZERO,
            watchdog: Duration::from_secs(30),
            limit: Duration::from_secs(120),
            lock_url: String::new(),
            stock_url: String::new(),
            seller: None,
        };
        let mut words = env::args().skip(1);
        while let Some(option) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("{option} lacks a value\n\n{HELP}"))
            };
            match option.as_str() {
                "--processes" => options.processes = number(&option, &value()?)?,
                "--threads" => options.threads = number(&option, &value()?)?,
                "--items" => options.items = number(&option, &value()?)?,
                "--without-lock" => options.without_lock = true,
                "--hold-ms" => options.hold = Duration::from_millis(number(&option, &value()?)?),
                "--watchdog-ms" => {
                    options.watchdog = Duration::from_millis(number(&option, &value()?)?)
                }
                "--limit-s" => options.limit = Duration::from_secs(number(&option, &value()?)?),
                "--stock-url" => options.stock_url = value()?,
                "--seller" => {
                    options.seller.get_or_insert_default().process = number(&option, &value()?)?
                }
                "--run" => options.seller.get_or_insert_default().run = value()?,
                "--help" | "-h" => {
                    println!("{HELP}");
                    process::exit(0);
                }
                _ => return Err(format!("{option} is not an option\n\n{HELP}")),
            }
        }
        options.lock_url = env::var("REDIS_URL").map_err(|_| NO_SERVER)?;
        if options.stock_url.is_empty() {
            options.stock_url.clone_from(&options.lock_url);
        }
        Ok(options)
    }
}

fn number<T: FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{option} is a whole number, not {text:?}"))
}
