//! Mutual exclusion: the effect of each reply to a script of a lock on the holds.

use redlatch_server_checks::{Keyspace, Reply};

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
    let lasting = |at: usize, count: i64| lasting(seen, int(seen.call, at), count);
    match operation {
        "acquire" | "read" | "write" => acquired(seen, holds, last_token)?,
        "release" if answer.is_done() => {
            holds.remove(&visitor);
        }
        "release" if answer.code() == Some(0) => is_gone(holds, &visitor, now)?,
        // An error may follow the deletion.
        "withdraw"
            if !answer.is_error()
                || kept_until(seen.kind, seen.name, &visitor, seen.after).is_none() =>
        {
            holds.remove(&visitor);
        }
        "force_release" if answer.code() == Some(1) => holds.clear(),
        "transfer" if answer.code() == Some(1) => {
            if holds.remove(&visitor).is_some() {
                holds.insert(args[1].clone(), lasting(2, 1));
            } else if !holds.contains_key(&args[1]) {
                return Err(format!("{visitor} handed over a hold that it has not"));
            }
            token_rises(seen, last_token, 3)?;
        }
        "transfer" if answer.code() == Some(2) => {
            is_gone(holds, &visitor, now)?;
            is_gone(holds, &args[1], now)?;
        }
        "release_level" if answer.is_done() => {
            let (known, wanted) = (int(seen.call, 2), int(seen.call, 3));
            let there = fields(seen.after, seen.name).remove(&visitor);
            let there = there.and_then(|it| it.parse().ok());
            let Some(had) = holds.remove(&visitor) else {
                return Err("a level of no hold".to_owned());
            };
            // A server at `maxmemory` refuses the count but still releases the level.
            if there != Some(wanted) && (seen.is_calm || there != Some(known)) {
                return Err(format!("{visitor} has the count {there:?} after a level"));
            }
            let hold = Hold {
                inside: had.inside,
                ..lasting(1, there.unwrap_or(wanted))
            };
            holds.insert(visitor, hold);
        }
        "release_level" if answer.code() == Some(2) => is_gone(holds, &visitor, now)?,
        "release_level" if answer.is_error() => adjust(seen, holds, &visitor, int(seen.call, 1)),
        "renew" => renewed(seen, holds, is_side)?,
        "guarded" if answer.code() == Some(1) && !holds.contains_key(&visitor) => {
            return Err("a write without a hold".to_owned());
        }
        _ => {}
    }
    Ok(())
}

/// A hold from now on.
fn lasting(seen: &Seen<'_>, lease: i64, count: i64) -> Hold {
    let latest = (seen.now + lease).min(922_337_203_685_477);
    Hold {
        // In the ms of its end a side is free for the other side.
        end: latest - i64::from(seen.kind == "read-write"),
        latest,
        count,
        inside: String::new(),
    }
}

/// A request whose count was refused after its lease was set. A shorter hold lasts at least as long as that lease. The
/// server keeps a longer one, which its client does not know.
fn adjust(seen: &Seen<'_>, holds: &mut Holds, visitor: &str, lease: i64) {
    if let Some(hold) = holds.get_mut(visitor)
        && let Some(kept) = kept_until(seen.kind, seen.name, visitor, seen.after)
    {
        if kept < hold.end {
            hold.end = hold.end.min(seen.now + lease);
        }
        hold.latest = hold.latest.max(kept);
    }
}

/// A hold that the server has removed must not be valid.
fn is_gone(holds: &Holds, visitor: &str, now: i64) -> Result<(), String> {
    match holds.get(visitor).filter(|hold| hold.is_valid(now)) {
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
    let had = holds.get(visitor).cloned();
    match seen.answer.code() {
        _ if seen.answer.is_done() => {}
        Some(2) => return is_gone(holds, visitor, now),
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
            // An entry that cannot get a TTL must not stay.
            let is_left =
                |keys: &Keyspace| kept_until(seen.kind, seen.name, visitor, keys).is_some();
            return match is_left(seen.after) && !is_left(seen.before) {
                true => Err("a refused request left a hold".to_owned()),
                false => Ok(()),
            };
        }
        None if known != 0 => {
            adjust(seen, holds, visitor, lease);
            return Ok(());
        }
        _ => return Ok(()),
    }
    if known != 0 && had.is_none() {
        return Err(format!("{visitor} entered a hold that is gone"));
    }
    let is_reader =
        seen.call.script == "read_write/acquire" && !seen.call.args[0].ends_with(":write");
    let inside = match &had {
        Some(had) => had.inside.clone(),
        None if is_reader => seen.call.args[4].clone(),
        None => String::new(),
    };
    let was_valid = had.as_ref().is_some_and(|had| had.is_valid(now));
    let excludes = |(other, hold): &(&String, &Hold)| {
        let is_apart = *other != visitor && hold.inside != *visitor && **other != inside;
        !was_valid && hold.is_valid(now) && is_apart && (!is_reader || other.ends_with(":write"))
    };
    if let Some((other, _)) = holds.iter().find(excludes) {
        return Err(format!("{visitor} and {other} hold it at the same time"));
    }
    let is_copy = known == 0 && had.is_some();
    let shortens = !(seen.kind == "read-write" || seen.kind == "fair" && is_copy);
    let mut hold = lasting(seen, lease, wanted);
    hold.inside = inside;
    if let Some(had) = had.as_ref().filter(|_| !shortens) {
        (hold.end, hold.latest) = (hold.end.max(had.end), hold.latest.max(had.latest));
    }
    let count = match &had {
        Some(had) if is_copy => had.count,
        _ => wanted,
    };
    hold.count = count;
    holds.insert(visitor.clone(), hold);
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
    let had = holds.get(visitor).cloned();
    let was_noted = kept_until(seen.kind, seen.name, visitor, seen.before).is_some();
    if !was_noted && number(seen.after, seen.name).is_none_or(|free| free < 0) {
        return Err("permits were taken that are not there".to_owned());
    }
    // In the ms of its end a permit is free for other clients.
    let end = (seen.now + lease).min(922_337_203_685_477) - 1;
    let end = match had {
        // A repeated request does not change the end of an id.
        Some(had) if seen.kind == "permit ids" => had.end,
        None if seen.kind == "permit ids" && was_noted => return Ok(()),
        Some(had) => had.end.max(end),
        None => end,
    };
    let end = end.min(last_of(seen.after, seen.name));
    let hold = Hold {
        end,
        latest: end,
        count: 1,
        inside: String::new(),
    };
    holds.insert(visitor.to_owned(), hold);
    Ok(())
}

/// The last ms at which permits of a semaphore are valid: its records end slightly earlier.
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
            Some(_) if !is_renewed => return is_gone(holds, visitor, seen.now),
            Some(hold) if is_plain || is_side => {
                let renewed = lasting(seen, lease, hold.count);
                (hold.end, hold.latest) = match is_side {
                    true => (hold.end.max(renewed.end), hold.latest.max(renewed.latest)),
                    false => (renewed.end, renewed.latest),
                };
            }
            Some(hold) => {
                let end = (seen.now + lease).min(922_337_203_685_477) - 1;
                hold.end = end.min(last_of(seen.after, seen.name));
                hold.latest = hold.end;
            }
            // Permits whose lease has ended return, unless no client has queried since.
            None if is_renewed && is_plain => {
                return Err(format!("{visitor} renewed a hold that is gone"));
            }
            None => {}
        }
    }
    Ok(())
}

/// The token of a grant is above all earlier ones.
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

/// Each valid hold is in the keys until its end, and no two exclude each other.
pub(crate) fn are_whole(
    kind: &str,
    name: &str,
    holds: &Holds,
    keys: &Keyspace,
    now: i64,
) -> Result<(), String> {
    for (visitor, hold) in holds.iter().filter(|(_, hold)| hold.is_valid(now)) {
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
