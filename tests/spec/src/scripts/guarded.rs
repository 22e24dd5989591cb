//! The script of guarded work.

use super::holder::holder_of;
use super::reentrant::returned;
use super::token::told;
use super::{ANOTHER_TYPE, Args, answered};
use crate::commands::{Answer, Redis, Refused};
use crate::reply::{Reply, array};

/// So many bytes of replies are told at most.
const ROOM: usize = 1_040_000;

/// Runs commands if a hold stands or no newer fence was seen. The scripts of users are not specified.
/// A key that was not declared is refused: a real server does not notice, and may be the wrong one.
pub fn guarded(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor) = (args.request()?, keys.text(1), args.text(1));
    let now = redis.time()?;
    if now > args.number(args.count() - 1)? {
        return answered(number, array![3, now]);
    }
    let refusal = match args.text(2) {
        b"fence" => is_stale(redis, key, visitor, now),
        b"token" => match redis.get(key) {
            Ok(Some(token)) if token == visitor => Ok(None),
            Ok(holder) => Ok(Some(array![2, now, told(&holder)])),
            Err(refused) => gone(refused, now),
        },
        _ => match redis.hexists(key, visitor) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(array![2, now, holder_of(redis, key)?.told()])),
            Err(refused) => gone(refused, now),
        },
    };
    match refusal {
        Ok(None) => {}
        Ok(Some(refusal)) => return answered(number, refusal),
        Err(Ended::Raised(refused)) => return Err(refused),
        Err(Ended::Returned(refused)) => return returned(refused),
    }
    let (mut replies, mut room) = (Vec::new(), ROOM);
    let (mut at, last) = (3, args.count() - 2);
    while at <= last {
        let count = usize::try_from(args.number(at)?).unwrap_or_default();
        let words = &args.0[at..at + count];
        if let Some(used) = Redis::key_of(words) {
            let data = keys.0.get(1..).unwrap_or_default();
            if !data.contains(&used) {
                return Err(Refused::new("ERR a key that was not declared"));
            }
        }
        at += count + 1;
        let reply = redis.call(words).unwrap_or_else(Reply::from);
        let left = room.checked_sub(size_of(&reply));
        let flaw = match (&reply, left) {
            // The master is to be asked.
            (Reply::Error(flaw), _) if flaw.starts_with("READONLY") => return Ok(reply),
            (Reply::Error(flaw), _) => flaw.clone(),
            (_, Some(left)) => {
                room = left;
                replies.push(reply);
                continue;
            }
            (_, None) => {
                "ERR the command was carried out, but with its reply there is more to tell \
                          than 1 MiB"
                    .to_owned()
            }
        };
        let index = replies.len() as i64;
        let failed = array![7, now, index, flaw.as_str(), Reply::Array(replies)];
        return answered(number, failed);
    }
    answered(number, array![1, now, Reply::Array(replies)])
}

/// A script that ends before its work.
enum Ended {
    Raised(Refused),
    Returned(Refused),
}

/// The answer if a larger fence was seen; else this one is noted.
fn is_stale(
    redis: &mut Redis<'_>,
    key: &[u8],
    fence: &[u8],
    now: i64,
) -> Result<Option<Reply>, Ended> {
    let text = redis.get(key).map_err(Ended::Raised)?;
    let text = text.unwrap_or_else(|| b"0".to_vec());
    let digits: Vec<u8> = text.iter().copied().skip_while(|it| *it == b'0').collect();
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let seen = if digits.is_empty() {
        b"0".to_vec()
    } else {
        digits
    };
    if !is_number || seen.len() > 20 {
        let refused = Refused::new("WRONGTYPE this key keeps no fence");
        return Err(Ended::Returned(refused));
    }
    if (seen.len(), &*seen) > (fence.len(), fence) {
        return Ok(Some(array![8, now, seen]));
    }
    if seen != fence {
        redis.set(key, fence).map_err(Ended::Raised)?;
    }
    Ok(None)
}

/// The answer of a script that may not look at the lock, or finds another type there.
fn gone(refused: Refused, now: i64) -> Result<Option<Reply>, Ended> {
    match refused.is_wrong_type() {
        true => Ok(Some(array![2, now, ANOTHER_TYPE])),
        false => Err(Ended::Returned(refused)),
    }
}

fn size_of(reply: &Reply) -> usize {
    match reply {
        Reply::Bulk(bytes) => bytes.len() + 16,
        Reply::Status(word) => word.len() + 16,
        Reply::Array(items) => 16 + items.iter().map(size_of).sum::<usize>(),
        Reply::Int(_) | Reply::Nil | Reply::Error(_) => 24,
    }
}
