//! The stock in Redis: how many items are left, and the list of those that were sold.
//!
//! It retries through a short outage. A sale whose reply was lost is not repeated, because it may have happened.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Commands, Connection, RedisResult, cmd, pipe};

use crate::Failure;

const TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_FOR: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// The keys of a killed run expire.
const KEPT_FOR_SECONDS: u64 = 3600;

pub(crate) struct Shelf {
    client: Client,
    connection: Option<Connection>,
    /// The name of the connection, by which the next one finds it on the server.
    name: String,
    left: String,
    sold: String,
}

/// One entry of the list: `item process.thread`.
pub(crate) struct Sale {
    pub(crate) item: u64,
    pub(crate) process: usize,
}

impl Shelf {
    /// Prepares the stock of `run` for `user`, whose name is unique within the run.
    pub(crate) fn open(url: &str, run: &str, user: &str) -> Result<Shelf, Failure> {
        Ok(Shelf {
            client: Client::open(url)?,
            connection: None,
            name: format!("{run}.{user}"),
            left: format!("stock:{{{run}}}:left"),
            sold: format!("stock:{{{run}}}:sold"),
        })
    }

    /// The server, without the password.
    pub(crate) fn node(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    pub(crate) fn fill(&mut self, items: u64) -> RedisResult<()> {
        let left = self.left.clone();
        self.once(|redis| redis.set_ex(&left, items, KEPT_FOR_SECONDS))
    }

    /// Reads how many items are left.
    pub(crate) fn left(&mut self) -> Result<u64, Failure> {
        let key = self.left.clone();
        let left: Option<u64> = self.ask(|redis| redis.get(&key))?;
        left.ok_or_else(|| "the stock is gone from the server".into())
    }

    /// As [`Shelf::left`], without retries.
    pub(crate) fn peek(&mut self) -> RedisResult<u64> {
        let key = self.left.clone();
        self.once(|redis| redis.get(&key))
    }

    /// Writes that `item`, the last one of those left, was sold by `seller`. Returns whether it was.
    ///
    /// Calls `may_write` before each write.
    pub(crate) fn sell(
        &mut self,
        item: u64,
        seller: &str,
        may_write: impl Fn() -> bool,
    ) -> RedisResult<bool> {
        let mut sale = pipe();
        let entry = format!("{item} {seller}");
        sale.atomic()
            .set_ex(&self.left, item - 1, KEPT_FOR_SECONDS)
            .rpush(&self.sold, &entry)
            .expire(&self.sold, KEPT_FOR_SECONDS as i64);
        let give_up = Instant::now() + RETRY_FOR;
        while may_write() {
            match self.once(|redis| sale.exec(redis)) {
                Ok(()) => return Ok(true),
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => thread::sleep(PAUSE),
            }
            // The reply is missing; the sale may have happened.
            if self.entries()?.contains(&entry) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the list of what was sold, in order.
    pub(crate) fn sales(&mut self) -> Result<Vec<Sale>, Failure> {
        let entries = self.entries()?;
        let parse = |entry: &String| {
            let (item, seller) = entry.split_once(' ')?;
            let (process, _) = seller.split_once('.')?;
            Some(Sale {
                item: item.parse().ok()?,
                process: process.parse().ok()?,
            })
        };
        let sales: Option<Vec<Sale>> = entries.iter().map(parse).collect();
        sales.ok_or_else(|| "something else writes to the list of sales".into())
    }

    /// Deletes what this run left on the server.
    pub(crate) fn clear(&mut self) -> RedisResult<()> {
        let keys = [self.left.clone(), self.sold.clone()];
        self.ask(|redis| redis.del(&keys))
    }

    fn entries(&mut self) -> RedisResult<Vec<String>> {
        let sold = self.sold.clone();
        self.ask(|redis| redis.lrange(&sold, 0, -1))
    }

    /// Repeats a request that may run twice, until there is a reply.
    fn ask<T>(&mut self, request: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let give_up = Instant::now() + RETRY_FOR;
        loop {
            match self.once(&request) {
                Err(_) if Instant::now() < give_up => thread::sleep(PAUSE),
                answer => return answer,
            }
        }
    }

    fn once<T>(
        &mut self,
        request: impl FnOnce(&mut Connection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer = request(&mut connection);
        // After an error a late reply may follow, which the next request would read as its own.
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer
    }

    fn connect(&self) -> RedisResult<Connection> {
        let mut connection = self.client.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        // A frozen server may not have read a sale of the connection before this one. That sale must not run after the list
        // of sales was read.
        let clients: String = cmd("CLIENT").arg("LIST").query(&mut connection)?;
        for id in clients.lines().filter_map(|client| self.id_of_mine(client)) {
            cmd("CLIENT")
                .arg("KILL")
                .arg("ID")
                .arg(id)
                .exec(&mut connection)?;
        }
        cmd("CLIENT")
            .arg("SETNAME")
            .arg(&self.name)
            .exec(&mut connection)?;
        Ok(connection)
    }

    /// The id in a line of CLIENT LIST (`id=7 addr=… name=…`) if the connection is of this shelf.
    fn id_of_mine<'a>(&self, client: &'a str) -> Option<&'a str> {
        let field = |key: &str| client.split(' ').find_map(|field| field.strip_prefix(key));
        field("id=").filter(|_| field("name=") == Some(self.name.as_str()))
    }
}
