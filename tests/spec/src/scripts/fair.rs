//! The scripts of fair locks: a hash of one visitor and its hold count, and those who wait in a list.

use super::holder::{Holder, holder_of, may_be_freed};
use super::reentrant::{begin_hold, counts, returned};
use super::{ANOTHER_TYPE, Args, answered, begin, small};
use crate::commands::{Answer, Redis};
use crate::plant::is_planted;
use crate::reply::{Reply, array};

/// One of this library that listens and does not look for so long is dead, in ms.
const SILENT: i64 = 10_000;

/// The same of one that does not listen.
const UNHEARD: i64 = 1500;

/// Those behind one that listens are suspected when that one was silent for so long, in ms.
const SUSPICIOUS: i64 = 1000;

/// Of so many is noted at once that they are silent.
const MOST_ABSENT: i64 = 32;

/// A visitor that is refused looks again after this time at the latest, in ms, and after the other one at the soonest; one far
/// from its turn that listens, after the third one.
const PAUSE: i64 = 1000;
const SHORTEST_PAUSE: i64 = 50;
const FAR_PAUSE: i64 = 3000;

/// A note that somebody does not come ends after so long, in ms; the queue a day behind the last who joined it.
const NOTED: &[u8] = b"3600000";
const DAY: &[u8] = b"86400000";

/// The list of those who wait, and the set of the times from which on they count as dead.
#[derive(Clone, Copy)]
struct Queue<'k> {
    line: &'k [u8],
    times: &'k [u8],
}

impl<'k> Queue<'k> {
    fn of(keys: Args<'k>) -> Queue<'k> {
        Queue {
            line: keys.text(2),
            times: keys.text(3),
        }
    }

    /// The first who waits; those before it go that are dead, but not `me`. With `raises` any refusal ends it, else only one
    /// that concerns the list.
    fn first(
        self,
        redis: &mut Redis<'_>,
        me: &[u8],
        now: i64,
        raises: bool,
    ) -> Answer<Option<Vec<u8>>> {
        while let Some(first) = redis.lindex(self.line, 0)? {
            if !me.is_empty() && first == me {
                return Ok(Some(first));
            }
            let ends = match redis.zscore(self.times, &first) {
                Err(refused) if raises => return Err(refused),
                ends => ends.ok().flatten(),
            };
            if ends.is_some_and(|ends| ends > now) {
                return Ok(Some(first));
            }
            redis.lpop(self.line)?;
            let gone = redis.zrem(self.times, &[first]).map(|_| ());
            gone.or_else(|refused| if raises { Err(refused) } else { Ok(()) })?;
        }
        let left = redis.exists(self.times);
        let cleared = match left {
            Ok(true) => redis.del(self.times).map(|_| ()),
            left => left.map(|_| ()),
        };
        cleared.or_else(|refused| if raises { Err(refused) } else { Ok(()) })?;
        Ok(None)
    }

    /// Takes the time of one that left off that of others, but nobody is left with less than half of it by that.
    fn take_time(
        self,
        redis: &mut Redis<'_>,
        others: Vec<(Vec<u8>, i64)>,
        patience: i64,
        now: i64,
    ) {
        let least = now + patience / 2;
        for (waiter, ends) in others.into_iter().filter(|(_, ends)| *ends > least) {
            let left = match is_planted("one that leaves takes twice its time off others") {
                true => ends - 2 * patience,
                false => least.max(ends - patience),
            };
            let _ = redis.zadd(self.times, left, &waiter);
        }
    }

    /// Tells the first who waits that the lock is free, or another one if that is not heard.
    fn tell_first(self, redis: &mut Redis<'_>, base: &[u8], now: i64) -> Answer<()> {
        let first = self.first(redis, b"", now, false)?;
        let tells = |_: &_| !is_planted("nobody is told that a fair lock is free");
        let Some(first) = first.filter(tells) else {
            return Ok(());
        };
        let mut heard = redis.publish(&channel(base, &first), b"0");
        if heard == Ok(0) {
            for waiter in redis
                .lrange(self.line, 1, MOST_ABSENT - 1)
                .unwrap_or_default()
            {
                if heard == Ok(0) && is_ours(&waiter) {
                    heard = redis.publish(&channel(base, &waiter), b"0");
                }
            }
        }
        heard.map(|_| ())
    }
}

fn channel(base: &[u8], waiter: &[u8]) -> Vec<u8> {
    [base, b":", waiter].concat()
}

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Whether it ends in two numbers, each behind a colon.
fn is_ours(waiter: &[u8]) -> bool {
    let mut parts = waiter.rsplit(|sign| *sign == b':');
    let is_number = |it: Option<&[u8]>| {
        it.is_some_and(|it| !it.is_empty() && it.iter().all(u8::is_ascii_digit))
    };
    is_number(parts.next()) && is_number(parts.next()) && parts.next().is_some()
}

/// How the silence of a waiter is noted: in -1 ms for those who do not listen, and with the time by which a wait is known.
struct Silence {
    unit: i64,
    wait: Vec<u8>,
    /// A note from before does not count.
    least: i64,
}

impl Silence {
    /// Since when it lasts by a note, if that one counts.
    fn since(&self, noted: &[u8], now: i64) -> Option<i64> {
        let noted = noted.strip_suffix(&*self.wait)?;
        let since = std::str::from_utf8(noted).ok()?.parse::<i64>().ok()? / self.unit;
        (self.least..=now).contains(&since).then_some(since)
    }
}

/// One look of a visitor at a lock.
struct Look<'k> {
    queue: Queue<'k>,
    /// The notes on those who do not come.
    absent: &'k [u8],
    has_absent: bool,
    visitor: &'k [u8],
    base: &'k [u8],
    knows_all: bool,
    now: i64,
}

impl Look<'_> {
    /// Whether anybody listens for a waiter; one that is told hears that the lock is free.
    fn is_heard(&self, redis: &mut Redis<'_>, waiter: &[u8], tells: bool) -> bool {
        let channel = channel(self.base, waiter);
        let heard = match tells {
            true => redis.publish(&channel, b"0"),
            false => redis.numsub(&channel),
        };
        heard != Ok(0) || !self.knows_all
    }

    /// Since when a waiter has not looked; from now on if it is not noted yet, or was otherwise.
    fn silent_since(&mut self, redis: &mut Redis<'_>, waiter: &[u8], silence: &Silence) -> i64 {
        let noted = redis.hget(self.absent, waiter).ok().flatten();
        if let Some(since) = noted.and_then(|noted| silence.since(&noted, self.now)) {
            return since;
        }
        self.has_absent = true;
        let mut noted = text(self.now * silence.unit);
        noted.extend_from_slice(&silence.wait);
        let is_set = redis.hset(self.absent, waiter, &noted).is_ok();
        if is_set && redis.pexpire(self.absent, NOTED) != Ok(true) {
            let _ = redis.del(self.absent);
        }
        self.now
    }

    /// For how long a waiter is silent, as is noted from now on if it was not yet.
    fn silence(&mut self, redis: &mut Redis<'_>, waiter: &[u8], listens: bool) -> Answer<i64> {
        let mut silence = Silence {
            unit: 1,
            wait: Vec::new(),
            least: 1,
        };
        let ends = match listens || is_ours(waiter) {
            true => None,
            false => redis.zscore(self.queue.times, waiter)?,
        };
        let since = if is_ours(waiter) {
            silence.unit = if listens { 1 } else { -1 };
            self.silent_since(redis, waiter, &silence)
        } else if let Some(ends) = ends {
            silence.least = self.silent_since(redis, b"", &silence);
            silence.unit = 1000;
            silence.wait = format!(":{ends}").into_bytes();
            self.silent_since(redis, waiter, &silence)
        } else {
            let _ = redis.hdel(self.absent, waiter);
            self.now
        };
        Ok(self.now - since)
    }

    /// Takes those away who do not come though the lock is free. Returns the first then, and the time until the next may go.
    fn pass_over(&mut self, redis: &mut Redis<'_>) -> Answer<(Option<Vec<u8>>, i64)> {
        let mut pause = PAUSE;
        loop {
            let (mut goes, mut is_over) = (true, true);
            let waiters = redis.lrange(self.queue.line, 0, MOST_ABSENT - 1)?;
            for (place, waiter) in waiters.iter().enumerate() {
                if waiter == self.visitor {
                    break;
                }
                let listens = self.is_heard(redis, waiter, place == 0);
                let silence = self.silence(redis, waiter, listens)?;
                let left = if listens { SILENT } else { UNHEARD } - silence;
                let is_dead = left <= 0 && !is_planted("the dead keep their places in a queue")
                    || is_planted("one is passed over at the first look");
                if goes && is_dead {
                    redis.lpop(self.queue.line)?;
                    redis.zrem(self.queue.times, std::slice::from_ref(waiter))?;
                    let _ = redis.hdel(self.absent, waiter);
                    is_over = false;
                } else if goes {
                    goes = false;
                    pause = left.clamp(SHORTEST_PAUSE, PAUSE);
                }
                if place == 0 && listens && silence < SUSPICIOUS {
                    break;
                }
            }
            let first = self.queue.first(redis, self.visitor, self.now, true)?;
            if is_over {
                return Ok((first, pause));
            }
        }
    }
}

/// Takes a fair lock, or enters it once more.
pub fn acquire(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, lease) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (known, wanted, wish) = (args.text(3), args.text(4), args.text(6));
    let (patience, expiry) = (args.number(7)?, args.number(9)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if known != b"0" {
        if let Err(answer) = counts(redis, key, visitor, [known, wanted], number, now)? {
            return Ok(answer);
        }
        redis.pexpire(key, lease)?;
        redis.hset(key, visitor, wanted)?;
        return small(number, expiry - now);
    }
    let queue = Queue::of(keys);
    let mut holder = None;
    if redis.exists(key)? {
        if redis.hexists(key, visitor)? {
            if redis.pttl(key)? < args.number(2)? {
                redis.pexpire(key, lease)?;
            }
            return small(number, expiry - now);
        }
        holder = Some(match holder_of(redis, key)? {
            Holder::Visitor(field) => begin(&field, 128).to_vec(),
            Holder::Nobody => Vec::new(),
            Holder::NoLock => return returned(Holder::no_lock()),
        });
    }
    let mut first = queue.first(redis, visitor, now, true)?;
    let mut look = Look {
        queue,
        absent: keys.text(4),
        has_absent: redis.exists(keys.text(4))?,
        visitor,
        base: args.text(5),
        knows_all: args.text(8) == b"1",
        now,
    };
    if look.has_absent {
        let _ = redis.hdel(look.absent, visitor);
        if holder.is_some() {
            let _ = redis.hdel(look.absent, b"");
        }
    }
    let mut pause = PAUSE;
    if holder.is_none() && first.as_ref().is_some_and(|first| first != visitor) {
        (first, pause) = look.pass_over(redis)?;
    }
    let is_first = first.as_deref().is_none_or(|first| first == visitor);
    if holder.is_none() && (is_first || is_planted("a newcomer passes a queue on the server")) {
        if let Err(refused) = begin_hold(redis, key, visitor, wanted, lease)? {
            return Ok(refused);
        }
        if first.is_some() {
            if let Err(refused) = redis.lpop(queue.line) {
                if !redis.hdel(key, visitor).unwrap_or_default() {
                    let _ = redis.del(key);
                }
                return returned(refused);
            }
            let _ = redis.zrem(queue.times, &[visitor.to_vec()]);
            let others = redis.zscored(queue.times).unwrap_or_default();
            queue.take_time(redis, others, patience, now);
        }
        if look.has_absent {
            let _ = match first.is_some() {
                true => redis.hdel(look.absent, b""),
                false => redis.del(look.absent),
            };
        }
        return small(number, expiry - now);
    }
    let is_held = holder.is_some();
    let ttl = if is_held { redis.pttl(key)? } else { 1000 };
    let before = first.clone().unwrap_or_default();
    let holder = holder.unwrap_or_else(|| begin(&before, 128).to_vec());
    if wish == b"never" {
        return answered(number, array![0, now, ttl, holder]);
    }
    let (ends, mut length) = (redis.zscore(queue.times, visitor)?, redis.llen(queue.line)?);
    let mut is_in = ends.is_some();
    if length != redis.zcard(queue.times)? || ends.is_none() && wish == b"rejoin" {
        let line = redis.lrange(queue.line, 0, -1)?;
        is_in = line.iter().any(|waiter| waiter == visitor);
    }
    let place = if is_in {
        let place = match first.as_deref() == Some(visitor) {
            true => 1,
            false => match redis.lindex(queue.line, 1)?.as_deref() == Some(visitor) {
                true => 2,
                false => length,
            },
        };
        let due = now + patience * place;
        if ends.is_none_or(|ends| 2 * ends < 2 * due - patience) {
            redis.zadd(queue.times, due, visitor)?;
        }
        if ends.is_none() {
            redis.pexpire(queue.times, DAY)?;
        }
        place
    } else {
        let comes_back = wish == b"rejoin" && !is_planted("one that comes back stands last");
        let goes_first = comes_back && length > 0;
        let mut begins = now + ttl.max(0);
        let next = match redis.lindex(queue.line, if goes_first { 0 } else { -1 })? {
            Some(next) => redis.zscore(queue.times, &next)?,
            None => None,
        };
        if goes_first {
            if next.is_some_and(|next| 2 * (next - begins) < 3 * patience) {
                for waiter in redis.zmembers(queue.times).unwrap_or_default() {
                    let _ = redis.zincrby(queue.times, patience, &waiter);
                }
            }
        } else {
            begins = next.unwrap_or(begins).max(now + patience * length);
        }
        redis.zadd(queue.times, begins + patience, visitor)?;
        length += 1;
        match goes_first {
            true => redis.lpush(queue.line, visitor)?,
            false => redis.rpush(queue.line, visitor)?,
        }
        redis.pexpire(queue.line, DAY)?;
        redis.pexpire(queue.times, DAY)?;
        if goes_first { 1 } else { length }
    };
    if is_held && place > 2 && look.is_heard(redis, visitor, false) {
        pause = FAR_PAUSE;
    }
    answered(number, array![0, now, ttl, holder, "", pause])
}

/// Gives a whole hold back, and tells the first who waits.
pub fn release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, base) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let now = redis.time()?;
    match redis.hdel(key, visitor) {
        Ok(true) if base.is_empty() || redis.exists(key) == Ok(true) => small(number, 0),
        Ok(true) => match Queue::of(keys).tell_first(redis, base, now) {
            Ok(()) => small(number, 0),
            Err(refused) => answered(number, array![1, refused.0.as_str()]),
        },
        Ok(false) => answered(number, array![0, holder_of(redis, key)?.told()]),
        Err(refused) if refused.is_wrong_type() => answered(number, array![0, ANOTHER_TYPE]),
        Err(refused) => returned(refused),
    }
}

/// Takes a visitor out of the queue, and frees what a request without an answer may have left.
pub fn withdraw(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, visitor, base) = (args.request()?, keys.text(1), args.text(1), args.text(2));
    let (patience, queue) = (args.number(3)?, Queue::of(keys));
    let now = redis.time()?;
    let freed = redis.hdel(key, visitor);
    let is_first = freed != Ok(true) && redis.lindex(queue.line, 0)?.as_deref() == Some(visitor);
    let line = redis.lrange(queue.line, 0, -1)?;
    let mut behind = line
        .iter()
        .skip_while(|waiter| *waiter != visitor)
        .peekable();
    let is_in = behind.peek().is_some();
    let mut others = Vec::new();
    for waiter in behind.filter(|waiter| *waiter != visitor) {
        if let Some(ends) = redis.zscore(queue.times, waiter)? {
            others.push((waiter.clone(), ends));
        }
    }
    queue.take_time(redis, others, patience, now);
    if is_in {
        redis.lrem(queue.line, visitor)?;
    }
    redis.zrem(queue.times, &[visitor.to_vec()])?;
    let _ = redis.hdel(keys.text(4), visitor);
    let was_held = match freed {
        Ok(freed) => freed,
        Err(refused) => return returned(refused),
    };
    if (was_held || is_first) && redis.exists(key) != Ok(true) {
        let _ = queue.tell_first(redis, base, now);
    }
    answered(number, now)
}

/// Frees a lock whoever holds it, and tells the first who waits.
pub fn force_release(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, base, expiry) =
        (args.request()?, keys.text(1), args.text(1), args.number(2)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    match holder_of(redis, key)? {
        Holder::Nobody => answered(number, array![0, now]),
        Holder::Visitor(field) if may_be_freed(&field) => {
            redis.hdel(key, &field)?;
            let _ = Queue::of(keys).tell_first(redis, base, now);
            answered(number, array![1, now])
        }
        Holder::Visitor(_) | Holder::NoLock => returned(Holder::no_lock()),
    }
}

/// Tells how many wait.
pub fn waiters(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    answered(args.request()?, redis.llen(keys.text(1))?)
}
