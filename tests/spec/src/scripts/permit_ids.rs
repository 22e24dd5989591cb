//! The scripts of the semaphore whose permits have ids: the number of free permits, and the ids of the others.

use super::latch::number_at;
use super::permits::{TOO_SHORT, forget_taken, keep_taken};
use super::reentrant::returned;
use super::{ANOTHER_TYPE, Args, answered, small};
use crate::commands::{Answer, Redis, Refused};
use crate::reply::{Reply, array};

/// The largest number of permits.
const MOST: i64 = i32::MAX as i64;

/// So many permits that have ended are looked at in one go.
const AT_ONCE: usize = 5000;

/// The end of a permit that has none.
const NEVER: i64 = 922_337_203_685_477;

/// The ids, 32 hexadecimal digits each, as the bytes that they are.
fn ids_of(hex: &[u8]) -> Vec<Vec<u8>> {
    hex.as_chunks::<32>()
        .0
        .iter()
        .map(|id| bytes_of(id))
        .collect()
}

fn bytes_of(hex: &[u8]) -> Vec<u8> {
    let digit = |sign: u8| u8::try_from(char::from(sign).to_digit(16).unwrap_or_default());
    let pairs = hex.as_chunks::<2>().0.iter();
    let bytes = pairs
        .map(|[high, low]| digit(*high).unwrap_or_default() << 4 | digit(*low).unwrap_or_default());
    bytes.collect()
}

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Takes permits under ids of their own, and gives back those that have ended.
pub fn acquire(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, taken) = (args.request()?, keys.text(1), keys.text(2));
    let (ids, lease, channel) = (ids_of(args.text(1)), args.number(2)?, args.text(3));
    let expiry = args.number(4)?;
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    let mut free = match number_at(redis, key) {
        Err(refused) if refused.0.contains("this string") => return returned(refused),
        Ok(None) => {
            return match forget_taken(redis, taken) {
                Ok(()) => answered(number, array![0, now, 1000, ""]),
                Err(refused) => returned(refused),
            };
        }
        free => free?.unwrap_or_default(),
    };
    let life = redis.pttl(key)?;
    let granted = || match (0..lease).contains(&life) {
        true => answered(number, array![5, now, life]),
        false => small(number, expiry - now),
    };
    let first = ids.first().cloned().unwrap_or_default();
    if redis.zscore(taken, &first)?.is_some() {
        return granted();
    }
    if TOO_SHORT.contains(&life) {
        keep_taken(redis, taken, Ok(life));
        return answered(number, array![0, now, 1000, ""]);
    }
    let (mut next, mut back) = (redis.zfirst(taken)?, 0);
    if next.is_some_and(|end| end <= now) {
        let over = redis.zrangebyscore(taken, now, AT_ONCE)?;
        back = over.len() as i64;
        free = redis.incrby(key, &text(back))?;
        if let Err(refused) = redis.zrem(taken, &over) {
            redis.incrby(key, &text(-back))?;
            return returned(refused);
        }
        next = redis.zfirst(taken)?;
    }
    let wanted = ids.len() as i64;
    let is_granted = free >= wanted;
    if is_granted {
        free = redis.decrby(key, &text(wanted))?;
        if let Err(refused) = redis.zadd_all(taken, (now + lease).min(NEVER), &ids) {
            redis.decrby(key, &text(-wanted))?;
            return returned(refused);
        }
    }
    keep_taken(redis, taken, Ok(life));
    if back > 0 {
        let _ = redis.publish(channel, &text(free));
    }
    if is_granted {
        return granted();
    }
    let ttl = next.map_or(1000, |end| (end - now).clamp(0, 1000));
    answered(number, array![0, now, ttl, ""])
}

/// Gives back the permits of a handle that have not ended.
pub fn release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, taken) = (args.request()?, keys.text(1), keys.text(2));
    let (ids, channel) = (ids_of(args.text(1)), args.text(2));
    let now = redis.time()?;
    let gone = |refused: Refused| match refused.is_wrong_type() {
        true => answered(number, array![0, ANOTHER_TYPE]),
        false => returned(refused),
    };
    let mut there = Vec::new();
    for id in &ids {
        match redis.zscore(taken, id) {
            Ok(end) => there.extend(end.filter(|end| *end > now).map(|_| id.clone())),
            Err(refused) => return gone(refused),
        }
    }
    if there.is_empty() {
        return answered(number, array![0, ""]);
    }
    match number_at(redis, key) {
        Ok(Some(_)) => {}
        Ok(None) => {
            let _ = redis.zrem(taken, &there);
            return answered(number, array![0, ""]);
        }
        Err(refused) => return gone(refused),
    }
    if let Err(refused) = redis.zrem(taken, &[Vec::new()]) {
        return returned(refused);
    }
    let free = match redis.incrby(key, &text(there.len() as i64)) {
        Ok(free) => free,
        Err(refused) => return returned(refused),
    };
    redis.zrem(taken, &there)?;
    let heard = redis.publish(channel, &text(free));
    if there.len() < ids.len() {
        return answered(number, array![0, ""]);
    }
    match heard {
        Ok(heard) => small(number, heard),
        Err(refused) => answered(number, array![1, refused.0.as_str()]),
    }
}

/// Gives back what a request without an answer may have taken.
pub fn withdraw(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, taken) = (args.request()?, keys.text(1), keys.text(2));
    let (ids, channel) = (ids_of(args.text(1)), args.text(2));
    let now = redis.time()?;
    let mut there = Vec::new();
    for id in ids {
        if redis.zscore(taken, &id)?.is_some() {
            there.push(id);
        }
    }
    if there.is_empty() {
        return answered(number, now);
    }
    redis.zrem(taken, &[Vec::new()])?;
    let free = match number_at(redis, key) {
        Err(refused) if !refused.is_wrong_type() => return returned(refused),
        found => found.ok().flatten(),
    };
    if free.is_some() {
        let free = redis.incrby(key, &text(there.len() as i64))?;
        let _ = redis.publish(channel, &text(free));
    }
    redis.zrem(taken, &there)?;
    answered(number, now)
}

/// Renews the leases of the permits of many handles at once.
pub fn renew(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let number = args.request()?;
    let now = redis.time()?;
    if now > args.number(args.count() - 1)? {
        return answered(number, array![now, 0]);
    }
    let mut result = vec![Reply::Int(now), Reply::Int(1)];
    for (place, pair) in (1..).zip(keys.0.chunks(2)) {
        let (Some(key), Some(taken)) = (pair.first(), pair.get(1)) else {
            break;
        };
        let (ids, lease) = (ids_of(args.text(2 * place - 1)), args.number(2 * place)?);
        let has = ids.iter().try_fold(true, |all, id| {
            let has = redis.zscore(taken, id)?;
            Ok(all && has.is_some())
        });
        let found = match (has, number_at(redis, key)) {
            (Err(refused), _) | (_, Err(refused)) => Err(refused),
            (Ok(has), Ok(free)) => Ok(has && free.is_some()),
        };
        let what = match found {
            Ok(true) => {
                let life = redis.pttl(key)?;
                let _ = redis.zrem(taken, &[Vec::new()]);
                redis.zadd_all(taken, (now + lease).min(NEVER), &ids)?;
                keep_taken(redis, taken, Ok(life));
                let ends = (0..lease).contains(&life);
                ends.then(|| Reply::Int(life.max(1)))
            }
            Ok(false) => Some(Reply::Int(0)),
            Err(refused) if refused.is_wrong_type() => Some(Reply::text(ANOTHER_TYPE)),
            Err(refused) => return returned(refused),
        };
        if let Some(what) = what {
            result.extend([Reply::Int(place as i64), what]);
        }
    }
    answered(number, Reply::Array(result))
}

/// Sets a semaphore, changes how many permits it has, or one of those that were taken; or tells of them.
pub fn count(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, once) = (args.request()?, keys.text(1), keys.text(2));
    let taken = keys.text(keys.count());
    let (op, amount, channel) = (args.text(1), args.text(2), args.text(3));
    let (remembered, life, id) = (args.text(4), args.text(5), bytes_of(args.text(6)));
    let now = redis.time()?;
    if now > args.number(7)? {
        return answered(number, array![3, now]);
    }
    let found = match number_at(redis, key) {
        Err(refused) if refused.0.contains("this string") => return returned(refused),
        found => found?,
    };
    let free = found.unwrap_or_default();
    let rest = |redis: &Redis<'_>| -> Answer<Option<i64>> {
        let end = match found {
            Some(_) => redis.zscore(taken, &id)?,
            None => None,
        };
        Ok(end.map(|end| end - now).filter(|rest| *rest > 0))
    };
    if matches!(op, b"get" | b"taken" | b"lease") {
        let life = redis.pttl(key);
        keep_taken(redis, taken, life);
    }
    let answer = match op {
        b"get" if found.is_some() => Some(free + redis.zcount(taken, i64::MIN, now)?),
        b"taken" if found.is_some() => Some(redis.zcount(taken, now, i64::MAX)?),
        b"get" | b"taken" => Some(0),
        b"lease" => {
            let (left, life) = (rest(redis)?.unwrap_or_default(), redis.pttl(key)?);
            Some(if life >= 0 {
                left.min(life.max(1))
            } else {
                left
            })
        }
        _ => None,
    };
    if let Some(answer) = answer {
        return answered(number, array![1, now, answer]);
    }
    if let Some(before) = redis.get(once)? {
        if before == b"range" {
            return answered(number, array![4, now]);
        }
        let before: i64 = String::from_utf8_lossy(&before).parse().unwrap_or_default();
        return answered(number, array![1, now, before]);
    }
    let exists = i64::from(found.is_some());
    let mut by = amount.to_vec();
    // `None` where there would be too many.
    let (answer, changes) = match op {
        b"give_back" | b"set_lease" => {
            let has = rest(redis)?.is_some();
            if has {
                redis.zrem(taken, &[Vec::new()])?;
            }
            (Some(i64::from(has)), has)
        }
        b"set" => (Some(1 - exists), found.is_none()),
        b"replace" => {
            if found.is_some() {
                let all = redis.zcount(taken, i64::MIN, i64::MAX)?;
                by = text(args.number(2)? - free - all);
            }
            (Some(1), true)
        }
        b"add" => {
            let by = args.number(2)?;
            let sum = free + by;
            match sum > MOST && by > 0 || sum < -MOST {
                true => (None, false),
                false => (Some(sum), true),
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
        None => forget_taken(redis, taken),
        Some(_) => Ok(()),
    };
    let done: Answer<Option<Vec<u8>>> = match op {
        _ if cleared.is_err() => cleared.map(|()| None),
        b"set_lease" => {
            let ends = (now + args.number(2)?).min(NEVER);
            redis.zadd(taken, ends, &id).map(|()| None)
        }
        b"delete" => {
            let forgotten = forget_taken(redis, taken);
            forgotten.and_then(|()| redis.del(key)).map(|_| None)
        }
        b"set" | b"replace" if found.is_none() => {
            let set = match life {
                b"0" => redis.set(key, amount),
                life => redis.set_px(key, amount, life),
            };
            set.map(|()| Some(amount.to_vec()))
        }
        b"give_back" => {
            let given = redis.incrby(key, b"1").map(|free| Some(text(free)));
            if given.is_ok() {
                redis.zrem(taken, std::slice::from_ref(&id))?;
            }
            given
        }
        _ => redis.incrby(key, &by).map(|free| Some(text(free))),
    };
    let message = match done {
        Ok(message) => message,
        Err(refused) => {
            let _ = redis.del(once);
            return returned(refused);
        }
    };
    let life = redis.pttl(key);
    keep_taken(redis, taken, life);
    if let Some(message) = message {
        let _ = redis.publish(channel, &message);
    }
    answered(number, reply)
}
