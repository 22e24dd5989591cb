//! Commands for sorted sets.

use std::ops::Range;

use super::ranges::{Scores, places};
use super::{Answer, Execution, Refused, Sorted};
use crate::keyspace::Score;
use crate::number::{self, count, double, integer};
use crate::reply::Reply;

fn find(members: &Sorted, member: &[u8]) -> Option<usize> {
    members.iter().position(|(name, _)| name == member)
}

fn put(members: &mut Sorted, member: &[u8], score: Score) {
    if let Some(before) = find(members, member) {
        members.remove(before);
    }
    let at = members.partition_point(|(name, than)| (*than, &**name) < (score, member));
    members.insert(at, (member.to_vec(), score));
}

fn told_score(score: Score) -> Reply {
    Reply::text(number::score(score.get()))
}

fn score_in(text: &[u8]) -> Answer<f64> {
    double(text).ok_or_else(|| Refused::new("ERR value is not a valid float"))
}

fn sum(before: f64, by: f64) -> Answer<Score> {
    let score = Score::new(before + by);
    score.ok_or_else(|| Refused::new("ERR resulting score is not a number (NaN)"))
}

impl Execution<'_> {
    fn score(&self, key: &[u8], member: &[u8]) -> Answer<Option<Score>> {
        let members = self.read::<Sorted>(key)?;
        Ok(members.and_then(|members| Some(members[find(members, member)?].1)))
    }

    fn members(&self, key: &[u8]) -> Answer<&[(Vec<u8>, Score)]> {
        Ok(self.read::<Sorted>(key)?.map_or(&[], |members| members))
    }
}

#[derive(Default)]
struct Adding {
    only_new: bool,
    only_old: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    increments: bool,
}

impl Adding {
    fn read(args: &[&[u8]]) -> Answer<(Adding, usize)> {
        let mut adding = Adding::default();
        let mut count = 0;
        for option in args {
            let option = match option.to_ascii_uppercase().as_slice() {
                b"NX" => &mut adding.only_new,
                b"XX" => &mut adding.only_old,
                b"GT" => &mut adding.only_greater,
                b"LT" => &mut adding.only_less,
                b"CH" => &mut adding.counts_changes,
                b"INCR" => &mut adding.increments,
                _ => break,
            };
            *option = true;
            count += 1;
        }
        let pairs = args.len() - count;
        if pairs == 0 || pairs % 2 == 1 {
            return Err(Refused::syntax());
        }
        let Adding {
            only_new,
            only_old,
            only_greater,
            only_less,
            ..
        } = adding;
        let text = match () {
            () if only_new && only_old => "XX and NX options at the same time are not compatible",
            () if (only_new || only_less) && only_greater || only_new && only_less => {
                "GT, LT, and/or NX options at the same time are not compatible"
            }
            () if adding.increments && pairs > 2 => {
                "INCR option supports a single increment-element pair"
            }
            () => return Ok((adding, count)),
        };
        Err(Refused(format!("ERR {text}")))
    }

    /// Returns the new score of a member. `None` to change nothing.
    fn of(&self, before: Option<Score>, given: f64) -> Answer<Option<Score>> {
        let score = match before {
            None if self.only_old => return Ok(None),
            Some(_) if self.only_new => return Ok(None),
            Some(before) if self.increments => sum(before.get(), given)?,
            _ => sum(0.0, given)?,
        };
        let is_meant = before.is_none_or(|before| {
            (!self.only_greater || score > before) && (!self.only_less || score < before)
        });
        Ok(is_meant.then_some(score))
    }
}

pub(super) fn zadd(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (adding, options) = Adding::read(&args[1..])?;
    let pairs = args[1 + options..].chunks_exact(2);
    let pairs = pairs.map(|pair| Ok((score_in(pair[0])?, pair[1])));
    let pairs = pairs.collect::<Answer<Vec<_>>>()?;
    on.edit(args[0], |members: &mut Sorted| {
        let (mut added, mut changed, mut last) = (0_usize, 0_usize, None);
        for (given, member) in pairs {
            let before = find(members, member).map(|at| members[at].1);
            last = adding.of(before, given)?;
            let Some(score) = last else {
                continue;
            };
            added += usize::from(before.is_none());
            changed += usize::from(before != Some(score));
            if before != Some(score) {
                put(members, member, score);
            }
        }
        Ok(match (adding.increments, adding.counts_changes) {
            (true, _) => last.map_or(Reply::Nil, told_score),
            (false, true) => changed.into(),
            (false, false) => added.into(),
        })
    })
}

pub(super) fn zincrby(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let by = score_in(args[1])?;
    on.edit(args[0], |members: &mut Sorted| {
        let before = find(members, args[2]).map_or(0.0, |at| members[at].1.get());
        let score = sum(before, by)?;
        put(members, args[2], score);
        Ok(told_score(score))
    })
}

pub(super) fn zrem(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.edit(args[0], |members: &mut Sorted| {
        let before = members.len();
        members.retain(|(name, _)| !args[1..].contains(&&**name));
        Ok((before - members.len()).into())
    })
}

pub(super) fn zscore(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.score(args[0], args[1])?.map_or(Reply::Nil, told_score))
}

pub(super) fn zmscore(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let scores = args[1..].iter().map(|member| on.score(args[0], member));
    let scores = scores.map(|score| Ok(score?.map_or(Reply::Nil, told_score)));
    Ok(Reply::Array(scores.collect::<Answer<_>>()?))
}

pub(super) fn zcard(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.members(args[0])?.len().into())
}

pub(super) fn zcount(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let scores = Scores::read(args[1], args[2])?;
    let members = on.read::<Sorted>(args[0])?;
    Ok(members
        .map_or(0, |members| scores.places(members).len())
        .into())
}

pub(super) fn rank(on: &mut Execution<'_>, args: &[&[u8]], is_reverse: bool) -> Answer<Reply> {
    let Some(members) = on.read::<Sorted>(args[0])? else {
        return Ok(Reply::Nil);
    };
    Ok(match find(members, args[1]) {
        None => Reply::Nil,
        Some(at) if is_reverse => (members.len() - 1 - at).into(),
        Some(at) => at.into(),
    })
}

/// Executes ZRANGE, ZRANGEBYSCORE, ZREVRANGE and ZREVRANGEBYSCORE.
pub(super) fn range(
    on: &mut Execution<'_>,
    args: &[&[u8]],
    has_all: bool,
    mut by_score: bool,
    mut is_reverse: bool,
) -> Answer<Reply> {
    let (mut has_scores, mut limit) = (false, None);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"WITHSCORES" => has_scores = true,
            b"LIMIT" if has_all || by_score => match (options.next(), options.next()) {
                (Some(offset), Some(count)) => {
                    limit = Some((integer(offset)?, integer(count)?));
                }
                _ => return Err(Refused::syntax()),
            },
            b"REV" if has_all => is_reverse = true,
            b"BYSCORE" if has_all => by_score = true,
            b"BYLEX" if has_all => return Err(Refused::new("ERR BYLEX is not supported")),
            _ => return Err(Refused::syntax()),
        }
    }
    if limit.is_some() && !by_score {
        let text =
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(Refused::new(text));
    }
    let found = match by_score {
        true => {
            let (least, most) = if is_reverse {
                (args[2], args[1])
            } else {
                (args[1], args[2])
            };
            let scores = Scores::read(least, most)?;
            let members = on.read::<Sorted>(args[0])?;
            members.map_or(&[][..], |members| &members[scores.places(members)])
        }
        false => {
            let (first, last) = (integer(args[1])?, integer(args[2])?);
            let members = on.members(args[0])?;
            &members[ranked(members.len(), first, last, is_reverse)]
        }
    };
    let (offset, count) = limit.unwrap_or((0, -1));
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let told = |(name, score): &(Vec<u8>, Score)| {
        let score = has_scores.then(|| told_score(*score));
        [Some(Reply::text(name)), score].into_iter().flatten()
    };
    let mut found: Vec<_> = found.iter().collect();
    if is_reverse {
        found.reverse();
    }
    let found = found.into_iter().skip(offset).take(count);
    Ok(Reply::Array(found.flat_map(told).collect()))
}

/// Returns the indices of a range of ranks. If reversed, ranks count from the end.
fn ranked(length: usize, first: i64, last: i64, is_reverse: bool) -> Range<usize> {
    let found = places(length, first, last);
    match is_reverse {
        true => length - found.end..length - found.start,
        false => found,
    }
}

fn remove(
    on: &mut Execution<'_>,
    key: &[u8],
    places: impl FnOnce(&Sorted) -> Range<usize>,
) -> Answer<Sorted> {
    on.edit(key, |members: &mut Sorted| {
        let places = places(members);
        Ok(members.drain(places).collect())
    })
}

pub(super) fn zremrangebyscore(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let scores = Scores::read(args[1], args[2])?;
    Ok(remove(on, args[0], |members| scores.places(members))?
        .len()
        .into())
}

pub(super) fn zremrangebyrank(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (first, last) = (integer(args[1])?, integer(args[2])?);
    Ok(
        remove(on, args[0], |members| places(members.len(), first, last))?
            .len()
            .into(),
    )
}

pub(super) fn pop(on: &mut Execution<'_>, args: &[&[u8]], is_reverse: bool) -> Answer<Reply> {
    let most = args.get(1).map_or(Ok(1), |most| count(most))?;
    let mut gone = remove(on, args[0], |members| {
        let count = most.min(members.len());
        if is_reverse {
            members.len() - count..members.len()
        } else {
            0..count
        }
    })?;
    if is_reverse {
        gone.reverse();
    }
    let told = gone
        .into_iter()
        .flat_map(|(name, score)| [Reply::Bulk(name), told_score(score)]);
    Ok(Reply::Array(told.collect()))
}
