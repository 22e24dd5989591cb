//! The scripts of conditions: those who wait in two sorted sets, by when they came and by when they have to be heard of.

use super::holder::{Holder, holder_of};
use super::reentrant::returned;
use super::{ANOTHER_TYPE, Args, answered, begin};
use crate::commands::{Answer, Redis};
use crate::plant::is_planted;
use crate::reply::{Reply, array};

/// So many of the dead are looked at in one go.
const AT_ONCE: usize = 100;

/// So many whose ends are too far ahead.
const AHEAD_AT_ONCE: usize = 1000;

/// The sets of a condition, and where those who wait hear of it.
struct Places<'a> {
    waiting: &'a [u8],
    due: &'a [u8],
    channels: &'a [u8],
    now: i64,
}

/// A place lasts so long, in ms, after the last look.
const LIFE: i64 = 10_000;

impl Places<'_> {
    /// Signals the one alive that has waited for longest, and takes the dead before it away.
    fn wake_first(&self, redis: &mut Redis<'_>) -> Answer<bool> {
        while let Some(first) = redis.zfirst_member(self.waiting)? {
            let ends = redis.zscore(self.due, &first)?;
            redis.zrem(self.waiting, std::slice::from_ref(&first))?;
            if ends.is_some_and(|ends| ends > self.now) {
                let channel = [self.channels, b":", &first].concat();
                if !is_planted("a signal is not told") {
                    let _ = redis.publish(&channel, b"0");
                }
                // One from before the clock was set back may be dead.
                if ends.is_some_and(|ends| ends - self.now <= LIFE) {
                    return Ok(true);
                }
            }
            redis.zrem(self.due, &[first])?;
        }
        Ok(false)
    }

    /// Has a place last for a while; the first refusal of what that takes.
    fn keep(&self, redis: &mut Redis<'_>, visitor: &[u8], life: i64) -> Answer<()> {
        let lasts = (10 * life).to_string();
        // First, for behind what needs no memory a full server takes the other.
        let waiting = redis.pexpire(self.waiting, lasts.as_bytes());
        let heard = redis.zadd(self.due, self.now + life, visitor);
        let due = redis.pexpire(self.due, lasts.as_bytes());
        heard.and(waiting.map(|_| ())).and(due.map(|_| ()))
    }
}

/// The reply if there is no such hold.
fn gone(
    redis: &mut Redis<'_>,
    key: &[u8],
    hold: &[u8],
    (number, now): (i64, i64),
) -> Answer<Option<Reply>> {
    let gone = match redis.hexists(key, hold) {
        Ok(true) => return Ok(None),
        Ok(false) => match holder_of(redis, key)? {
            Holder::Visitor(field) => array![2, now, begin(&field, 128)],
            Holder::Nobody | Holder::NoLock => array![2, now, ""],
        },
        Err(refused) if refused.is_wrong_type() => array![2, now, ANOTHER_TYPE],
        Err(refused) => return returned(refused).map(Some),
    };
    answered(number, gone).map(Some)
}

/// Takes a place among those who wait on a condition, asks whether it was signalled, or gives it up.
pub fn look(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let number = args.request()?;
    let (visitor, op, hold) = (args.text(1), args.text(2), args.text(3));
    let life = args.number(4)?;
    let now = redis.time()?;
    if now > args.number(6)? && [&b"enlist"[..], b"look"].contains(&op) {
        return answered(number, array![3, now]);
    }
    let places = Places {
        waiting: keys.text(2),
        due: keys.text(3),
        channels: args.text(5),
        now,
    };
    let mine = [visitor.to_vec()];
    if op == b"enlist" {
        if let Some(gone) = gone(redis, keys.text(1), hold, (number, now))? {
            return Ok(gone);
        }
        if redis.zscore(places.waiting, visitor)?.is_none() {
            let last = redis.zlast_score(places.waiting)?;
            let came = redis.micros().max(last.map_or(0, |last| last + 1));
            redis.zadd(places.waiting, came, visitor)?;
        }
        if let Err(refused) = places.keep(redis, visitor, life) {
            let _ = redis.zrem(places.waiting, &mine);
            let _ = redis.zrem(places.due, &mine);
            return returned(refused);
        }
        return answered(number, array![0, now]);
    }
    if op == b"look" {
        for other in redis.zrangebyscore(places.due, now, AT_ONCE)? {
            if other != visitor {
                let other = [other];
                let was_due = redis.zrem(places.due, &other)? == 1;
                if was_due && redis.zrem(places.waiting, &other)? == 0 {
                    places.wake_first(redis)?;
                }
            }
        }
    }
    if op == b"look" {
        // One that was told before the clock was set back may be dead.
        for other in redis.zrangebyscore_above(places.due, now + life, AHEAD_AT_ONCE)? {
            let waits = redis.zscore(places.waiting, &other)?.is_some();
            if !waits && other != visitor && redis.zrem(places.due, &[other])? == 1 {
                places.wake_first(redis)?;
            }
        }
    }
    let waits = redis.zscore(places.waiting, visitor)?.is_some();
    if op == b"look" && waits {
        let _ = places.keep(redis, visitor, life);
        return answered(number, array![0, now]);
    }
    if waits {
        redis.zrem(places.waiting, &mine)?;
    }
    let was_signalled = redis.zrem(places.due, &mine)? > 0;
    if [&b"look"[..], b"leave"].contains(&op) {
        let forgets = op == b"leave" && is_planted("one that leaves forgets its signal");
        return answered(number, array![if waits || forgets { 4 } else { 1 }, now]);
    }
    if !waits && (was_signalled || op == b"pass") {
        places.wake_first(redis)?;
    }
    answered(number, array![5, now])
}

/// Signals those who wait on a condition, the longest waiting first.
pub fn signal(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, hold, most) = (args.request()?, args.text(1), args.number(2)?);
    let now = redis.time()?;
    if now > args.number(4)? {
        return answered(number, array![3, now]);
    }
    if let Some(gone) = gone(redis, keys.text(1), hold, (number, now))? {
        return Ok(gone);
    }
    let places = Places {
        waiting: keys.text(2),
        due: keys.text(3),
        channels: args.text(3),
        now,
    };
    let mut count = 0;
    while count < most && places.wake_first(redis)? {
        count += 1;
        if is_planted("a signal wakes two") {
            places.wake_first(redis)?;
        }
    }
    answered(number, array![1, now, count])
}
