//! Mutual exclusion: what each reply to a script of a lock means for the holds.

use redlatch_spec::{Keyspace, Reply};

use super::ledger::{Hold, Holds, entry, fields, int, kept_until, number};
use super::world::{Answer, Seen};

/// Follows one request, and checks the holds after it.
pub(crate) fn follow(
    seen: &Seen<'_>,
    holds: &mut Holds,
    last_token: &mut i64,
) -> Result<(), String> {
    let (args, answer, now) = (&seen.call.args, seen.answer, seen.now);
    let (_, operation) = seen
        .call
        .script
        .rsplit_once('/')
        .unwrap_or(("", seen.call.script));
    let is_side = seen.kind == "read-write";
    let visitor = args.first().cloned().unwrap_or_default();
    let end = |at: usize| (now + int(seen.call, at)).min(922_337_203_685_477);
    match operation {
        "acquire" | "read" | "write" => acquired(seen, holds, last_token)?,
        "release" if answer.is_done() => {
            holds.remove(&visitor);
        }
        "release" if answer.code() == Some(0) => is_gone(holds, &visitor)?,
        // An error may come behind the removal.
        "withdraw"
            if !answer.is_error()
                || kept_until(seen.kind, seen.name, &visitor, seen.after).is_none() =>
        {
            holds.remove(&visitor);
        }
        "force_release" if answer.code() == Some(1) => holds.clear(),
        "transfer" if answer.code() == Some(1) => {
            if holds.remove(&visitor).is_some() {
                let hold = Hold {
                    end: end(2),
                    count: 1,
                };
                holds.insert(args[1].clone(), hold);
            } else if !holds.contains_key(&args[1]) {
                return Err(format!("{visitor} handed over a hold that it has not"));
            }
            token_rises(seen, last_token, 3)?;
        }
        "transfer" if answer.code() == Some(2) => {
            is_gone(holds, &visitor)?;
            is_gone(holds, &args[1])?;
        }
        "release_level" if answer.is_done() => {
            let hold = Hold {
                end: end(1) - i64::from(is_side),
                count: int(seen.call, 3),
            };
            // A writer may be there in the ms of its end.
            if holds.insert(visitor, hold).is_none() && !is_side {
                return Err("a level of no hold".to_owned());
            }
        }
        "release_level" if answer.code() == Some(2) => is_gone(holds, &visitor)?,
        "release_level" if answer.is_error() => shorten(seen, holds, &visitor, end(1)),
        "renew" => renewed(seen, holds, is_side)?,
        "guarded" if answer.code() == Some(1) && !holds.contains_key(&visitor) => {
            return Err("a write without a hold".to_owned());
        }
        _ => {}
    }
    Ok(())
}

/// A level whose count was refused behind its lease: the hold lasts as long as that, at least.
fn shorten(seen: &Seen<'_>, holds: &mut Holds, visitor: &str, end: i64) {
    if let Some(hold) = holds.get_mut(visitor)
        && kept_until(seen.kind, seen.name, visitor, seen.after).is_some_and(|it| it < hold.end)
    {
        hold.end = hold.end.min(end);
    }
}

/// A hold that the server takes for gone must not be valid.
fn is_gone(holds: &Holds, visitor: &str) -> Result<(), String> {
    match holds.get(visitor) {
        Some(hold) => Err(format!(
            "the hold of {visitor} is gone before its end: {hold:?}"
        )),
        None => Ok(()),
    }
}

fn acquired(seen: &Seen<'_>, holds: &mut Holds, last_token: &mut i64) -> Result<(), String> {
    let (visitor, now) = (&seen.call.args[0], seen.now);
    let lease = int(seen.call, 1);
    if matches!(seen.kind, "permits" | "permit ids") {
        return permitted(seen, holds, visitor, lease);
    }
    let (known, wanted) = (int(seen.call, 2), int(seen.call, 3));
    let had = holds.get(visitor).copied();
    match seen.answer.code() {
        _ if seen.answer.is_done() => {}
        Some(2) => return is_gone(holds, visitor),
        Some(4) if seen.before != seen.after => {
            return Err("a wrong count changed something".to_owned());
        }
        Some(0) if known == 0 && matches!(seen.kind, "plain" | "fenced" | "token") => {
            let is_free = entry(seen.before, seen.name).is_none();
            return if is_free {
                Err("a free lock was refused".to_owned())
            } else {
                Ok(())
            };
        }
        None if seen.answer.is_error() && known == 0 && had.is_none() => {
            // What it cannot keep it must not leave, either.
            let is_left =
                |keys: &Keyspace| kept_until(seen.kind, seen.name, visitor, keys).is_some();
            return match is_left(seen.after) && !is_left(seen.before) {
                true => Err("a refused request left a hold".to_owned()),
                false => Ok(()),
            };
        }
        None if known != 0 => {
            shorten(seen, holds, visitor, now + lease);
            return Ok(());
        }
        _ => return Ok(()),
    }
    if known != 0 && had.is_none() && seen.kind != "read-write" {
        return Err(format!("{visitor} entered a hold that is gone"));
    }
    let inside = (seen.call.script == "read_write/read").then(|| &seen.call.args[4]);
    let excludes = |other: &&String| match inside {
        Some(inside) => had.is_none() && other.ends_with(":write") && *other != inside,
        None => had.is_none() && *other != visitor,
    };
    if let Some(other) = holds.keys().find(excludes) {
        return Err(format!("{visitor} and {other} hold it at the same time"));
    }
    let is_copy = known == 0 && had.is_some();
    let shortens = !(seen.kind == "read-write" || seen.kind == "fair" && is_copy);
    // In the ms of its end a side is free for the other one.
    let end = now + lease - i64::from(seen.kind == "read-write");
    let end = had
        .filter(|_| !shortens)
        .map_or(end, |had| had.end.max(end));
    let count = if is_copy {
        had.map_or(1, |had| had.count)
    } else {
        wanted
    };
    holds.insert(visitor.clone(), Hold { end, count });
    if seen.kind != "token" {
        let there = fields(seen.after, seen.name).remove(visitor);
        if there != Some(count.to_string()) {
            return Err(format!(
                "{visitor} has the count {there:?} in place of {count}"
            ));
        }
    }
    if known == 0 {
        token_rises(seen, last_token, 2)?;
    }
    Ok(())
}

fn permitted(seen: &Seen<'_>, holds: &mut Holds, visitor: &str, lease: i64) -> Result<(), String> {
    if !(seen.answer.is_done() || seen.answer.code() == Some(5)) {
        return Ok(());
    }
    let had = holds.get(visitor).copied();
    let was_noted = kept_until(seen.kind, seen.name, visitor, seen.before).is_some();
    if !was_noted && number(seen.after, seen.name).is_none_or(|free| free < 0) {
        return Err("permits were taken that are not there".to_owned());
    }
    // In the ms of its end a permit is free for others.
    let end = (seen.now + lease).min(922_337_203_685_477) - 1;
    let end = match had {
        // A copy changes no end of an id.
        Some(had) if seen.kind == "permit ids" => had.end,
        None if seen.kind == "permit ids" && was_noted => return Ok(()),
        Some(had) => had.end.max(end),
        None => end,
    };
    let end = end.min(last_of(seen.after, seen.name));
    holds.insert(visitor.to_owned(), Hold { end, count: 1 });
    Ok(())
}

/// The last ms at which permits of a semaphore are valid: its notes end a little before it.
fn last_of(keys: &Keyspace, name: &str) -> i64 {
    let expires = entry(keys, name).and_then(|it| it.expires);
    expires.map_or(i64::MAX, |end| end - 5)
}

fn renewed(seen: &Seen<'_>, holds: &mut Holds, is_side: bool) -> Result<(), String> {
    let Some([_, Reply::Int(1), failed @ ..]) = seen.answer.parts() else {
        return Ok(());
    };
    let is_plain = matches!(seen.kind, "plain" | "fenced" | "fair" | "token");
    let step = if is_plain { 1 } else { 2 };
    for at in 0..seen.call.keys.len() / step {
        if seen.call.keys[at * step] != seen.name {
            continue;
        }
        let (visitor, lease) = (&seen.call.args[2 * at], int(seen.call, 2 * at + 1));
        let mut pairs = failed.chunks(2);
        let what = pairs
            .find(|pair| pair[0] == Reply::Int(at as i64 + 1))
            .map(|pair| &pair[1]);
        let is_renewed = what.is_none_or(|what| matches!(what, Reply::Int(1..)));
        match holds.get_mut(visitor) {
            Some(_) if !is_renewed => return is_gone(holds, visitor),
            Some(hold) => {
                let end = (seen.now + lease).min(922_337_203_685_477);
                let end = if is_side { hold.end.max(end - 1) } else { end };
                hold.end = match is_plain || is_side {
                    true => end,
                    false => (end - 1).min(last_of(seen.after, seen.name)),
                };
            }
            // The permits of one whose lease is over come back, unless nobody has looked.
            None if is_renewed && is_plain => {
                return Err(format!("{visitor} renewed a hold that is gone"));
            }
            None => {}
        }
    }
    Ok(())
}

/// A grant of a fenced lock has a token above all before.
fn token_rises(seen: &Seen<'_>, last_token: &mut i64, at: usize) -> Result<(), String> {
    if seen.kind != "fenced" {
        return Ok(());
    }
    let key = format!("redisson_lock_token:{}", super::calls::braced(seen.name));
    let Some(Some(Reply::Int(token))) = seen.answer.parts().map(|parts| parts.get(at)) else {
        return Err(format!("a grant without a token: {:?}", seen.answer));
    };
    if *token <= *last_token || number(seen.after, &key) != Some(*token) {
        return Err(format!("the token {token} comes behind {last_token}"));
    }
    *last_token = *token;
    Ok(())
}

/// Each valid hold stands in the keys until its end, and no two exclude each other.
pub(crate) fn are_whole(
    kind: &str,
    name: &str,
    holds: &Holds,
    keys: &Keyspace,
) -> Result<(), String> {
    for (visitor, hold) in holds {
        let kept = kept_until(kind, name, visitor, keys);
        if kept.is_none_or(|kept| kept < hold.end) {
            return Err(format!(
                "{visitor} has {hold:?}, and the keys end it at {kept:?}"
            ));
        }
    }
    let is_alone = matches!(kind, "plain" | "fenced" | "fair");
    if is_alone && fields(keys, name).len() > 1 {
        return Err("two fields in a lock".to_owned());
    }
    Ok(())
}

impl Answer {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Answer::Done) || self.is_granted_with_token()
    }

    fn is_granted_with_token(&self) -> bool {
        matches!(self.parts(), Some([Reply::Int(1), ..]))
    }
}
