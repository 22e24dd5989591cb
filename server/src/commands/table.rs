//! The table of commands: what they do, and their arguments and keys.

use super::options::Unit;
use super::{Answer, Execution, hashes, keys, lists, scan, sets, sorted, strings};
use crate::number::integer;
use crate::reply::Reply;

/// Whether a command writes, and whether writing needs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Write,
    Grow,
}

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
    /// The minimum number of arguments. `most` is the maximum number.
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
    ($($name:literal $does:ident $least:literal..=$most:tt $keys:ident $run:expr;)*) => {
        /// The data commands. Sorted by name, for binary search.
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
    "decr" Grow 1..=1 First |on, args| strings::add(on, args[0], -1);
    "decrby" Grow 2..=2 First strings::decrby;
    "del" Write 1..=ANY All keys::del;
    "echo" Read 1..=1 None keys::echo;
    "exists" Read 1..=ANY All keys::exists;
    "expire" Write 2..=3 First |on, args| keys::set_end(on, "expire", Unit(true, false), args);
    "expireat" Write 2..=3 First |on, args| keys::set_end(on, "expireat", Unit(true, true), args);
    "expiretime" Read 1..=1 First |on, args| keys::told_end(on, args, |end, _| (end + 500) / 1000);
    "flushall" Write 0..=1 None |on, _| keys::flush(on, true);
    "flushdb" Write 0..=1 None |on, _| keys::flush(on, false);
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
    "incr" Grow 1..=1 First |on, args| strings::add(on, args[0], 1);
    "incrby" Grow 2..=2 First |on, args| strings::add(on, args[0], integer(args[1])?);
    "incrbyfloat" Grow 2..=2 First strings::incrbyfloat;
    "info" Read 0..=ANY None keys::info;
    "keys" Read 1..=1 None scan::keys;
    "lindex" Read 2..=2 First lists::lindex;
    "llen" Read 1..=1 First lists::llen;
    "lpop" Write 1..=2 First |on, args| lists::pop(on, args, true);
    "lpush" Grow 2..=ANY First |on, args| lists::push(on, args, true, true);
    "lpushx" Grow 2..=ANY First |on, args| lists::push(on, args, true, false);
    "lrange" Read 3..=3 First lists::lrange;
    "lrem" Write 3..=3 First lists::lrem;
    "lset" Grow 3..=3 First lists::lset;
    "ltrim" Write 3..=3 First lists::ltrim;
    "mget" Read 1..=ANY All strings::mget;
    "mset" Grow 2..=ANY EverySecond strings::mset;
    "persist" Write 1..=1 First keys::persist;
    "pexpire" Write 2..=3 First |on, args| keys::set_end(on, "pexpire", Unit(false, false), args);
    "pexpireat" Write 2..=3 First |on, args| keys::set_end(on, "pexpireat", Unit(false, true), args);
    "pexpiretime" Read 1..=1 First |on, args| keys::told_end(on, args, |end, _| end);
    "ping" Read 0..=1 None keys::ping;
    "psetex" Grow 3..=3 First |on, args| strings::set_for(on, "psetex", false, args);
    "pttl" Read 1..=1 First |on, args| keys::told_end(on, args, |end, now| end - now);
    "publish" Read 2..=2 None |on, args| keys::tell(on, args, false);
    "pubsub" Read 1..=ANY None keys::pubsub;
    "rename" Write 2..=2 Two keys::rename;
    "rpop" Write 1..=2 First |on, args| lists::pop(on, args, false);
    "rpush" Grow 2..=ANY First |on, args| lists::push(on, args, false, true);
    "rpushx" Grow 2..=ANY First |on, args| lists::push(on, args, false, false);
    "sadd" Grow 2..=ANY First sets::sadd;
    "scan" Read 1..=ANY None scan::scan;
    "scard" Read 1..=1 First sets::scard;
    "sdiff" Read 1..=ANY All |on, args| sets::join(on, args, |one, other| &one - other);
    "set" Grow 2..=ANY First strings::set;
    "setex" Grow 3..=3 First |on, args| strings::set_for(on, "setex", true, args);
    "setnx" Grow 2..=2 First strings::setnx;
    "sinter" Read 1..=ANY All |on, args| sets::join(on, args, |one, other| &one & other);
    "sismember" Read 2..=2 First sets::sismember;
    "smembers" Read 1..=1 First sets::smembers;
    "smismember" Read 2..=ANY First sets::smismember;
    "spublish" Read 2..=2 None |on, args| keys::tell(on, args, true);
    "srem" Write 2..=ANY First sets::srem;
    "sscan" Read 2..=ANY First scan::sscan;
    "strlen" Read 1..=1 First strings::strlen;
    "sunion" Read 1..=ANY All |on, args| sets::join(on, args, |one, other| &one | other);
    "time" Read 0..=0 None keys::time;
    "touch" Read 1..=ANY All keys::exists;
    "ttl" Read 1..=1 First |on, args| keys::told_end(on, args, |end, now| (end - now + 500) / 1000);
    "type" Read 1..=1 First keys::kind;
    "unlink" Write 1..=ANY All keys::del;
    "zadd" Grow 3..=ANY First sorted::zadd;
    "zcard" Read 1..=1 First sorted::zcard;
    "zcount" Read 3..=3 First sorted::zcount;
    "zincrby" Grow 3..=3 First sorted::zincrby;
    "zmscore" Read 2..=ANY First sorted::zmscore;
    "zpopmax" Write 1..=2 First |on, args| sorted::pop(on, args, true);
    "zpopmin" Write 1..=2 First |on, args| sorted::pop(on, args, false);
    "zrange" Read 3..=ANY First |on, args| sorted::range(on, args, true, false, false);
    "zrangebyscore" Read 3..=ANY First |on, args| sorted::range(on, args, false, true, false);
    "zrank" Read 2..=2 First |on, args| sorted::rank(on, args, false);
    "zrem" Write 2..=ANY First sorted::zrem;
    "zremrangebyrank" Write 3..=3 First sorted::zremrangebyrank;
    "zremrangebyscore" Write 3..=3 First sorted::zremrangebyscore;
    "zrevrange" Read 3..=ANY First |on, args| sorted::range(on, args, false, false, true);
    "zrevrangebyscore" Read 3..=ANY First |on, args| sorted::range(on, args, false, true, true);
    "zrevrank" Read 2..=2 First |on, args| sorted::rank(on, args, true);
    "zscan" Read 2..=ANY First scan::zscan;
    "zscore" Read 2..=2 First sorted::zscore;
}

/// Commands for connections and the server, each with its minimum number of arguments. Scripts may not call them.
#[rustfmt::skip]
pub(crate) const OF_CONNECTIONS: &[(usize, &str)] = &[
    (1, "acl"), (1, "auth"), (1, "client"), (1, "cluster"), (1, "command"), (2, "config"), (2, "eval"),
    (2, "eval_ro"), (2, "evalsha"), (2, "evalsha_ro"), (0, "hello"), (0, "quit"), (0, "readonly"),
    (0, "readwrite"), (0, "reset"), (0, "role"), (1, "script"), (1, "select"), (1, "ssubscribe"),
    (1, "subscribe"), (0, "sunsubscribe"), (0, "unsubscribe"), (2, "wait"),
];

pub(crate) fn command(name: &[u8]) -> Option<&'static Command> {
    let lower = |it: &u8| it.to_ascii_lowercase();
    let found = COMMANDS.binary_search_by(|it| it.name.bytes().cmp(name.iter().map(lower)));
    COMMANDS.get(found.ok()?)
}

pub(super) fn is_of_connections(name: &[u8]) -> bool {
    let mut names = OF_CONNECTIONS.iter();
    names.any(|(_, it)| name.eq_ignore_ascii_case(it.as_bytes()))
        || name.eq_ignore_ascii_case(b"asking")
}

/// Returns whether scripts may call the command.
pub fn is_data_command(name: &[u8]) -> bool {
    command(name).is_some()
}

/// Returns the arguments of a data command that are keys. They determine the slot of the command.
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
