//! The scripts of the semaphore: the number of free permits, and the owners of those that were taken.

use super::latch::number_at;
use super::reentrant::returned;
use super::{ANOTHER_TYPE, Args, answered, small};
use crate::commands::{Answer, Redis, Refused};
use crate::reply::{Reply, array};

/// The largest number of permits.
const MOST: i64 = i32::MAX as i64;

/// So many owners whose leases are over are looked at in one go.
const AT_ONCE: usize = 5000;

/// The permits that stand before the star of a visitor.
fn permits_of(visitor: &[u8]) -> i64 {
    let digits = visitor.split(|sign| *sign == b'*').next();
    let digits = digits.map(String::from_utf8_lossy).unwrap_or_default();
    digits.parse().unwrap_or_default()
}

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The end, in ms, of notes whose semaphore has none any more.
const FAR: i64 = 10_000_000_000_000;

/// Has the notes of the permits that are taken end with the semaphore, or a few ms before it.
pub(super) fn keep_taken(redis: &mut Redis<'_>, taken: &[u8], life: Answer<i64>) {
    let (Ok(left), Ok(life)) = (redis.pttl(taken), life) else {
        return;
    };
    let life = life.min(FAR);
    let ends = match life {
        _ if left == -2 => None,
        -1 => (left >= 0).then_some(FAR),
        0.. => (!(life - 5..=life).contains(&left) || left == -1).then_some((life - 1).max(0)),
        _ => None,
    };
    if let Some(ends) = ends
        && redis.zscore(taken, b"").is_ok()
    {
        let _ = redis.pexpire(taken, &text(ends));
    }
}

/// Takes the notes away of a semaphore that is gone, or is to go; what else may be there is an error.
pub(super) fn forget_taken(redis: &mut Redis<'_>, taken: &[u8]) -> Answer<()> {
    redis.zscore(taken, b"")?;
    redis.del(taken).map(|_| ())
}

/// Nothing that ends so soon, in ms, is valid for a moment.
pub(super) const TOO_SHORT: std::ops::RangeInclusive<i64> = 0..=2;

/// Takes permits, and gives back those whose owners' leases are over.
pub fn acquire(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, owners) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, lease, channel) = (args.text(1), args.number(2)?, args.text(3));
    let expiry = args.number(4)?;
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    let mut free = match number_at(redis, key) {
        Err(refused) if refused.0.contains("this string") => return returned(refused),
        Ok(None) => {
            return match forget_taken(redis, owners) {
                Ok(()) => answered(number, array![0, now, 1000, ""]),
                Err(refused) => returned(refused),
            };
        }
        free => free?.unwrap_or_default(),
    };
    let (ends, life) = (now + lease, redis.pttl(key)?);
    let granted = || match (0..lease).contains(&life) {
        true => answered(number, array![5, now, life]),
        false => small(number, expiry - now),
    };
    if let Some(has) = redis.zscore(owners, visitor)? {
        if has < ends {
            redis.zadd(owners, ends, visitor)?;
        }
        return granted();
    }
    if TOO_SHORT.contains(&life) {
        keep_taken(redis, owners, Ok(life));
        return answered(number, array![0, now, 1000, ""]);
    }
    let (mut next, mut back) = (redis.zfirst(owners)?, 0);
    if next.is_some_and(|end| end <= now) {
        let over = redis.zrangebyscore(owners, now, AT_ONCE)?;
        back = over.iter().map(|owner| permits_of(owner)).sum();
        free = redis.incrby(key, &text(back))?;
        if let Err(refused) = redis.zrem(owners, &over) {
            redis.incrby(key, &text(-back))?;
            return returned(refused);
        }
        next = redis.zfirst(owners)?;
    }
    let wanted = permits_of(visitor);
    let is_granted = free >= wanted;
    if is_granted {
        free = redis.decrby(key, &text(wanted))?;
        if let Err(refused) = redis.zadd(owners, ends, visitor) {
            redis.decrby(key, &text(-wanted))?;
            return returned(refused);
        }
    }
    keep_taken(redis, owners, Ok(life));
    if back > 0 {
        let _ = redis.publish(channel, &text(free));
    }
    if is_granted {
        return granted();
    }
    let ttl = next.map_or(1000, |end| (end - now).clamp(0, 1000));
    answered(number, array![0, now, ttl, ""])
}

/// Gives permits back, and wakes those who wait.
pub fn release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, owners) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, channel) = (args.text(1), args.text(2));
    let gone = |refused: Refused| match refused.is_wrong_type() {
        true => answered(number, array![0, ANOTHER_TYPE]),
        false => returned(refused),
    };
    match redis.zscore(owners, visitor) {
        Ok(Some(_)) => {}
        Ok(None) => return answered(number, array![0, ""]),
        Err(refused) => return gone(refused),
    }
    match number_at(redis, key) {
        Ok(Some(_)) => {}
        Ok(None) => {
            let _ = redis.zrem(owners, &[visitor.to_vec()]);
            return answered(number, array![0, ""]);
        }
        Err(refused) => return gone(refused),
    }
    if let Err(refused) = redis.zrem(owners, &[Vec::new()]) {
        return returned(refused);
    }
    let free = match redis.incrby(key, &text(permits_of(visitor))) {
        Ok(free) => free,
        Err(refused) => return returned(refused),
    };
    redis.zrem(owners, &[visitor.to_vec()])?;
    match redis.publish(channel, &text(free)) {
        Ok(heard) => small(number, heard),
        Err(refused) => answered(number, array![1, refused.0.as_str()]),
    }
}

/// Gives back what a request without an answer may have taken.
pub fn withdraw(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, owners) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, channel) = (args.text(1), args.text(2));
    let now = redis.time()?;
    if redis.zscore(owners, visitor)?.is_none() {
        return answered(number, now);
    }
    redis.zrem(owners, &[Vec::new()])?;
    let free = match number_at(redis, key) {
        Err(refused) if !refused.is_wrong_type() => return returned(refused),
        found => found.ok().flatten(),
    };
    if free.is_some() {
        let free = redis.incrby(key, &text(permits_of(visitor)))?;
        let _ = redis.publish(channel, &text(free));
    }
    redis.zrem(owners, &[visitor.to_vec()])?;
    answered(number, now)
}

/// Renews the leases of many owners of permits at once.
pub fn renew(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let number = args.request()?;
    let now = redis.time()?;
    if now > args.number(args.count() - 1)? {
        return answered(number, array![now, 0]);
    }
    let mut result = vec![Reply::Int(now), Reply::Int(1)];
    for (place, pair) in (1..).zip(keys.0.chunks(2)) {
        let (Some(key), Some(owners)) = (pair.first(), pair.get(1)) else {
            break;
        };
        let (visitor, lease) = (args.text(2 * place - 1), args.number(2 * place)?);
        let found = match (redis.zscore(owners, visitor), number_at(redis, key)) {
            (Err(refused), _) | (_, Err(refused)) => Err(refused),
            (Ok(has), Ok(free)) => Ok(has.and(free)),
        };
        let what = match found {
            Ok(Some(_)) => {
                let life = redis.pttl(key)?;
                let _ = redis.zrem(owners, &[Vec::new()]);
                redis.zadd(owners, now + lease, visitor)?;
                keep_taken(redis, owners, Ok(life));
                let ends = (0..lease).contains(&life);
                ends.then(|| Reply::Int(life.max(1)))
            }
            Ok(None) => Some(Reply::Int(0)),
            Err(refused) if refused.is_wrong_type() => Some(Reply::text(ANOTHER_TYPE)),
            Err(refused) => return returned(refused),
        };
        if let Some(what) = what {
            result.extend([Reply::Int(place as i64), what]);
        }
    }
    answered(number, Reply::Array(result))
}

/// Sets a semaphore, adds permits, takes those that are free, tells them, or takes it away; or forgets who owns some.
pub fn count(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, once) = (args.request()?, keys.text(1), keys.text(2));
    let owners = keys.text(keys.count());
    let (op, amount, channel) = (args.text(1), args.text(2), args.text(3));
    let (remembered, life, visitor) = (args.text(4), args.text(5), args.text(6));
    let now = redis.time()?;
    if now > args.number(7)? {
        return answered(number, array![3, now]);
    }
    let found = match number_at(redis, key) {
        Err(refused) if refused.0.contains("this string") => return returned(refused),
        found => found?,
    };
    let free = found.unwrap_or_default();
    let over = match found.is_some() && (op == b"get" || op == b"drain") {
        true => {
            redis.zrangebyscore(owners, now, if op == b"get" { usize::MAX } else { AT_ONCE })?
        }
        false => Vec::new(),
    };
    let back: i64 = over.iter().map(|owner| permits_of(owner)).sum();
    if op == b"get" {
        let life = redis.pttl(key);
        keep_taken(redis, owners, life);
        return answered(number, array![1, now, free + back]);
    }
    if let Some(before) = redis.get(once)? {
        if before == b"range" {
            return answered(number, array![4, now]);
        }
        let before: i64 = String::from_utf8_lossy(&before).parse().unwrap_or_default();
        return answered(number, array![1, now, before]);
    }
    let exists = i64::from(found.is_some());
    // `None` where there would be too many.
    let (answer, changes) = match op {
        b"forget" => {
            let has = found.is_some() && redis.zscore(owners, visitor)?.is_some();
            (Some(i64::from(has)), has)
        }
        b"set" => (Some(1 - exists), found.is_none()),
        b"drain" => (Some(free + back), found.is_some()),
        b"add" | b"add_if_there" if op == b"add" || found.is_some() => {
            let by = args.number(2)?;
            let sum = free + by;
            match sum > MOST && by > 0 || sum < -MOST {
                true => (None, false),
                false => (Some(if op == b"add" { sum } else { 1 }), true),
            }
        }
        _ => (Some(exists), found.is_some()),
    };
    let told = answer.map_or(b"range".to_vec(), text);
    redis.set_px(once, &told, remembered)?;
    let reply = answer.map_or(array![4, now], |answer| array![1, now, answer]);
    if !changes {
        return answered(number, reply);
    }
    let cleared = match found {
        None => forget_taken(redis, owners),
        Some(_) => Ok(()),
    };
    let done: Answer<Option<Vec<u8>>> = match op {
        _ if cleared.is_err() => cleared.map(|()| None),
        b"set" if life == b"0" => redis.set(key, amount).map(|()| Some(amount.to_vec())),
        b"set" => {
            let set = redis.set_px(key, amount, life);
            set.map(|()| Some(amount.to_vec()))
        }
        b"delete" => {
            let forgotten = forget_taken(redis, owners);
            forgotten.and_then(|()| redis.del(key)).map(|_| None)
        }
        b"forget" => redis.zrem(owners, &[visitor.to_vec()]).map(|_| None),
        b"drain" if over.is_empty() => redis.decrby(key, &text(free)).map(|_| None),
        b"drain" => match redis.zrem(owners, &[Vec::new()]) {
            Ok(_) => {
                let drained = redis.decrby(key, &text(free)).map(|_| None);
                if drained.is_ok() {
                    redis.zrem(owners, &over)?;
                }
                drained
            }
            Err(refused) => Err(refused),
        },
        _ => redis.incrby(key, amount).map(|free| Some(text(free))),
    };
    let message = match done {
        Ok(message) => message,
        Err(refused) => {
            let _ = redis.del(once);
            return returned(refused);
        }
    };
    let life = redis.pttl(key);
    keep_taken(redis, owners, life);
    if let Some(message) = message {
        let _ = redis.publish(channel, &message);
    }
    answered(number, reply)
}
