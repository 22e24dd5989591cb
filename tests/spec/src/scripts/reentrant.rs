//! The scripts of the reentrant lock: a hash of one visitor and its hold count.

use super::holder::{Holder, holder_of, may_be_freed};
use super::{ANOTHER_TYPE, Args, answered, begin, many, small};
use crate::commands::{Answer, Redis};
use crate::reply::{Reply, array};

/// Takes a lock, or enters it once more.
pub fn acquire(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, lease) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (known, wanted, expiry) = (args.text(3), args.text(4), args.number(5)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if !is_the_one(redis, args)? {
        return answered(number, array![6, now]);
    }
    if known == b"0" && !redis.exists(key)? {
        return match begin_hold(redis, key, visitor, wanted, lease)? {
            Ok(()) => small(number, expiry - now),
            Err(refused) => Ok(refused),
        };
    }
    if known == b"0" {
        return refuse(redis, key, number, now);
    }
    if let Err(answer) = counts(redis, key, visitor, [known, wanted], number, now)? {
        return Ok(answer);
    }
    redis.pexpire(key, lease)?;
    redis.hset(key, visitor, wanted)?;
    small(number, expiry - now)
}

/// Begins a hold, which is undone if it cannot have an end; the answer in that case.
pub(super) fn begin_hold(
    redis: &mut Redis<'_>,
    key: &[u8],
    visitor: &[u8],
    wanted: &[u8],
    lease: &[u8],
) -> Answer<Result<(), Reply>> {
    redis.hset(key, visitor, wanted)?;
    match redis.pexpire(key, lease) {
        Ok(true) => Ok(Ok(())),
        refused => {
            if !redis.hdel(key, visitor).unwrap_or_default() {
                let _ = redis.del(key);
            }
            Ok(Err(refused.map_or_else(Reply::from, |_| Reply::Int(0))))
        }
    }
}

/// Says who has the lock.
pub(super) fn refuse(redis: &Redis<'_>, key: &[u8], number: i64, now: i64) -> Answer<Reply> {
    match holder_of(redis, key)? {
        Holder::NoLock => returned(Holder::no_lock()),
        holder => answered(number, array![0, now, redis.pttl(key)?, holder.told()]),
    }
}

/// Gives one level of a hold back; the hold goes on.
pub fn release_level(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, lease) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (known, wanted, expiry) = (args.text(3), args.text(4), args.number(5)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if let Err(answer) = counts(redis, key, visitor, [known, wanted], number, now)? {
        return Ok(answer);
    }
    redis.pexpire(key, lease)?;
    match redis.hset(key, visitor, wanted) {
        // The level is given back all the same: the last release frees any count.
        Err(refused) if !refused.0.contains("OOM") => returned(refused),
        _ => small(number, expiry - now),
    }
}

/// Gives a whole hold back and wakes those who wait.
pub fn release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, channel) =
        (args.request()?, keys.text(1), args.text(1), args.text(2));
    match redis.hdel(key, visitor) {
        Ok(true) if channel.is_empty() || redis.exists(key) == Ok(true) => small(number, 0),
        Ok(true) => match redis.publish(channel, b"0") {
            Ok(heard) => small(number, heard),
            Err(refused) => answered(number, array![1, refused.0.as_str()]),
        },
        Ok(false) => answered(number, array![0, holder_of(redis, key)?.told()]),
        Err(refused) if refused.is_wrong_type() => answered(number, array![0, ANOTHER_TYPE]),
        Err(refused) => returned(refused),
    }
}

/// Makes the hold of one visitor that of another one of the same process.
pub fn transfer(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, from, to) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (lease, channel, expiry) = (args.text(3), args.text(4), args.number(5)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    let has = match has_either(redis, key, [from, to], number, now)? {
        Ok(has) => has,
        Err(answer) => return Ok(answer),
    };
    if let Err(refused) = pass_on(redis, key, [from, to], lease, has)? {
        return Ok(refused);
    }
    answered(number, array![1, now, redis.numsub(channel).unwrap_or(-1)])
}

/// Whether the first visitor has the lock, or the second one, as a copy of the request may have made it; the answer if
/// neither has.
pub(super) fn has_either(
    redis: &Redis<'_>,
    key: &[u8],
    [from, to]: [&[u8]; 2],
    number: i64,
    now: i64,
) -> Answer<Result<bool, Reply>> {
    let answer = match redis.hexists(key, from) {
        Ok(true) => return Ok(Ok(true)),
        Ok(false) if redis.hexists(key, to)? => return Ok(Ok(false)),
        Ok(false) => array![2, now, holder_of(redis, key)?.told()],
        Err(refused) if refused.is_wrong_type() => array![2, now, ANOTHER_TYPE],
        Err(refused) => return Ok(Err(refused.into())),
    };
    Ok(Err(array![number, answer]))
}

/// Makes the hold of the first visitor that of the second one, if the first one has it; the answer if that is refused.
pub(super) fn pass_on(
    redis: &mut Redis<'_>,
    key: &[u8],
    [from, to]: [&[u8]; 2],
    lease: &[u8],
    has: bool,
) -> Answer<Result<(), Reply>> {
    if !has {
        return Ok(Ok(()));
    }
    if let Err(refused) = redis.hset(key, to, b"1") {
        return Ok(Err(refused.into()));
    }
    if let Err(refused) = redis.pexpire(key, lease) {
        let _ = redis.hdel(key, to);
        return Ok(Err(refused.into()));
    }
    redis.hdel(key, from)?;
    Ok(Ok(()))
}

/// Frees what a request without an answer may have left.
pub fn withdraw(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, channel) =
        (args.request()?, keys.text(1), args.text(1), args.text(2));
    let now = redis.time()?;
    if redis.hdel(key, visitor)? && redis.exists(key) != Ok(true) {
        let _ = redis.publish(channel, b"0");
    }
    answered(number, now)
}

/// Frees a lock whoever holds it.
pub fn force_release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, channel, expiry) =
        (args.request()?, keys.text(1), args.text(1), args.number(2)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    match holder_of(redis, key)? {
        Holder::Nobody => answered(number, array![0, now]),
        Holder::Visitor(field) if may_be_freed(&field) => {
            redis.hdel(key, &field)?;
            let _ = redis.publish(channel, b"0");
            answered(number, array![1, now])
        }
        Holder::Visitor(_) | Holder::NoLock => returned(Holder::no_lock()),
    }
}

/// Tells who holds a lock.
pub fn inspect(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor) = (args.request()?, keys.text(1), args.text(1));
    let (exists, count) = (redis.exists(key)?, redis.hget(key, visitor)?);
    if exists && count.is_none() && matches!(holder_of(redis, key)?, Holder::NoLock) {
        return returned(Holder::no_lock());
    }
    let count = count.unwrap_or_default();
    answered(
        number,
        array![i64::from(exists), begin(&count, 32), redis.pttl(key)?],
    )
}

/// Whether the server is the one that may vote, if that is asked.
pub(super) fn is_the_one(redis: &Redis<'_>, args: Args<'_>) -> Answer<bool> {
    if args.count() < 7 {
        return Ok(true);
    }
    let told = redis.replication()?;
    let history = format!("master_replid:{}", String::from_utf8_lossy(args.text(6)));
    Ok(told.contains("role:master") && told.contains(&history))
}

/// Looks whether the visitor has one of these counts; the answer if it has none of them.
pub(super) fn counts(
    redis: &Redis<'_>,
    key: &[u8],
    visitor: &[u8],
    counts: [&[u8]; 2],
    number: i64,
    now: i64,
) -> Answer<Result<(), Reply>> {
    let answer = match redis.hget(key, visitor) {
        Ok(Some(count)) if counts.contains(&&*count) => return Ok(Ok(())),
        Ok(Some(count)) => array![4, now, begin(&count, 32)],
        Ok(None) => array![2, now, holder_of(redis, key)?.told()],
        Err(refused) if refused.is_wrong_type() => array![2, now, ANOTHER_TYPE],
        Err(refused) => return Ok(Err(refused.into())),
    };
    Ok(Err(array![number, answer]))
}

/// A refusal that the script returns: nothing in it says that a script was run.
pub(super) fn returned(refused: crate::commands::Refused) -> Answer<Reply> {
    Ok(refused.into())
}

/// Renews many holds at once.
pub fn renew(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    many::renew(redis, keys, args, |redis, key, visitor| {
        Ok(match redis.hexists(key, visitor) {
            Ok(true) => None,
            Ok(false) => Some(match holder_of(redis, key)? {
                Holder::Nobody => Reply::Int(0),
                holder => holder.told(),
            }),
            Err(refused) if refused.is_wrong_type() => Some(Reply::text(ANOTHER_TYPE)),
            Err(refused) => return Err(refused),
        })
    })
}
