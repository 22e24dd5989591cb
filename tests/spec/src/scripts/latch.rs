//! The script of the count-down latch: a number that goes when it comes to 0.

use super::reentrant::returned;
use super::{Args, answered};
use crate::commands::{Answer, Redis, Refused};
use crate::reply::{Reply, array};

/// No larger number is exact in a script.
const LARGEST: i64 = (1 << 53) - 1;

/// The number under a key; a refusal if something else is there.
pub(super) fn number_at(redis: &Redis<'_>, key: &[u8]) -> Answer<Option<i64>> {
    let Some(text) = redis.get(key)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&text);
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let is_number = !digits.is_empty() && digits.bytes().all(|sign| sign.is_ascii_digit());
    let refused = || Refused::new("WRONGTYPE this string is no count");
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.map(Some).ok_or_else(refused)
}

/// Counts a latch down, sets it, tells its count or takes it away.
pub fn count(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, latch, once) = (args.request()?, keys.text(1), keys.text(2));
    let (op, amount, channel) = (args.text(1), args.text(2), args.text(3));
    let (remembered, expiry) = (args.text(4), args.number(5)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    let count = match number_at(redis, latch) {
        Err(refused) if refused.0.contains("this string") => return returned(refused),
        count => count?,
    };
    let left = (count.unwrap_or(0) - i64::from(op == b"down")).clamp(0, LARGEST);
    if op == b"get" {
        return answered(number, array![1, now, left]);
    }
    if let Some(before) = redis.get(once)? {
        let before: i64 = String::from_utf8_lossy(&before).parse().unwrap_or_default();
        return answered(number, array![1, now, before]);
    }
    let changes = (op == b"set") != count.is_some();
    let answer = match op {
        b"down" => left,
        _ => i64::from(changes),
    };
    redis.set_px(once, answer.to_string().as_bytes(), remembered)?;
    if !changes {
        return answered(number, array![1, now, answer]);
    }
    let (done, message): (Answer<()>, Option<&[u8]>) = match op {
        b"set" => (redis.set(latch, amount), Some(b"1")),
        b"down" if left > 0 => (redis.decrby(latch, b"1").map(|_| ()), None),
        _ => (redis.del(latch).map(|_| ()), Some(b"0")),
    };
    if let Err(refused) = done {
        let _ = redis.del(once);
        return returned(refused);
    }
    if let Some(message) = message {
        let _ = redis.publish(channel, message);
    }
    answered(number, array![1, now, answer])
}
