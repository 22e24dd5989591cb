//! Commands for lists.

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

/// LPUSHX and RPUSHX, where `begins` is false, create no list.
pub(super) fn push(
    on: &mut Execution<'_>,
    args: &[&[u8]],
    is_left: bool,
    begins: bool,
) -> Answer<Reply> {
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

fn take(items: &mut Items, is_left: bool) -> Option<Vec<u8>> {
    match is_left {
        true if items.is_empty() => None,
        true => Some(items.remove(0)),
        false => items.pop(),
    }
}

pub(super) fn pop(on: &mut Execution<'_>, args: &[&[u8]], is_left: bool) -> Answer<Reply> {
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
