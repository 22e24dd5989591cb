//! Hash commands.

use super::{Answer, Execution, Hash, Refused};
use crate::number::{double, integer, sum};
use crate::reply::Reply;

fn find<'h>(fields: &'h Hash, field: &[u8]) -> Option<&'h Vec<u8>> {
    let mut fields = fields.iter();
    fields.find(|(name, _)| name == field).map(|(_, text)| text)
}

/// Returns whether the field is new.
fn put(fields: &mut Hash, field: &[u8], text: Vec<u8>) -> bool {
    match fields.iter_mut().find(|(name, _)| name == field) {
        Some((_, before)) => *before = text,
        None => {
            fields.push((field.to_vec(), text));
            return true;
        }
    }
    false
}

impl Execution<'_> {
    fn field(&self, key: &[u8], field: &[u8]) -> Answer<Option<&Vec<u8>>> {
        Ok(self
            .read::<Hash>(key)?
            .and_then(|fields| find(fields, field)))
    }

    fn fields(
        &self,
        key: &[u8],
        told: impl Fn(&(Vec<u8>, Vec<u8>)) -> Vec<Reply>,
    ) -> Answer<Reply> {
        let fields = self.read::<Hash>(key)?.into_iter().flatten();
        Ok(Reply::Array(fields.flat_map(told).collect()))
    }
}

pub(super) fn hget(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.field(args[0], args[1])?.cloned().into())
}

pub(super) fn hmget(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let found = args[1..]
        .iter()
        .map(|field| Ok(on.field(args[0], field)?.cloned().into()));
    Ok(Reply::Array(found.collect::<Answer<_>>()?))
}

pub(super) fn hexists(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.field(args[0], args[1])?.is_some().into())
}

pub(super) fn hstrlen(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.field(args[0], args[1])?.map_or(0, Vec::len).into())
}

pub(super) fn hlen(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(on.read::<Hash>(args[0])?.map_or(0, Vec::len).into())
}

pub(super) fn hkeys(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.fields(args[0], |(field, _)| vec![Reply::text(field)])
}

pub(super) fn hvals(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.fields(args[0], |(_, text)| vec![Reply::text(text)])
}

pub(super) fn hgetall(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.fields(args[0], |(field, text)| {
        vec![Reply::text(field), Reply::text(text)]
    })
}

fn set(on: &mut Execution<'_>, command: &str, args: &[&[u8]]) -> Answer<usize> {
    if args.len().is_multiple_of(2) {
        let text = format!("ERR wrong number of arguments for '{command}' command");
        return Err(Refused(text));
    }
    on.edit(args[0], |fields: &mut Hash| {
        let pairs = args[1..].chunks_exact(2);
        Ok(pairs
            .filter(|pair| put(fields, pair[0], pair[1].to_vec()))
            .count())
    })
}

pub(super) fn hset(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(set(on, "hset", args)?.into())
}

pub(super) fn hmset(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    set(on, "hmset", args).map(|_| Reply::OK)
}

pub(super) fn hsetnx(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.edit(args[0], |fields: &mut Hash| {
        let is_new = find(fields, args[1]).is_none();
        if is_new {
            put(fields, args[1], args[2].to_vec());
        }
        Ok(is_new.into())
    })
}

pub(super) fn hdel(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    on.edit(args[0], |fields: &mut Hash| {
        let before = fields.len();
        fields.retain(|(name, _)| !args[1..].contains(&&**name));
        Ok((before - fields.len()).into())
    })
}

pub(super) fn hincrby(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let by = integer(args[2])?;
    on.edit(args[0], |fields: &mut Hash| {
        let before = find(fields, args[1]).map_or(Ok(0), |text| integer(text));
        let before = before.map_err(|_| Refused::new("ERR hash value is not an integer"))?;
        let sum = before.checked_add(by);
        let sum = sum.ok_or_else(|| Refused::new("ERR increment or decrement would overflow"))?;
        put(fields, args[1], sum.to_string().into_bytes());
        Ok(sum.into())
    })
}

pub(super) fn hincrbyfloat(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    if double(args[2]).is_none() {
        return Err(Refused::new("ERR value is not a valid float"));
    }
    on.edit(args[0], |fields: &mut Hash| {
        let before = find(fields, args[1]).map_or(&b"0"[..], |text| text);
        if double(before).is_none() {
            return Err(Refused::new("ERR hash value is not a float"));
        }
        let sum = sum(before, args[2])?;
        put(fields, args[1], sum.clone());
        Ok(Reply::Bulk(sum))
    })
}
