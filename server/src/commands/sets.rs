//! Commands for sets.

use std::collections::BTreeSet;

use super::{Answer, Execution};
use crate::reply::Reply;

pub(super) type Set = BTreeSet<Vec<u8>>;

impl Execution<'_> {
    fn set(&self, key: &[u8]) -> Answer<Set> {
        Ok(self.read::<Set>(key)?.cloned().unwrap_or_default())
    }

    fn has(&self, key: &[u8], member: &[u8]) -> Answer<bool> {
        Ok(self
            .read::<Set>(key)?
            .is_some_and(|members| members.contains(member)))
    }
}

fn told(members: Set) -> Reply {
    Reply::Array(members.into_iter().map(Reply::Bulk).collect())
}

pub(super) fn sadd(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.edit(args[0], |members: &mut Set| {
        let added = args[1..].iter().filter(|it| members.insert(it.to_vec()));
        Ok(added.count().into())
    })
}

pub(super) fn srem(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.edit(args[0], |members: &mut Set| {
        let removed = args[1..].iter().filter(|it| members.remove(**it));
        Ok(removed.count().into())
    })
}

pub(super) fn scard(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.read::<Set>(args[0])?.map_or(0, BTreeSet::len).into())
}

pub(super) fn smembers(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.set(args[0]).map(told)
}

pub(super) fn sismember(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.has(args[0], args[1])?.into())
}

pub(super) fn smismember(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let found = args[1..]
        .iter()
        .map(|member| Ok(on.has(args[0], member)?.into()));
    Ok(Reply::Array(found.collect::<Answer<_>>()?))
}

pub(super) fn join(
    on: &mut Execution<'_>,
    keys: &[&[u8]],
    joined: fn(Set, &Set) -> Set,
) -> Answer<Reply> {
    let mut members = on.set(keys[0])?;
    for key in &keys[1..] {
        members = joined(members, &on.set(key)?);
    }
    Ok(told(members))
}
