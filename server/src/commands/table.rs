//! Which commands there are, what they need, and where their keys stand.

use super::{Answer, Execution, hashes, keys, lists, scan, sets, sorted, strings};
use crate::reply::Reply;

/// Whether a command writes, and needs memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Write,
    Grow,
}

/// The arguments of a command that are keys.
#[derive(Clone, Copy, Debug)]
enum Keys {
    None,
    First,
    Two,
    All,
    EverySecond,
}

pub(super) type Run = fn(&mut Execution<'_>, &[&[u8]]) -> Answer<Reply>;

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) does: Does,
    /// How many arguments it has, at least and at most.
    least: usize,
    most: usize,
    keys: Keys,
    pub(super) run: Run,
}

impl Command {
    pub(crate) fn takes(&self, args: usize) -> bool {
        (self.least..=self.most).contains(&args)
    }

    pub(crate) fn keys<'w>(&self, args: &[&'w [u8]]) -> Vec<&'w [u8]> {
        let keys = args.iter().copied();
        match self.keys {
            Keys::None => Vec::new(),
            Keys::First => keys.take(1).collect(),
            Keys::Two => keys.take(2).collect(),
            Keys::All => keys.collect(),
            Keys::EverySecond => keys.step_by(2).collect(),
        }
    }
}

const ANY: usize = usize::MAX;

macro_rules! commands {
    ($($name:literal $does:ident $least:literal..=$most:tt $keys:ident $run:path;)*) => {
        /// All commands that work on keys, in the order of their names.
        static COMMANDS: &[Command] = &[$(Command {
            name: $name,
            does: Does::$does,
            least: $least,
            most: $most,
            keys: Keys::$keys,
            run: $run,
        }),*];
    };
}

commands! {
    "append" Grow 2..=2 First strings::append;
    "dbsize" Read 0..=0 None keys::dbsize;
    "decr" Grow 1..=1 First strings::decr;
    "decrby" Grow 2..=2 First strings::decrby;
    "del" Write 1..=ANY All keys::del;
    "echo" Read 1..=1 None keys::echo;
    "exists" Read 1..=ANY All keys::exists;
    "expire" Write 2..=3 First keys::expire;
    "expireat" Write 2..=3 First keys::expireat;
    "expiretime" Read 1..=1 First keys::expiretime;
    "flushall" Write 0..=1 None keys::flushall;
    "flushdb" Write 0..=1 None keys::flushdb;
    "get" Read 1..=1 First strings::get;
    "getdel" Write 1..=1 First strings::getdel;
    "getex" Write 1..=3 First strings::getex;
    "getrange" Read 3..=3 First strings::getrange;
    "getset" Grow 2..=2 First strings::getset;
    "hdel" Write 2..=ANY First hashes::hdel;
    "hexists" Read 2..=2 First hashes::hexists;
    "hget" Read 2..=2 First hashes::hget;
    "hgetall" Read 1..=1 First hashes::hgetall;
    "hincrby" Grow 3..=3 First hashes::hincrby;
    "hincrbyfloat" Grow 3..=3 First hashes::hincrbyfloat;
    "hkeys" Read 1..=1 First hashes::hkeys;
    "hlen" Read 1..=1 First hashes::hlen;
    "hmget" Read 2..=ANY First hashes::hmget;
    "hmset" Grow 3..=ANY First hashes::hmset;
    "hscan" Read 2..=ANY First scan::hscan;
    "hset" Grow 3..=ANY First hashes::hset;
    "hsetnx" Grow 3..=3 First hashes::hsetnx;
    "hstrlen" Read 2..=2 First hashes::hstrlen;
    "hvals" Read 1..=1 First hashes::hvals;
    "incr" Grow 1..=1 First strings::incr;
    "incrby" Grow 2..=2 First strings::incrby;
    "incrbyfloat" Grow 2..=2 First strings::incrbyfloat;
    "info" Read 0..=ANY None keys::info;
    "keys" Read 1..=1 None scan::keys;
    "lindex" Read 2..=2 First lists::lindex;
    "linsert" Grow 4..=4 First lists::linsert;
    "llen" Read 1..=1 First lists::llen;
    "lmove" Grow 4..=4 Two lists::lmove;
    "lpop" Write 1..=2 First lists::lpop;
    "lpush" Grow 2..=ANY First lists::lpush;
    "lpushx" Grow 2..=ANY First lists::lpushx;
    "lrange" Read 3..=3 First lists::lrange;
    "lrem" Write 3..=3 First lists::lrem;
    "lset" Grow 3..=3 First lists::lset;
    "ltrim" Write 3..=3 First lists::ltrim;
    "mget" Read 1..=ANY All strings::mget;
    "mset" Grow 2..=ANY EverySecond strings::mset;
    "msetnx" Grow 2..=ANY EverySecond strings::msetnx;
    "persist" Write 1..=1 First keys::persist;
    "pexpire" Write 2..=3 First keys::pexpire;
    "pexpireat" Write 2..=3 First keys::pexpireat;
    "pexpiretime" Read 1..=1 First keys::pexpiretime;
    "ping" Read 0..=1 None keys::ping;
    "psetex" Grow 3..=3 First strings::psetex;
    "pttl" Read 1..=1 First keys::pttl;
    "publish" Read 2..=2 None keys::publish;
    "pubsub" Read 1..=ANY None keys::pubsub;
    "rename" Write 2..=2 Two keys::rename;
    "rpop" Write 1..=2 First lists::rpop;
    "rpoplpush" Grow 2..=2 Two lists::rpoplpush;
    "rpush" Grow 2..=ANY First lists::rpush;
    "rpushx" Grow 2..=ANY First lists::rpushx;
    "sadd" Grow 2..=ANY First sets::sadd;
    "scan" Read 1..=ANY None scan::scan;
    "scard" Read 1..=1 First sets::scard;
    "sdiff" Read 1..=ANY All sets::sdiff;
    "set" Grow 2..=ANY First strings::set;
    "setex" Grow 3..=3 First strings::setex;
    "setnx" Grow 2..=2 First strings::setnx;
    "setrange" Grow 3..=3 First strings::setrange;
    "sinter" Read 1..=ANY All sets::sinter;
    "sismember" Read 2..=2 First sets::sismember;
    "smembers" Read 1..=1 First sets::smembers;
    "smismember" Read 2..=ANY First sets::smismember;
    "smove" Write 3..=3 Two sets::smove;
    "spublish" Read 2..=2 None keys::spublish;
    "srem" Write 2..=ANY First sets::srem;
    "sscan" Read 2..=ANY First scan::sscan;
    "strlen" Read 1..=1 First strings::strlen;
    "sunion" Read 1..=ANY All sets::sunion;
    "time" Read 0..=0 None keys::time;
    "touch" Read 1..=ANY All keys::exists;
    "ttl" Read 1..=1 First keys::ttl;
    "type" Read 1..=1 First keys::kind;
    "unlink" Write 1..=ANY All keys::del;
    "zadd" Grow 3..=ANY First sorted::zadd;
    "zcard" Read 1..=1 First sorted::zcard;
    "zcount" Read 3..=3 First sorted::zcount;
    "zincrby" Grow 3..=3 First sorted::zincrby;
    "zmscore" Read 2..=ANY First sorted::zmscore;
    "zpopmax" Write 1..=2 First sorted::zpopmax;
    "zpopmin" Write 1..=2 First sorted::zpopmin;
    "zrange" Read 3..=ANY First sorted::zrange;
    "zrangebyscore" Read 3..=ANY First sorted::zrangebyscore;
    "zrank" Read 2..=2 First sorted::zrank;
    "zrem" Write 2..=ANY First sorted::zrem;
    "zremrangebyrank" Write 3..=3 First sorted::zremrangebyrank;
    "zremrangebyscore" Write 3..=3 First sorted::zremrangebyscore;
    "zrevrange" Read 3..=ANY First sorted::zrevrange;
    "zrevrangebyscore" Read 3..=ANY First sorted::zrevrangebyscore;
    "zrevrank" Read 2..=2 First sorted::zrevrank;
    "zscan" Read 2..=ANY First scan::zscan;
    "zscore" Read 2..=2 First sorted::zscore;
}

/// The commands that a script may not call.
const OF_CONNECTIONS: [&str; 23] = [
    "acl",
    "asking",
    "auth",
    "client",
    "cluster",
    "command",
    "config",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "hello",
    "quit",
    "readonly",
    "readwrite",
    "role",
    "script",
    "select",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "wait",
];

/// Finds a command by its name, in whatever case.
pub(crate) fn command(name: &[u8]) -> Option<&'static Command> {
    let lower = |it: &u8| it.to_ascii_lowercase();
    let found = COMMANDS.binary_search_by(|it| it.name.bytes().cmp(name.iter().map(lower)));
    COMMANDS.get(found.ok()?)
}

pub(super) fn is_of_connections(name: &[u8]) -> bool {
    let mut names = OF_CONNECTIONS.iter();
    names.any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
}

/// Returns whether a command of this name works on keys, channels or the clock, so that scripts may call it.
pub fn is_data_command(name: &[u8]) -> bool {
    command(name).is_some()
}

/// Returns the keys in the words of a command, as a cluster looks for them.
pub fn keys_of<'w>(words: &[&'w [u8]]) -> Vec<&'w [u8]> {
    let Some((name, args)) = words.split_first() else {
        return Vec::new();
    };
    command(name).map_or_else(Vec::new, |command| command.keys(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_the_order_of_their_names() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        assert_eq!(command(b"PeXpIrE").map(|it| it.name), Some("pexpire"));
        assert!(command(b"nothing").is_none());
    }
}
