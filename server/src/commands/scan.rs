//! SCAN, HSCAN, SSCAN and ZSCAN, and glob patterns.

use std::collections::BTreeSet;

use super::keys::name_of;
use super::options::is;
use super::{Answer, Execution, Hash, Refused, Sorted};
use crate::number::{self, integer};
use crate::reply::{Reply, array};

struct Wanted<'w> {
    cursor: u64,
    pattern: Option<&'w [u8]>,
    count: usize,
    kind: Option<&'w [u8]>,
}

impl<'w> Wanted<'w> {
    fn read(cursor: &[u8], options: &[&'w [u8]], has_kinds: bool) -> Answer<Wanted<'w>> {
        let cursor = std::str::from_utf8(cursor)
            .ok()
            .and_then(|text| text.parse().ok());
        let mut wanted = Wanted {
            cursor: cursor.ok_or_else(|| Refused::new("ERR invalid cursor"))?,
            pattern: None,
            count: 10,
            kind: None,
        };
        for option in options.chunks(2) {
            match *option {
                [word, pattern] if is(word, "MATCH") => wanted.pattern = Some(pattern),
                [word, kind] if is(word, "TYPE") && has_kinds => wanted.kind = Some(kind),
                [word, count] if is(word, "COUNT") => {
                    let count = usize::try_from(integer(count)?).ok();
                    wanted.count = count.filter(|it| *it > 0).ok_or_else(Refused::syntax)?;
                }
                _ => return Err(Refused::syntax()),
            }
        }
        Ok(wanted)
    }

    fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| fits(pattern, name))
    }
}

/// Iterates over the keys in the order of their hashes. The cursor is the hash of the next key. So a scan returns each key
/// that exists during the whole scan, whatever other keys are added or removed.
pub(super) fn scan(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let wanted = Wanted::read(args[0], &args[1..], true)?;
    let (database, now) = (on.around.database, on.now());
    let keys = on.keys.iter();
    let keys = keys.filter(|((of, _), entry)| *of == database && !entry.is_over(now));
    let hashed = keys.map(|((_, key), entry)| (hash(key), key, entry));
    let mut left: Vec<_> = hashed
        .filter(|(hash, _, _)| *hash >= wanted.cursor)
        .collect();
    left.sort_unstable_by_key(|(hash, key, _)| (*hash, *key));
    let last = left
        .get(wanted.count - 1)
        .map_or(u64::MAX, |(hash, _, _)| *hash);
    let end = left.partition_point(|(hash, _, _)| *hash <= last);
    let next = left.get(end).map_or(0, |(hash, _, _)| *hash);
    let found = left[..end].iter().filter(|(_, key, entry)| {
        let kind = name_of(&entry.value);
        wanted.fits(key) && wanted.kind.is_none_or(|wanted| is(wanted, kind))
    });
    let found: Vec<Reply> = found.map(|(_, key, _)| Reply::text(key)).collect();
    Ok(array![next.to_string().into_bytes(), found])
}

/// FNV-1a.
fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn whole(parts: impl Iterator<Item = [Option<Vec<u8>>; 2]>) -> Answer<Reply> {
    let parts: Vec<Vec<u8>> = parts.flatten().flatten().collect();
    Ok(array!["0", parts])
}

pub(super) fn hscan(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let wanted = Wanted::read(args[1], &args[2..], false)?;
    let fields = on.read::<Hash>(args[0])?.into_iter().flatten();
    let fields = fields.filter(|(field, _)| wanted.fits(field));
    whole(fields.map(|(field, text)| [Some(field.clone()), Some(text.clone())]))
}

pub(super) fn sscan(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let wanted = Wanted::read(args[1], &args[2..], false)?;
    let members = on.read::<BTreeSet<Vec<u8>>>(args[0])?.into_iter().flatten();
    let members = members.filter(|member| wanted.fits(member));
    whole(members.map(|member| [Some(member.clone()), None]))
}

pub(super) fn zscan(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let wanted = Wanted::read(args[1], &args[2..], false)?;
    let members = on.read::<Sorted>(args[0])?.into_iter().flatten();
    let members = members.filter(|(member, _)| wanted.fits(member));
    whole(members.map(|(member, score)| {
        [
            Some(member.clone()),
            Some(number::score(score.get()).into_bytes()),
        ]
    }))
}

pub(super) fn keys(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (database, now) = (on.around.database, on.now());
    let keys = on
        .keys
        .iter()
        .filter(|((of, key), entry)| *of == database && !entry.is_over(now) && fits(args[0], key));
    let keys: Vec<Vec<u8>> = keys.map(|((_, key), _)| key.clone()).collect();
    Ok(keys.into())
}

/// Supports `*`, `?`, `[a-c]`, `[^a]` and `\`.
pub(super) fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let Some((sign, rest)) = pattern.split_first() else {
        return name.is_empty();
    };
    match (sign, name.split_first()) {
        (b'*', _) => {
            let rest = &pattern[pattern.iter().take_while(|it| **it == b'*').count()..];
            (0..=name.len()).any(|from| fits(rest, &name[from..]))
        }
        (_, None) => false,
        (b'?', Some((_, name))) => fits(rest, name),
        (b'[', Some((byte, name))) => {
            let (is_in, rest) = class(rest, *byte);
            is_in && fits(rest, name)
        }
        (b'\\', Some((byte, name))) if !rest.is_empty() => {
            rest[0] == *byte && fits(&rest[1..], name)
        }
        (sign, Some((byte, name))) => sign == byte && fits(rest, name),
    }
}

/// Matches a byte against a class, whose opening bracket was removed. Returns whether it matches, and the rest of the
/// pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_not, mut rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut is_in = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', sign, behind @ ..] => {
                is_in |= *sign == byte;
                behind
            }
            [from, b'-', to, behind @ ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                behind
            }
            [sign, behind @ ..] => {
                is_in |= *sign == byte;
                behind
            }
        };
    }
    (is_in != is_not, rest)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, is_fit) in [
            ("*", "", true),
            ("a*c*", "abbcd", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("{a}:*", "{a}:data", true),
        ] {
            assert_eq!(
                fits(pattern.as_bytes(), name.as_bytes()),
                is_fit,
                "{pattern} {name}"
            );
        }
    }
}
