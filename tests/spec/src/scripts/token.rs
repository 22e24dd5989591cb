//! The scripts of the token lock: a string that is the token of its holder.

use super::reentrant::is_the_one;
use super::{ANOTHER_TYPE, Args, answered, begin, many, small};
use crate::commands::{Answer, Redis};
use crate::reply::{Reply, array};

/// So much of a token is told to others; nothing if nobody has it.
pub(super) fn told(holder: &Option<Vec<u8>>) -> &[u8] {
    begin(holder.as_deref().unwrap_or_default(), 64)
}

/// Takes a token lock.
pub fn acquire(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, token) = (args.request()?, keys.text(1), args.text(1));
    let (lease, expiry) = (args.text(2), args.number(5)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if !is_the_one(redis, args)? {
        return answered(number, array![6, now]);
    }
    match redis.get(key)? {
        holder if holder.as_deref().is_some_and(|holder| holder != token) => {
            answered(number, array![0, now, redis.pttl(key)?, told(&holder)])
        }
        _ => {
            redis.set_px(key, token, lease)?;
            small(number, expiry - now)
        }
    }
}

/// Gives a token lock back.
pub fn release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, token) = (args.request()?, keys.text(1), args.text(1));
    match redis.get(key) {
        Err(refused) if refused.is_wrong_type() => answered(number, array![0, ANOTHER_TYPE]),
        holder => match holder? {
            Some(holder) if holder == token => {
                redis.del(key)?;
                small(number, 0)
            }
            holder => answered(number, array![0, told(&holder)]),
        },
    }
}

/// Makes the hold of one token that of another one of the same process.
pub fn transfer(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, from, to) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (lease, expiry) = (args.text(3), args.number(5)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    match redis.get(key) {
        Err(refused) if refused.is_wrong_type() => {
            return answered(number, array![2, now, ANOTHER_TYPE]);
        }
        holder => match holder? {
            Some(holder) if holder == from => redis.set_px(key, to, lease)?,
            // A copy of this request has done it.
            Some(holder) if holder == to => {}
            holder => return answered(number, array![2, now, told(&holder)]),
        },
    }
    answered(number, array![1, now, -1])
}

/// Frees what a request without an answer may have left.
pub fn withdraw(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, token) = (args.request()?, keys.text(1), args.text(1));
    let now = redis.time()?;
    if redis.get(key)?.as_deref() == Some(token) {
        redis.del(key)?;
    }
    answered(number, now)
}

/// Frees a token lock whoever holds it.
pub fn force_release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, expiry) = (args.request()?, keys.text(1), args.number(2)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if redis.get(key)?.is_none() {
        return answered(number, array![0, now]);
    }
    redis.del(key)?;
    answered(number, array![1, now])
}

/// Tells who holds a token lock.
pub fn inspect(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, token) = (args.request()?, keys.text(1), args.text(1));
    let holder = redis.get(key)?;
    let count = if holder.as_deref() == Some(token) {
        "1"
    } else {
        ""
    };
    answered(
        number,
        array![i64::from(holder.is_some()), count, redis.pttl(key)?],
    )
}

/// Renews many token locks at once.
pub fn renew(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    many::renew(redis, keys, args, |redis, key, token| {
        Ok(match redis.get(key) {
            Ok(Some(holder)) if holder == token => None,
            Ok(None) => Some(Reply::Int(0)),
            Ok(holder) => Some(Reply::text(told(&holder))),
            Err(refused) if refused.is_wrong_type() => Some(Reply::text(ANOTHER_TYPE)),
            Err(refused) => return Err(refused),
        })
    })
}
