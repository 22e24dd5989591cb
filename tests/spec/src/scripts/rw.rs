//! The scripts of read-write locks: a hash of the mode and of the visitors, and a time key for each hold that reads.

use super::reentrant::returned;
use super::{ANOTHER_TYPE, Args, answered, begin, small};
use crate::commands::{Answer, Redis, Refused};
use crate::reply::{Reply, array};

/// More levels of Redisson's than these are not looked at.
const MOST_LEVELS: i64 = 10_000;

/// The end of the name of a time key of the first level.
const FIRST_LEVEL: &[u8] = b":rwlock_timeout:1";

/// A reader that ends so long before the lock, in ms, is not the one whose end that is.
const LEAST_DIFFERENCE: i64 = 1000;

fn number_of(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn writes(visitor: &[u8]) -> bool {
    visitor.ends_with(b":write")
}

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The mode, if anybody has the lock; the refusal of what is no such lock.
fn mode_of(redis: &Redis<'_>, key: &[u8]) -> Answer<Result<Option<Vec<u8>>, Refused>> {
    let mode = redis.hget(key, b"mode")?;
    Ok(match mode.is_none() && redis.exists(key)? {
        true => Err(Refused::new("WRONGTYPE this hash is no read-write lock")),
        false => Ok(mode),
    })
}

/// The writer, or else a reader.
fn holder_of(redis: &Redis<'_>, key: &[u8]) -> Answer<Vec<u8>> {
    let mode = match mode_of(redis, key)? {
        Ok(mode) => mode,
        Err(_) => return Ok(ANOTHER_TYPE.as_bytes().to_vec()),
    };
    if mode.is_none() {
        return Ok(Vec::new());
    }
    let fields = redis.hkeys(key)?;
    let fields: Vec<_> = fields.into_iter().filter(|it| it != b"mode").collect();
    let writer = fields.iter().rfind(|field| writes(field));
    let holder = writer.or(fields.first()).cloned().unwrap_or_default();
    Ok(begin(&holder, 128).to_vec())
}

fn prefix_of<'k>(own: &'k [u8], visitor: &[u8]) -> &'k [u8] {
    let length = own.len().saturating_sub(visitor.len() + FIRST_LEVEL.len());
    begin(own, length)
}

/// How long a hold lasts, in ms; 0 if it is over.
fn life_of(redis: &Redis<'_>, prefix: &[u8], field: &[u8], count: &[u8]) -> Answer<i64> {
    let mut life = 0;
    for level in 1..=number_of(count).unwrap_or_default().min(MOST_LEVELS) {
        let end = format!(":rwlock_timeout:{level}");
        life = life.max(redis.pttl(&[prefix, field, end.as_bytes()].concat())?);
    }
    Ok(life)
}

/// Whether the hold of a visitor whose field is there is over.
fn is_over(redis: &Redis<'_>, key: &[u8], own: &[u8], visitor: &[u8]) -> Answer<bool> {
    Ok(!redis.exists(own)? && (!writes(visitor) || redis.hlen(key)? > 2))
}

fn lengthen(redis: &mut Redis<'_>, key: &[u8], life: &[u8]) -> Answer<()> {
    if redis.pttl(key)? < number_of(life).unwrap_or_default() {
        redis.pexpire(key, life)?;
    }
    Ok(())
}

/// Sets the life of the hash to the longest of its holds. Returns the message for those who wait.
fn settle(redis: &mut Redis<'_>, key: &[u8], prefix: &[u8]) -> Answer<Option<&'static [u8]>> {
    let (mut longest, mut over, mut mode, mut has_writer) = (0, Vec::new(), Vec::new(), false);
    for (field, count) in redis.hgetall(key)? {
        if field == b"mode" {
            mode = count;
            continue;
        }
        let life = life_of(redis, prefix, &field, &count)?;
        longest = longest.max(life);
        match life > 0 {
            true => has_writer |= writes(&field),
            false => over.push(field),
        }
    }
    let is_written = mode == b"write";
    if longest <= 0 {
        redis.del(key)?;
        return Ok(Some(if is_written { b"1" } else { b"0" }));
    }
    let opens = is_written && !has_writer && redis.hset(key, b"mode", b"read").is_ok();
    for field in over {
        redis.hdel(key, &field)?;
    }
    redis.pexpire(key, &text(longest))?;
    Ok(opens.then_some(b"1"))
}

/// Takes the hold of a visitor away, which is there. Returns the message for those who wait.
fn leave(
    redis: &mut Redis<'_>,
    key: &[u8],
    own: &[u8],
    visitor: &[u8],
) -> Answer<Result<Option<&'static [u8]>, Refused>> {
    let (mode, lasts) = (redis.hget(key, b"mode")?, redis.pttl(key)?);
    if writes(visitor)
        && redis.hlen(key)? > 2
        && let Err(refused) = redis.hset(key, b"mode", b"read")
    {
        return Ok(Err(refused));
    }
    let left = redis.pttl(own)?;
    redis.hdel(key, visitor)?;
    redis.del(own)?;
    let is_read = mode.is_some_and(|mode| mode == b"read");
    if is_read && left > 0 && left < lasts - LEAST_DIFFERENCE && redis.hlen(key)? > 1 {
        return Ok(Ok(None));
    }
    let message = settle(redis, key, prefix_of(own, visitor))?;
    Ok(Ok(if writes(visitor) { Some(b"1") } else { message }))
}

/// Looks whether the visitor has one of these counts, and is not over; the answer if not.
fn counts(
    redis: &Redis<'_>,
    [key, own, visitor]: [&[u8]; 3],
    counts: [&[u8]; 2],
    number: i64,
    now: i64,
) -> Answer<Result<(), Reply>> {
    let answer = match redis.hget(key, visitor) {
        Err(refused) if refused.is_wrong_type() => array![2, now, ANOTHER_TYPE],
        Err(refused) => return Ok(Err(refused.into())),
        Ok(None) => array![2, now, holder_of(redis, key)?],
        Ok(Some(_)) if is_over(redis, key, own, visitor)? => array![2, now, ""],
        Ok(Some(count)) if counts.contains(&&*count) => return Ok(Ok(())),
        Ok(Some(count)) => array![4, now, begin(&count, 32)],
    };
    Ok(Err(array![number, answer]))
}

/// Takes away what an acquisition has put that could not be given an end.
fn undo(redis: &mut Redis<'_>, key: &[u8], visitor: &[u8], is_first: bool) {
    if is_first && redis.del(key) == Ok(true) {
        return;
    }
    let _ = redis.hdel(key, visitor);
    if is_first {
        let _ = redis.hdel(key, b"mode");
    }
}

/// Takes a lock to read, or enters it once more.
pub fn read(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, own) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, lease, wanted, inside) = (args.text(1), args.text(2), args.text(4), args.text(5));
    let (known, expiry) = (args.text(3), args.number(6)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if known != b"0" {
        if let Err(answer) = counts(redis, [key, own, visitor], [known, wanted], number, now)? {
            return Ok(answer);
        }
        redis.hset(key, visitor, wanted)?;
        lengthen(redis, own, lease)?;
        lengthen(redis, key, lease)?;
        return small(number, expiry - now);
    }
    let mode = match mode_of(redis, key)? {
        Ok(mode) => mode,
        Err(refused) => return returned(refused),
    };
    let is_written = mode.as_deref() == Some(b"write");
    let is_open = match &mode {
        None => true,
        Some(mode) => mode == b"read" || !inside.is_empty() && redis.hexists(key, inside)?,
    };
    if !is_open {
        let holder = holder_of_after(redis, key)?;
        return answered(number, array![0, now, holder.0, holder.1]);
    }
    let is_new = !redis.hexists(key, visitor)?;
    if is_written && is_new {
        let writers = [prefix_of(own, visitor), inside, FIRST_LEVEL].concat();
        if !redis.exists(&writers)? {
            let rest = redis.pttl(key)?.max(1);
            redis.set_px(&writers, b"1", &text(rest))?;
        }
    }
    let (ends, lasts) = (redis.pttl(own)?, redis.pttl(key)?);
    if mode.is_none() {
        redis.hset(key, b"mode", b"read")?;
    }
    if is_new {
        redis.hset(key, visitor, wanted)?;
    }
    let lease_of = number_of(lease).unwrap_or_default();
    let mut done = match ends < lease_of {
        true => redis.set_px(own, b"1", lease),
        false => Ok(()),
    };
    if done.is_ok() && lasts < lease_of {
        done = redis.pexpire(key, lease).map(|_| ());
    }
    let Err(refused) = done else {
        return small(number, expiry - now);
    };
    if is_new {
        let _ = redis.del(own);
        undo(redis, key, visitor, mode.is_none());
    }
    returned(refused)
}

/// How long the lock lasts, and who has it, in the order in which they are asked for.
fn holder_of_after(redis: &Redis<'_>, key: &[u8]) -> Answer<(i64, Vec<u8>)> {
    Ok((redis.pttl(key)?, holder_of(redis, key)?))
}

/// Takes a lock to write, or enters it once more.
pub fn write(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, own) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, lease, known, wanted) = (args.text(1), args.text(2), args.text(3), args.text(4));
    let expiry = args.number(5)?;
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if known == b"0" {
        let mode = match mode_of(redis, key)? {
            Ok(mode) => mode,
            Err(refused) => return returned(refused),
        };
        if mode.is_none() {
            redis.hset(key, b"mode", b"write")?;
            redis.hset(key, visitor, wanted)?;
            if let Err(refused) = redis.pexpire(key, lease) {
                undo(redis, key, visitor, true);
                return returned(refused);
            }
            return small(number, expiry - now);
        }
        if !redis.hexists(key, visitor)? {
            let holder = holder_of_after(redis, key)?;
            return answered(number, array![0, now, holder.0, holder.1]);
        }
    } else {
        if let Err(answer) = counts(redis, [key, own, visitor], [known, wanted], number, now)? {
            return Ok(answer);
        }
        redis.hset(key, visitor, wanted)?;
    }
    if redis.exists(own)? {
        lengthen(redis, own, lease)?;
    }
    lengthen(redis, key, lease)?;
    small(number, expiry - now)
}

/// Gives a whole hold back, and wakes those who wait.
pub fn release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, own) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, channel) = (args.text(1), args.text(2));
    match redis.hexists(key, visitor) {
        Ok(true) => {}
        Ok(false) => return answered(number, array![0, holder_of(redis, key)?]),
        Err(refused) if refused.is_wrong_type() => {
            return answered(number, array![0, ANOTHER_TYPE]);
        }
        Err(refused) => return returned(refused),
    }
    let message = match leave(redis, key, own, visitor)? {
        Ok(message) => message.filter(|_| !channel.is_empty()),
        Err(refused) => return returned(refused),
    };
    let Some(message) = message else {
        return small(number, 0);
    };
    match redis.publish(channel, message) {
        Ok(heard) => small(number, if message == b"1" { heard } else { 0 }),
        Err(refused) => answered(number, array![1, refused.0.as_str()]),
    }
}

/// Frees what a request without an answer may have left.
pub fn withdraw(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, own) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, channel) = (args.text(1), args.text(2));
    let now = redis.time()?;
    if redis.hexists(key, visitor)? {
        match leave(redis, key, own, visitor)? {
            Ok(Some(message)) => drop(redis.publish(channel, message)),
            Ok(None) => {}
            Err(refused) => return returned(refused),
        }
    }
    answered(number, now)
}

/// Gives one level of a hold back.
pub fn release_level(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, own) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, lease, known, wanted) = (args.text(1), args.text(2), args.text(3), args.text(4));
    let expiry = args.number(5)?;
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if let Err(answer) = counts(redis, [key, own, visitor], [known, wanted], number, now)? {
        return Ok(answer);
    }
    match redis.hset(key, visitor, wanted) {
        Err(refused) if !refused.0.contains("OOM") => return returned(refused),
        _ => {}
    }
    if redis.pexpire(own, lease)? {
        settle(redis, key, prefix_of(own, visitor))?;
    } else {
        redis.pexpire(key, lease)?;
    }
    small(number, expiry - now)
}

/// Renews many holds at once.
pub fn renew(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let number = args.request()?;
    let now = redis.time()?;
    if now > args.number(args.count() - 1)? {
        return answered(number, array![now, 0]);
    }
    let mut result = vec![Reply::Int(now), Reply::Int(1)];
    for (place, pair) in (1..).zip(keys.0.chunks(2)) {
        let (Some(key), Some(own)) = (pair.first(), pair.get(1)) else {
            break;
        };
        let (visitor, lease) = (args.text(2 * place - 1), args.text(2 * place));
        let what = match redis.hexists(key, visitor) {
            Ok(true) if is_over(redis, key, own, visitor)? => Some(Vec::new()),
            Ok(true) => {
                if redis.exists(own)? {
                    lengthen(redis, own, lease)?;
                }
                lengthen(redis, key, lease)?;
                None
            }
            Ok(false) => Some(holder_of(redis, key)?),
            Err(refused) if refused.is_wrong_type() => Some(ANOTHER_TYPE.as_bytes().to_vec()),
            Err(refused) => return returned(refused),
        };
        if let Some(what) = what {
            let is_nobody = what.is_empty();
            let what = if is_nobody {
                Reply::Int(0)
            } else {
                what.into()
            };
            result.extend([Reply::Int(place as i64), what]);
        }
    }
    answered(number, Reply::Array(result))
}

/// Frees a lock whoever reads, or whoever writes.
pub fn force_release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, expiry) = (args.request()?, keys.text(1), args.number(3)?);
    let (channel, asked) = (args.text(1), args.text(2));
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    match mode_of(redis, key)? {
        Err(refused) => returned(refused),
        Ok(mode) if mode.as_deref() == Some(asked) => {
            redis.del(key)?;
            let _ = redis.publish(channel, b"1");
            answered(number, array![1, now])
        }
        Ok(_) => answered(number, array![0, now]),
    }
}

/// Tells who holds a lock in one of its modes.
pub fn inspect(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, own) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, asked) = (args.text(1), args.text(2));
    let mode = match mode_of(redis, key)? {
        Ok(mode) => mode,
        Err(refused) => return returned(refused),
    };
    let is_held = match &mode {
        None => false,
        Some(mode) => mode == asked || mode != b"read" && redis.hlen(key)? >= 3,
    };
    if !is_held {
        return answered(number, array![0, "", -2]);
    }
    let mut count = match visitor.is_empty() {
        true => None,
        false => redis.hget(key, visitor)?,
    };
    if asked == b"read" && count.is_some() && !redis.exists(own)? {
        count = None;
    }
    let count = count.unwrap_or_default();
    answered(number, array![1, begin(&count, 32), redis.pttl(key)?])
}
