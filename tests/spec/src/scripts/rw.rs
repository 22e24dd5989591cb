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

/// How long a hold lasts, in ms; 0 if it is over. Redisson's readers have a time key for each level, all others one.
fn life_of(
    redis: &Redis<'_>,
    [key, prefix]: [&[u8]; 2],
    field: &Vec<u8>,
    count: &[u8],
) -> Answer<i64> {
    let levels = match is_of_redisson(field) {
        true => number_of(count).unwrap_or_default().min(MOST_LEVELS),
        false => 1,
    };
    let mut life = 0;
    for level in 1..=levels {
        let end = format!(":rwlock_timeout:{level}");
        let own = [prefix, field, end.as_bytes()].concat();
        let left = redis.pttl(&own)?;
        if left == -2 {
            // Both may be at another node.
            redis.exists(key)?;
        }
        life = life.max(left);
    }
    Ok(life)
}

/// What is known of the holds beside that of one visitor, before anything is changed.
struct Others {
    longest: i64,
    over: Vec<Vec<u8>>,
    is_written: bool,
    has_writer: bool,
}

impl Others {
    fn of(redis: &Redis<'_>, key: &[u8], prefix: &[u8], visitor: &[u8]) -> Answer<Others> {
        let mut others = Others {
            longest: 0,
            over: Vec::new(),
            is_written: false,
            has_writer: false,
        };
        for (field, count) in redis.hgetall(key)? {
            if field == b"mode" {
                others.is_written = count == b"write";
            } else if field != visitor {
                let life = life_of(redis, [key, prefix], &field, &count)?;
                others.longest = others.longest.max(life);
                match life > 0 {
                    true => others.has_writer |= writes(&field),
                    false => others.over.push(field),
                }
            }
        }
        Ok(others)
    }
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

/// The same by a write in any case, behind which a full server accepts all others.
fn prolong(redis: &mut Redis<'_>, key: &[u8], life: &[u8]) -> Answer<()> {
    let life = redis.pttl(key)?.max(number_of(life).unwrap_or_default());
    redis.pexpire(key, life.to_string().as_bytes())?;
    Ok(())
}

/// Sets the life of the hash to the longest of its holds. Returns the message for those who wait.
fn settle(redis: &mut Redis<'_>, key: &[u8], others: Others) -> Answer<Option<&'static [u8]>> {
    if others.longest <= 0 {
        redis.del(key)?;
        return Ok(Some(if others.is_written { b"1" } else { b"0" }));
    }
    let is_left = others.is_written && !others.has_writer;
    let opens = is_left && redis.hset(key, b"mode", b"read").is_ok();
    for field in others.over {
        redis.hdel(key, &field)?;
    }
    redis.pexpire(key, &text(others.longest))?;
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
    let (left, is_read) = (redis.pttl(own)?, mode.is_some_and(|mode| mode == b"read"));
    let is_shorter = is_read && left > 0 && left < lasts - LEAST_DIFFERENCE;
    let mut others = None;
    if writes(visitor) || !is_shorter || redis.hlen(key)? < 3 {
        others = Some(Others::of(redis, key, prefix_of(own, visitor), visitor)?);
    }
    if writes(visitor) && redis.hlen(key)? > 2 {
        prolong(redis, key, b"1")?;
        if let Err(refused) = redis.hset(key, b"mode", b"read") {
            return Ok(Err(refused));
        }
        others.iter_mut().for_each(|it| it.is_written = false);
    }
    redis.hdel(key, visitor)?;
    redis.del(own)?;
    let message = match others {
        Some(others) => settle(redis, key, others)?,
        None => None,
    };
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

/// So many ms a note lives at least that a reader was turned away.
const READER_NOTED: i64 = 3000;

/// Readers that were turned away are waited for at most so long, in ms.
const LONGEST_WINDOW: i64 = 500;

/// No clock that was not set notes an end so far away, in ms, nor a window twice as long as the longest.
const FARTHEST_END: i64 = 6000;

/// One that was silent for so long after that is forgotten, in ms.
const FORGOTTEN: i64 = 6000;

/// The notes on those who wait to write: the first of those who came before, and all else that is noted.
struct Notes {
    first: Option<Vec<u8>>,
    came: Option<i64>,
    others: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Notes {
    fn of(redis: &mut Redis<'_>, notes: &[u8], now: i64, before: Option<i64>) -> Notes {
        let (mut first, mut came, mut others) = (None, before, Vec::new());
        for (field, text) in redis.hgetall(notes).unwrap_or_default() {
            let Some((begun, ends)) = waiting(&text) else {
                others.push((field, text));
                continue;
            };
            let left = ends - now;
            if left < -FORGOTTEN {
                let _ = redis.hdel(notes, &field);
            } else if left > 0 && left <= FARTHEST_END && came.is_none_or(|came| begun < came) {
                (first, came) = (Some(field), Some(begun));
            }
        }
        Notes {
            first,
            came,
            others,
        }
    }

    fn other(&self, name: &[u8]) -> Option<&[u8]> {
        let mut others = self.others.iter();
        others
            .find(|(field, _)| field == name)
            .map(|(_, text)| &**text)
    }

    /// How many writers were in.
    fn phase(&self) -> i64 {
        self.other(b"phase").and_then(number_of).unwrap_or_default()
    }

    /// The two numbers that are noted under a name.
    fn pair(&self, name: &[u8]) -> Option<[i64; 2]> {
        self.other(name).and_then(pair)
    }

    /// For how long a free lock is still kept for readers, in ms.
    fn window(&self, now: i64) -> i64 {
        let ends = self.other(b"window").and_then(number_of);
        let rest = ends.unwrap_or_default() - now;
        if rest > 2 * LONGEST_WINDOW {
            0
        } else {
            rest.max(0)
        }
    }

    /// Notes that a reader was turned away that needs so long to come, behind a writer.
    fn turn_away(&self, redis: &mut Redis<'_>, notes: &[u8], need: i64, behind: i64, memo: &[u8]) {
        if need > 0 {
            let turned = self.pair(b"turned");
            let opened = self.pair(b"due").map_or(-1, |[opened, _]| opened);
            let is_told = number_of(memo).is_some_and(|told| told == behind || told > opened);
            let is_more = turned.is_none() || !is_told;
            let [longest, count] = turned.unwrap_or_default();
            if is_more || longest < need {
                let count = count + i64::from(is_more);
                let noted = format!("{},{count}", longest.max(need));
                let _ = redis.hset(notes, b"turned", noted.as_bytes());
            }
            keep_notes(redis, notes, READER_NOTED);
        }
    }

    /// Notes that a reader has come that was told to come behind a writer.
    fn has_come(&self, redis: &mut Redis<'_>, notes: &[u8], behind: i64) {
        match (self.pair(b"due"), self.pair(b"turned")) {
            (Some([opened, due]), _) if opened == behind && due > 0 => {
                let noted = format!("{opened},{}", due - 1);
                let _ = redis.hset(notes, b"due", noted.as_bytes());
                if due == 1 {
                    let _ = redis.hdel(notes, b"window");
                }
            }
            (Some([opened, _]), _) if behind < opened => {}
            (_, Some([longest, count])) if count > 1 => {
                let noted = format!("{longest},{}", count - 1);
                let _ = redis.hset(notes, b"turned", noted.as_bytes());
            }
            (_, Some(_)) => {
                let _ = redis.hdel(notes, b"turned");
            }
            (_, None) => {}
        }
    }
}

/// Two numbers between which a comma stands.
fn pair(text: &[u8]) -> Option<[i64; 2]> {
    let at = text.iter().position(|sign| *sign == b',')?;
    Some([digits(&text[..at])?, digits(&text[at + 1..])?])
}

/// A number of nothing but digits.
fn digits(text: &[u8]) -> Option<i64> {
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_digits.then(|| number_of(text)).flatten()
}

/// When a writer came that waits, and until when it counts.
fn waiting(noted: &[u8]) -> Option<(i64, i64)> {
    let at = noted.iter().position(|sign| *sign == b':')?;
    Some((digits(&noted[..at])?, digits(&noted[at + 1..])?))
}

fn keep_notes(redis: &mut Redis<'_>, notes: &[u8], life: i64) {
    let is_long = redis.pttl(notes).is_ok_and(|left| left >= life);
    if !is_long && redis.pexpire(notes, &text(life)) != Ok(true) {
        let _ = redis.del(notes);
    }
}

/// When a writer came, if it is noted.
fn came(redis: &Redis<'_>, notes: &[u8], visitor: &[u8]) -> Option<i64> {
    let noted = redis.hget(notes, visitor).ok()??;
    Some(waiting(&noted)?.0.min(redis.micros()))
}

/// Leaves the lock to readers that were turned away, behind a writer.
fn open_window(redis: &mut Redis<'_>, notes: &[u8], now: i64) {
    if let Ok(Some(turned)) = redis.hget(notes, b"turned") {
        let [need, count] = pair(&turned).unwrap_or_default();
        let phase = redis.hget(notes, b"phase").ok().flatten();
        let phase = phase.and_then(|it| digits(&it)).unwrap_or_default();
        let ends = now + need.min(LONGEST_WINDOW);
        let _ = redis.hset(notes, b"window", &text(ends));
        let _ = redis.hset(notes, b"due", format!("{phase},{count}").as_bytes());
        let _ = redis.hdel(notes, b"turned");
    }
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
    let (known, expiry) = (args.text(3), args.number(8)?);
    let (notes, memo, need) = (keys.text(3), args.text(6), args.number(7)?);
    let now = redis.time()?;
    if now > expiry {
        return answered(number, array![3, now]);
    }
    if known != b"0" {
        if let Err(answer) = counts(redis, [key, own, visitor], [known, wanted], number, now)? {
            return Ok(answer);
        }
        prolong(redis, key, lease)?;
        redis.hset(key, visitor, wanted)?;
        lengthen(redis, own, lease)?;
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
        let mut told = b"-".to_vec();
        if need > 0 {
            let noted = Notes::of(redis, notes, now, None);
            noted.turn_away(redis, notes, need, noted.phase(), memo);
            told = text(noted.phase());
        }
        let holder = holder_of_after(redis, key)?;
        return answered(number, array![0, now, holder.0, holder.1, told]);
    }
    let is_new = !redis.hexists(key, visitor)?;
    let is_asked = is_new && !is_written && memo != b"*";
    let noted = is_asked.then(|| Notes::of(redis, notes, now, None));
    if let Some(noted) = &noted {
        let behind = noted.phase() + 1;
        let waits_long = noted.came.is_some_and(|came| now * 1000 - came > PATIENCE);
        let is_kept_for_readers = mode.is_none() && noted.window(now) > 0;
        if let Some(writer) = &noted.first
            && !is_kept_for_readers
            && (memo.is_empty()
                || number_of(memo) == Some(behind)
                    && !(waits_long && redis.hkeys(key)?.iter().any(is_of_redisson)))
        {
            noted.turn_away(redis, notes, need, behind, memo);
            let told = text(behind);
            return answered(number, array![0, now, 1000, begin(writer, 128), told]);
        }
    }
    if is_written && is_new {
        let writers = [prefix_of(own, visitor), inside, FIRST_LEVEL].concat();
        if !is_over(redis, key, &writers, inside)? && !redis.exists(&writers)? {
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
        if let (Some(noted), Some(behind)) = (noted.filter(|_| need > 0), number_of(memo)) {
            noted.has_come(redis, notes, behind);
        }
        return small(number, expiry - now);
    };
    if is_new {
        let _ = redis.del(own);
        undo(redis, key, visitor, mode.is_none());
    }
    returned(refused)
}

/// A writer that waits for longer, µs, is not waited for beside readers of Redisson.
const PATIENCE: i64 = 3_000_000;

/// Whether it is a reader without the number of a hold.
#[expect(clippy::ptr_arg, reason = "the type of a found field")]
fn is_of_redisson(field: &Vec<u8>) -> bool {
    let mut parts = field.split(|sign| *sign == b':');
    let (client, thread) = (parts.next(), parts.next());
    let is_number = |it: &[u8]| !it.is_empty() && it.iter().all(u8::is_ascii_digit);
    client.is_some_and(|it| !it.is_empty())
        && thread.is_some_and(is_number)
        && parts.next().is_none()
}

/// Refuses a writer, and notes that it waits.
fn refused_writer(
    redis: &mut Redis<'_>,
    notes: &[u8],
    visitor: &[u8],
    waits: i64,
    [number, now]: [i64; 2],
    (ttl, holder): (i64, Vec<u8>),
) -> Answer<Reply> {
    if waits > 0 {
        let came = came(redis, notes, visitor).unwrap_or(redis.micros());
        let _ = redis.hset(notes, visitor, format!("{came}:{}", now + waits).as_bytes());
        keep_notes(redis, notes, 3 * waits);
    }
    answered(number, array![0, now, ttl, holder])
}

/// How long the lock lasts, and who has it, in the order in which they are asked for.
fn holder_of_after(redis: &Redis<'_>, key: &[u8]) -> Answer<(i64, Vec<u8>)> {
    Ok((redis.pttl(key)?, holder_of(redis, key)?))
}

/// Takes a lock to write, or enters it once more.
pub fn write(redis: &mut Redis<'_>, keys: Args<'_>, args: Args<'_>) -> Answer<Reply> {
    let (number, key, own) = (args.request()?, keys.text(1), keys.text(2));
    let (visitor, lease, known, wanted) = (args.text(1), args.text(2), args.text(3), args.text(4));
    let (notes, waits, expiry) = (keys.text(3), args.number(5)?, args.number(6)?);
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
            if waits >= -1 {
                let mine = (waits >= 0).then(|| came(redis, notes, visitor));
                let noted = Notes::of(redis, notes, now, mine.flatten());
                let rest = if waits >= 0 { noted.window(now) } else { 0 };
                if noted.first.is_some() || rest > 0 {
                    let ttl = if noted.first.is_some() { 1000 } else { rest };
                    let writer = noted.first.unwrap_or_default();
                    let told = (ttl, begin(&writer, 128).to_vec());
                    return refused_writer(redis, notes, visitor, waits, [number, now], told);
                }
            }
            redis.hset(key, b"mode", b"write")?;
            redis.hset(key, visitor, wanted)?;
            if let Err(refused) = redis.pexpire(key, lease) {
                undo(redis, key, visitor, true);
                return returned(refused);
            }
            if redis.exists(notes)? {
                let _ = redis.hincrby(notes, b"phase", 1);
                let _ = redis.hdel(notes, visitor);
            }
            return small(number, expiry - now);
        }
        if !redis.hexists(key, visitor)? {
            let told = holder_of_after(redis, key)?;
            return refused_writer(redis, notes, visitor, waits, [number, now], told);
        }
    } else {
        if let Err(answer) = counts(redis, [key, own, visitor], [known, wanted], number, now)? {
            return Ok(answer);
        }
        prolong(redis, key, lease)?;
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
        Ok(false) => {
            let _ = redis.del(own);
            return answered(number, array![0, holder_of(redis, key)?]);
        }
        Err(refused) if refused.is_wrong_type() => {
            return answered(number, array![0, ANOTHER_TYPE]);
        }
        Err(refused) => return returned(refused),
    }
    let now = writes(visitor).then(|| redis.time()).transpose()?;
    let message = match leave(redis, key, own, visitor)? {
        Ok(message) => message.filter(|_| !channel.is_empty()),
        Err(refused) => return returned(refused),
    };
    if let Some(now) = now {
        open_window(redis, keys.text(3), now);
    }
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
    let (now, notes) = (redis.time()?, keys.text(3));
    let mut message: Option<&[u8]> = None;
    if writes(visitor) && redis.hdel(notes, visitor) == Ok(true) {
        message = Some(b"1");
    }
    if redis.hexists(key, visitor)? {
        let told = match leave(redis, key, own, visitor)? {
            Ok(told) => told,
            Err(refused) => return returned(refused),
        };
        if writes(visitor) {
            open_window(redis, notes, now);
        }
        message = message.or(told);
    }
    if let Some(message) = message {
        let _ = redis.publish(channel, message);
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
    let mut others = None;
    if redis.exists(own)? {
        let mut it = Others::of(redis, key, prefix_of(own, visitor), visitor)?;
        it.longest = it.longest.max(number_of(lease).unwrap_or_default());
        it.has_writer |= writes(visitor);
        others = Some(it);
    }
    match redis.hset(key, visitor, wanted) {
        Err(refused) if !refused.0.contains("OOM") => return returned(refused),
        _ => {}
    }
    if let Some(others) = others {
        redis.pexpire(own, lease)?;
        settle(redis, key, others)?;
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
            if asked == b"write" {
                open_window(redis, keys.text(2), now);
            }
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
