//! The stock in Redis: how many items are left, and the list of those that were sold.
//!
//! It rides out a short outage. What only asks is asked again; a sale whose reply got lost is not, it may have happened.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Commands, Connection, RedisResult, cmd, pipe};

use crate::Failure;

const TIMEOUT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// What is left of a run that was killed goes by itself.
const KEPT_FOR_SECONDS: u64 = 3600;

pub(crate) struct Shelf {
    client: Client,
    connection: Option<Connection>,
    /// The name of the connection, by which the next one finds it at the server.
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
    /// Prepares the stock of `run` for `user`, whose name nobody else of the run has.
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

    /// As [`Shelf::left`], without patience.
    pub(crate) fn peek(&mut self) -> RedisResult<u64> {
        let key = self.left.clone();
        self.once(|redis| redis.get(&key))
    }

    /// Writes that `item`, the last one of those left, was sold by `seller`. Returns whether it was.
    ///
    /// `may_write` is asked before each write.
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
        let give_up = Instant::now() + PATIENCE;
        while may_write() {
            match self.once(|redis| sale.exec(redis)) {
                Ok(()) => return Ok(true),
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => thread::sleep(PAUSE),
            }
            // The reply is missing, not necessarily the sale.
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

    /// Sends what may be sent twice, until there is an answer.
    fn ask<T>(&mut self, request: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let give_up = Instant::now() + PATIENCE;
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
        // After an error a late reply may be on its way, which the next request would take for its own.
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer
    }

    fn connect(&self) -> RedisResult<Connection> {
        let mut connection = self.client.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        // The connection before this one may have a sale in its buffers that the server, frozen so far, has yet to
        // read. It must not happen after we looked whether it did.
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

    /// The id in a line of CLIENT LIST (`id=7 addr=… name=…`) if it is a connection of ours.
    fn id_of_mine<'a>(&self, client: &'a str) -> Option<&'a str> {
        let field = |key: &str| client.split(' ').find_map(|field| field.strip_prefix(key));
        field("id=").filter(|_| field("name=") == Some(self.name.as_str()))
    }
}
