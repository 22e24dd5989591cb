//! EVAL and EVALSHA.

use std::collections::HashMap;

use super::{Server, known_scripts};
use crate::commands::{Redis, Surroundings, integer};
use crate::reply::Reply;
use crate::scripts::{Args, Script, hash};

/// The scripts by their hashes, each with whether it is the one for sharded messages.
pub(super) type Known = HashMap<String, (&'static Script, bool)>;

impl Server {
    /// Runs a script by its text, which makes it known.
    pub(super) fn eval(&mut self, now: i64, connection: u64, args: &[&[u8]]) -> Reply {
        let hash = hash(args[0]);
        self.scripts.insert(hash.clone());
        self.run_script(now, connection, &hash, args)
    }

    /// Runs a script by its hash.
    pub(super) fn evalsha(&mut self, now: i64, connection: u64, args: &[&[u8]]) -> Reply {
        let hash = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
        if !self.scripts.contains(&hash) {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
        }
        self.run_script(now, connection, &hash, args)
    }

    fn run_script(&mut self, now: i64, connection: u64, hash: &str, args: &[&[u8]]) -> Reply {
        let Some((script, is_sharded)) = known_scripts().get(hash) else {
            return Reply::Error(
                "ERR this simulated server knows the scripts of redlatch alone".into(),
            );
        };
        let (keys, args) = match keys_and_args(args) {
            Ok(parts) => parts,
            Err(refused) => return refused,
        };
        let replication = self.info("replication", now);
        let refusal = self.refusal_of_writes().map(str::to_owned);
        let channels = if *is_sharded {
            &self.shard_channels
        } else {
            &self.channels
        };
        let around = Surroundings {
            database: self.connections[&connection].database,
            now,
            replication: &replication,
            subscriptions: channels,
            refuses_writes: refusal.as_deref(),
            is_full: self.is_full,
            denied: &self.denied,
            is_leaving: keys.find(1).is_some_and(|key| self.is_leaving(key)),
        };
        let mut redis = Redis::new(&mut self.keys, around);
        let answer = (script.spec)(&mut redis, keys, args);
        let (changes, published) = (redis.changes, redis.published);
        if !changes.is_empty() {
            self.replication.record(changes);
            if let Some(from) = self.connections.get_mut(&connection) {
                from.written = self.replication.offset;
            }
        }
        for (channel, text) in published {
            self.publish(&channel, &text, *is_sharded);
        }
        answer.unwrap_or_else(|refused| {
            Reply::Error(format!("{} script: {hash}, on @user_script:1.", refused.0))
        })
    }
}

impl Server {
    fn refusal_of_writes(&self) -> Option<&str> {
        match &self.refuses_writes {
            Some(refusal) => Some(refusal),
            None if self.replication.is_replica() => Some(READ_ONLY),
            None if self.replication.replicas() < self.config.least_replicas => Some(ALONE),
            None => None,
        }
    }
}

const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
const ALONE: &str = "NOREPLICAS Not enough good replicas to write.";

/// Parts what stands behind the script into keys and arguments.
fn keys_and_args<'a>(args: &'a [&'a [u8]]) -> Result<(Args<'a>, Args<'a>), Reply> {
    let count = integer(args[1]).map_err(Reply::from)?;
    let error = |text: &str| Err(Reply::Error(format!("ERR {text}")));
    match usize::try_from(count) {
        Ok(count) if count <= args.len() - 2 => {
            let (keys, args) = args[2..].split_at(count);
            Ok((Args(keys), Args(args)))
        }
        Ok(_) => error("Number of keys can't be greater than number of args"),
        Err(_) => error("Number of keys can't be negative"),
    }
}
