//! The scripts of the fenced lock, which differ from those of the reentrant one.

use super::reentrant::{begin_hold, counts, has_either, pass_on, refuse};
use super::{Args, answered, small};
use crate::commands::{Answer, Redis, Refused};
use crate::reply::{Reply, array};

/// Beyond this Lua has no number for each token.
const LARGEST: i64 = (1 << 53) - 1;

/// Takes a fenced lock, or enters it once more.
pub fn acquire(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, lease) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (known, wanted, expiry) = (args.text(3), args.text(4), args.number(6)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if known == b"0" && !redis.exists(key)? {
        let token = match draw(redis, keys.text(2), args.number(5)?)? {
            Ok(token) => token,
            Err(refused) => return Ok(refused),
        };
        return match begin_hold(redis, key, visitor, wanted, lease)? {
            Ok(()) => answered(number, array![1, now, token]),
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

/// Makes the hold of one visitor that of another one of the same process, with a fencing token of its own.
pub fn transfer(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, from, to) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (lease, channel, expiry) = (args.text(3), args.text(4), args.number(6)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    let has = match has_either(redis, key, [from, to], number, now)? {
        Ok(has) => has,
        Err(answer) => return Ok(answer),
    };
    let token = match draw(redis, keys.text(2), args.number(5)?)? {
        Ok(token) => token,
        Err(refused) => return Ok(refused),
    };
    if let Err(refused) = pass_on(redis, key, [from, to], lease, has)? {
        return Ok(refused);
    }
    let heard = redis.numsub(channel).unwrap_or(-1);
    answered(number, array![1, now, heard, token])
}

/// Draws the next fencing token; the answer if there is none.
fn draw(redis: &mut Redis<'_>, counter: &[u8], floor: i64) -> Answer<Result<i64, Reply>> {
    let last = redis.get(counter)?.unwrap_or_else(|| b"0".to_vec());
    let is_number = !last.is_empty() && last.iter().all(u8::is_ascii_digit);
    let last = String::from_utf8_lossy(&last).parse::<i64>().ok();
    let above = last.filter(|_| is_number).and_then(|it| it.checked_add(1));
    let token = above.map(|above| above.max(redis.around.now).max(floor));
    match token.filter(|token| *token <= LARGEST) {
        Some(token) => {
            redis.set(counter, token.to_string().as_bytes())?;
            Ok(Ok(token))
        }
        None => {
            let counter = String::from_utf8_lossy(counter);
            let words = "is no fencing token above which there are others";
            Ok(Err(
                Refused::new(format!("WRONGTYPE {counter} {words}")).into()
            ))
        }
    }
}
