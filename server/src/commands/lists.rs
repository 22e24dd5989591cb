//! The commands for lists.

use super::options::is;
use super::ranges::{place, places};
use super::{Answer, Execution, Refused};
use crate::number::{count, integer};
use crate::reply::Reply;

type Items = Vec<Vec<u8>>;

pub(super) fn llen(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.read::<Items>(args[0])?.map_or(0, Vec::len).into())
}

pub(super) fn lindex(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let Some(items) = on.read::<Items>(args[0])? else {
        return Ok(Reply::Nil);
    };
    let at = place(items.len(), integer(args[1])?);
    Ok(at.and_then(|at| items.get(at).cloned()).into())
}

pub(super) fn lrange(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (first, last) = (integer(args[1])?, integer(args[2])?);
    let items = on.read::<Items>(args[0])?.map_or(&[][..], |items| items);
    Ok(items[places(items.len(), first, last)].to_vec().into())
}

fn push(on: &mut Execution<'_>, args: &[&[u8]], is_left: bool, begins: bool) -> Answer<Reply> {
    on.edit(args[0], |items: &mut Items| {
        if begins || !items.is_empty() {
            for item in &args[1..] {
                let at = if is_left { 0 } else { items.len() };
                items.insert(at, item.to_vec());
            }
        }
        Ok(items.len().into())
    })
}

pub(super) fn lpush(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    push(on, args, true, true)
}

pub(super) fn rpush(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    push(on, args, false, true)
}

pub(super) fn lpushx(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    push(on, args, true, false)
}

pub(super) fn rpushx(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    push(on, args, false, false)
}

/// Takes an item off an end of a list.
fn take(items: &mut Items, is_left: bool) -> Option<Vec<u8>> {
    match is_left {
        true if items.is_empty() => None,
        true => Some(items.remove(0)),
        false => items.pop(),
    }
}

fn pop(on: &mut Execution<'_>, args: &[&[u8]], is_left: bool) -> Answer<Reply> {
    let Some(most) = args.get(1) else {
        let item = on.edit(args[0], |items: &mut Items| Ok(take(items, is_left)))?;
        return Ok(item.into());
    };
    let most = count(most)?;
    if on.read::<Items>(args[0])?.is_none() {
        return Ok(Reply::NilArray);
    }
    on.edit(args[0], |items: &mut Items| {
        let count = most.min(items.len());
        let taken: Items = (0..count).filter_map(|_| take(items, is_left)).collect();
        Ok(taken.into())
    })
}

pub(super) fn lpop(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    pop(on, args, true)
}

pub(super) fn rpop(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    pop(on, args, false)
}

fn carry(
    on: &mut Execution<'_>,
    [from, to]: [&[u8]; 2],
    is_left: bool,
    to_left: bool,
) -> Answer<Reply> {
    if on.read::<Items>(from)?.is_none() {
        return Ok(Reply::Nil);
    }
    // Before anything is taken away.
    on.read::<Items>(to)?;
    let Some(item) = on.edit(from, |items: &mut Items| Ok(take(items, is_left)))? else {
        return Ok(Reply::Nil);
    };
    push(on, &[to, &item], to_left, true)?;
    Ok(Reply::Bulk(item))
}

pub(super) fn rpoplpush(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    carry(on, [args[0], args[1]], false, true)
}

pub(super) fn lmove(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let is_left = |side: &[u8]| match (is(side, "LEFT"), is(side, "RIGHT")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(Refused::syntax()),
    };
    let (from, to) = (is_left(args[2])?, is_left(args[3])?);
    carry(on, [args[0], args[1]], from, to)
}

pub(super) fn lset(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    if on.entry(args[0]).is_none() {
        return Err(Refused::new("ERR no such key"));
    }
    on.edit(args[0], |items: &mut Items| {
        let at = place(items.len(), integer(args[1])?);
        let item = at.and_then(|at| items.get_mut(at));
        *item.ok_or_else(|| Refused::new("ERR index out of range"))? = args[2].to_vec();
        Ok(Reply::OK)
    })
}

pub(super) fn lrem(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let count = integer(args[1])?;
    let mut left = match count {
        0 => usize::MAX,
        count => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    on.edit(args[0], |items: &mut Items| {
        let before = items.len();
        let mut keeps = |item: &Vec<u8>| {
            let goes = item == args[2] && left > 0;
            left -= usize::from(goes);
            !goes
        };
        if count < 0 {
            items.reverse();
            items.retain(&mut keeps);
            items.reverse();
        } else {
            items.retain(&mut keeps);
        }
        Ok((before - items.len()).into())
    })
}

pub(super) fn ltrim(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (first, last) = (integer(args[1])?, integer(args[2])?);
    on.edit(args[0], |items: &mut Items| {
        let kept = places(items.len(), first, last);
        items.truncate(kept.end);
        items.drain(..kept.start);
        Ok(Reply::OK)
    })
}

pub(super) fn linsert(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let behind = match (is(args[1], "BEFORE"), is(args[1], "AFTER")) {
        (true, _) => 0,
        (_, true) => 1,
        _ => return Err(Refused::syntax()),
    };
    on.edit(args[0], |items: &mut Items| {
        if items.is_empty() {
            return Ok(Reply::Int(0));
        }
        let Some(at) = items.iter().position(|item| item == args[2]) else {
            return Ok(Reply::Int(-1));
        };
        items.insert(at + behind, args[3].to_vec());
        Ok(items.len().into())
    })
}
