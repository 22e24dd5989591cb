//! The scripts for both kinds of locks.

use super::{Args, answered};
use crate::commands::{Answer, Redis, Refused};
use crate::reply::Reply;

/// The part that the scripts of renewals have in common: `loss` renews one, or says who has it.
pub(super) fn renew(
    redis: &mut Redis<'_>,
    keys: Args<'_>,
    args: Args<'_>,
    mut loss: impl FnMut(&mut Redis<'_>, &[u8], &[u8]) -> Answer<Option<Reply>>,
) -> Answer<Reply> {
    let number = args.request()?;
    let now = redis.time()?;
    if now > args.number(args.count() - 1)? {
        return answered(number, Reply::Array(vec![now.into(), 0.into()]));
    }
    let mut result = vec![Reply::Int(now), Reply::Int(1)];
    for (place, key) in (1..).zip(keys.0) {
        match loss(redis, key, args.text(2 * place - 1)) {
            Ok(None) => {
                redis.pexpire(key, args.text(2 * place))?;
            }
            Ok(Some(what)) => result.extend([Reply::Int(place as i64), what]),
            Err(refused) => return Ok(refused.into()),
        }
    }
    answered(number, Reply::Array(result))
}

/// Finds out which of the commands and channels that locks need this user may not use. Nothing is changed.
///
/// The rights to keys and channels are not simulated, so only commands are ever named.
pub fn rights(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let number = args.request()?;
    let key = keys.find(1).unwrap_or(args.text(4));
    let apart = [key, b"\n"].concat();
    let channel = [args.text(1), b"\n"].concat();
    let nothing = |_| ();
    let mut tried: Vec<(&str, Answer<()>)> =
        if [&b"permits"[..], b"permit_ids"].contains(&args.text(2)) {
            vec![
                ("time", redis.time().map(|_| ())),
                ("get", redis.get(key).map(|_| ())),
                ("pttl", redis.pttl(key).map(|_| ())),
                ("zscore", redis.zscore(key, b"").map(|_| ())),
                ("zrange", redis.zfirst(key).map(|_| ())),
                ("zrangebyscore", redis.zrangebyscore(key, 0, 0).map(|_| ())),
                ("set", redis.set_px(key, b"", b"x")),
                ("incrby", redis.may_write("incrby")),
                ("decrby", redis.may_write("decrby")),
                ("zadd", redis.may_write("zadd")),
                ("pexpire", redis.pexpire(key, b"x").map(nothing)),
                ("zrem", redis.zrem(&apart, &[Vec::new()]).map(|_| ())),
                ("del", redis.del(&apart).map(nothing)),
                ("publish", redis.publish(&channel, b"0").map(|_| ())),
            ]
        } else if args.text(2) == b"latch" {
            vec![
                ("time", redis.time().map(|_| ())),
                ("get", redis.get(key).map(|_| ())),
                ("set", redis.set_px(key, b"", b"x")),
                ("decrby", redis.may_write("decrby")),
                ("del", redis.del(&apart).map(nothing)),
                ("publish", redis.publish(&channel, b"0").map(|_| ())),
            ]
        } else if args.text(2) == b"token" {
            vec![
                ("time", redis.time().map(|_| ())),
                ("get", redis.get(key).map(|_| ())),
                ("pttl", redis.pttl(key).map(|_| ())),
                ("set", redis.set_px(key, b"", b"x")),
                ("pexpire", redis.pexpire(key, b"x").map(nothing)),
                ("del", redis.del(&apart).map(nothing)),
            ]
        } else {
            vec![
                ("time", redis.time().map(|_| ())),
                ("exists", redis.exists(key).map(nothing)),
                ("hexists", redis.hexists(key, b"").map(nothing)),
                ("hget", redis.hget(key, b"").map(|_| ())),
                ("hlen", redis.hlen(key).map(|_| ())),
                ("hkeys", redis.hkeys(key).map(|_| ())),
                ("pttl", redis.pttl(key).map(|_| ())),
                ("hdel", redis.hdel(&apart, b"").map(nothing)),
                // Of a field without a value nothing is written, whoever asks.
                ("hset", redis.may_write("hset")),
                ("pexpire", redis.pexpire(key, b"x").map(nothing)),
                ("publish", redis.publish(&channel, b"0").map(|_| ())),
            ]
        };
    if args.text(2) == b"read" || args.text(2) == b"write" {
        tried.push(("hgetall", redis.hgetall(key).map(|_| ())));
        tried.push(("hincrby", redis.may_write("hincrby")));
        tried.push(("set", redis.set_px(key, b"", b"x")));
        tried.push(("del", redis.del(&apart).map(nothing)));
    }
    if args.text(2) == b"permit_ids" {
        tried.push(("zcount", redis.zcount(key, 0, 0).map(|_| ())));
    }
    if args.text(2) == b"condition" {
        tried.push(("zscore", redis.zscore(key, b"").map(|_| ())));
        tried.push(("zrange", redis.zfirst(key).map(|_| ())));
        tried.push(("zrangebyscore", redis.zrangebyscore(key, 0, 0).map(|_| ())));
        tried.push(("zadd", redis.may_write("zadd")));
        tried.push(("zrem", redis.zrem(&apart, &[Vec::new()]).map(|_| ())));
    }
    if args.text(2) == b"fair" {
        tried.push(("lindex", redis.lindex(key, 0).map(|_| ())));
        tried.push(("llen", redis.llen(key).map(|_| ())));
        tried.push(("lrange", redis.lrange(key, 0, 0).map(|_| ())));
        tried.push(("lrem", redis.lrem(&apart, b"")));
        tried.push(("zscore", redis.zscore(key, b"").map(|_| ())));
        tried.push(("zcard", redis.zcard(key).map(|_| ())));
        tried.push(("zrange", redis.zmembers(key).map(|_| ())));
        tried.push(("zadd", redis.may_write("zadd")));
        tried.push(("zincrby", redis.may_write("zincrby")));
        tried.push(("zrem", redis.zrem(&apart, &[Vec::new()]).map(|_| ())));
        tried.push(("del", redis.del(&apart).map(nothing)));
        let takes = redis.lpop(&apart).map(|_| ());
        let may_take = takes.is_ok();
        tried.push(("lpop", takes));
        if may_take {
            // The item is gone at once.
            tried.push(("rpush", redis.may_write("rpush")));
            tried.push(("lpush", redis.may_write("lpush")));
        }
    }
    if args.text(2) == b"fenced" {
        tried.push(("get", redis.get(args.text(3)).map(|_| ())));
        tried.push(("set", redis.set_px(args.text(3), b"", b"x")));
    }
    let is_denied = |refused: &Refused| refused.0.contains("can't run this command");
    let refused = tried.into_iter().filter_map(|(command, answer)| {
        answer
            .is_err_and(|refused| is_denied(&refused))
            .then(|| Reply::text(command))
    });
    answered(number, Reply::Array(refused.collect()))
}
