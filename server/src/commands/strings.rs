//! Commands for strings.

use super::keys::{expire_at, with};
use super::options::{Life, Unit, is};
use super::{Answer, Execution, Refused};
use crate::keyspace::Value;
use crate::number::{integer, sum};
use crate::reply::Reply;

const OVERFLOW: &str = "ERR increment or decrement would overflow";
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The maximum length of a string, in bytes.
const LONGEST: usize = 512 * 1024 * 1024;

impl Execution<'_> {
    fn string(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        Ok(self.read::<Vec<u8>>(key)?.cloned())
    }

    fn set_string(&mut self, key: &[u8], text: Vec<u8>, life: Life) {
        let expires = match life {
            Life::Endless => None,
            Life::Kept => self.entry(key).and_then(|entry| entry.expires),
            Life::Until(end) => Some(end),
        };
        self.put(key, with(Value::String(text), expires));
    }
}

pub(super) fn get(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.string(args[0])?.into())
}

pub(super) fn getdel(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let found = on.string(args[0])?;
    if found.is_some() {
        on.put(args[0], None);
    }
    Ok(found.into())
}

pub(super) fn getset(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let found = on.string(args[0])?;
    on.set_string(args[0], args[1].to_vec(), Life::Endless);
    Ok(found.into())
}

pub(super) fn getex(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let unit = match &args[1..] {
        [] => None,
        [option] if is(option, "PERSIST") => Some(None),
        [option, _] => Some(Some(Unit::named(option).ok_or_else(Refused::syntax)?)),
        _ => return Err(Refused::syntax()),
    };
    let found = on.string(args[0])?;
    let (Some(unit), true) = (unit, found.is_some()) else {
        return Ok(found.into());
    };
    let life = unit.map(|unit| on.life("getex", unit, args[2]));
    match life.transpose()? {
        Some(Life::Until(end)) if end <= on.now() => on.put(args[0], None),
        Some(Life::Until(end)) => expire_at(on, args[0], Some(end)),
        _ => expire_at(on, args[0], None),
    }
    Ok(found.into())
}

pub(super) fn set(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (mut condition, mut gets, mut life) = (None, false, None);
    let mut options = args[2..].iter();
    while let Some(option) = options.next() {
        match (option.to_ascii_uppercase().as_slice(), Unit::named(option)) {
            (b"NX", _) if condition != Some(true) => condition = Some(false),
            (b"XX", _) if condition != Some(false) => condition = Some(true),
            (b"GET", _) => gets = true,
            (b"KEEPTTL", _) if life.is_none() => life = Some((None, &b""[..])),
            (_, Some(unit)) if life.is_none() => {
                let time = options.next().ok_or_else(Refused::syntax)?;
                life = Some((Some(unit), time));
            }
            _ => return Err(Refused::syntax()),
        }
    }
    let life = match life {
        None => Life::Endless,
        Some((None, _)) => Life::Kept,
        Some((Some(unit), time)) => on.life("set", unit, time)?,
    };
    let before = if gets { on.string(args[0])? } else { None };
    let is_meant = condition.is_none_or(|exists| exists == on.entry(args[0]).is_some());
    if is_meant {
        on.set_string(args[0], args[1].to_vec(), life);
    }
    Ok(match (gets, is_meant) {
        (true, _) => before.into(),
        (false, true) => Reply::OK,
        (false, false) => Reply::Nil,
    })
}

pub(super) fn setnx(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let is_new = on.entry(args[0]).is_none();
    if is_new {
        on.set_string(args[0], args[1].to_vec(), Life::Endless);
    }
    Ok(is_new.into())
}

pub(super) fn set_for(
    on: &mut Execution<'_>,
    command: &str,
    is_seconds: bool,
    args: &[&[u8]],
) -> Answer<Reply> {
    let life = on.life(command, Unit(is_seconds, false), args[1])?;
    on.set_string(args[0], args[2].to_vec(), life);
    Ok(Reply::OK)
}

pub(super) fn add(on: &mut Execution<'_>, key: &[u8], by: i64) -> Answer<Reply> {
    let before = on.string(key)?.map_or(Ok(0), |text| integer(&text))?;
    let sum = before
        .checked_add(by)
        .ok_or_else(|| Refused::new(OVERFLOW))?;
    on.set_string(key, sum.to_string().into_bytes(), Life::Kept);
    Ok(sum.into())
}

pub(super) fn decrby(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let by = integer(args[1])?.checked_neg();
    add(
        on,
        args[0],
        by.ok_or_else(|| Refused::new("ERR decrement would overflow"))?,
    )
}

pub(super) fn incrbyfloat(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let before = on.string(args[0])?.unwrap_or_else(|| b"0".to_vec());
    let sum = sum(&before, args[1])?;
    on.set_string(args[0], sum.clone(), Life::Kept);
    Ok(Reply::Bulk(sum))
}

pub(super) fn append(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.edit(args[0], |text: &mut Vec<u8>| {
        if text.len() + args[1].len() > LONGEST {
            return Err(Refused::new(TOO_LONG));
        }
        text.extend(args[1]);
        Ok(text.len().into())
    })
}

pub(super) fn strlen(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.read::<Vec<u8>>(args[0])?.map_or(0, Vec::len).into())
}

pub(super) fn getrange(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (first, last) = (integer(args[1])?, integer(args[2])?);
    let text = on.string(args[0])?.unwrap_or_default();
    Ok(text[super::ranges::places(text.len(), first, last)].into())
}

pub(super) fn mget(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let found = args.iter().map(|key| on.string(key).ok().flatten().into());
    Ok(Reply::Array(found.collect()))
}

pub(super) fn mset(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (pairs, []) = args.as_chunks::<2>() else {
        let text = "ERR wrong number of arguments for 'mset' command";
        return Err(Refused::new(text));
    };
    for [key, text] in pairs {
        on.set_string(key, text.to_vec(), Life::Endless);
    }
    Ok(Reply::OK)
}
