//! The names of keys and channels, in Redisson's format.

use std::borrow::Cow;

use crate::ground::error::Error;

const LONGEST_NAME: usize = 512;

/// The format of a key or a channel of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Name,
    /// `prefix:{name}`, without the braces if the name contains `{`.
    Prefix(&'static str),
    /// Like `Prefix`, followed by `:visitor`.
    OfVisitor(&'static str),
    /// `{name}:suffix`, without the braces if the name contains `{`.
    Suffix(&'static str),
    /// `prefix{name}`, whatever the name contains.
    Braced(&'static str),
    /// `{name}:visitor`, followed by a suffix, without the braces if the name contains `{`.
    BehindVisitor(&'static str),
    /// Like `BehindVisitor`. If a thread reads inside its own write lock, the visitor is the id of its write hold.
    BehindWriter(&'static str),
    /// `redlatch_condition:{name}:condition` and the suffix, without the braces if the lock's name contains `{`.
    OfCondition(&'static str),
}

pub(super) const CHANNEL: Key = Key::Prefix("redisson_lock__channel");

/// The prefix of all keys and channels of conditions.
const PLACES: &str = "redlatch_condition";
const PLACES_IN_BRACES: &str = "redlatch_condition:{";

/// The key of the last fencing token of a lock.
pub(super) const COUNTER: Key = Key::Prefix("redisson_lock_token");

impl Key {
    /// Whether `key` may have this format.
    pub(super) fn begins(self, key: &str) -> bool {
        let (prefix, next) = match self {
            Key::Name | Key::BehindVisitor(_) | Key::BehindWriter(_) => return true,
            Key::Suffix(suffix) => {
                return key.strip_suffix(suffix).is_some_and(|it| it.ends_with(':'));
            }
            Key::OfCondition(_) => (PLACES, ':'),
            Key::Prefix(prefix) | Key::OfVisitor(prefix) => (prefix, ':'),
            Key::Braced(prefix) => (prefix, '{'),
        };
        key.strip_prefix(prefix)
            .is_some_and(|it| it.starts_with(next))
    }

    pub(super) fn of(self, name: &str) -> Cow<'_, str> {
        match self {
            Key::Name => name.into(),
            _ => self.pieces(name, "").concat().into(),
        }
    }

    /// For a key of a condition, `visitor` is the condition's name.
    pub(super) fn pieces<'a>(self, name: &'a str, visitor: &'a str) -> [&'a str; 6] {
        match self {
            Key::Name => ["", "", name, "", "", ""],
            Key::Prefix(prefix) if name.contains('{') => [prefix, ":", name, "", "", ""],
            Key::Prefix(prefix) => [prefix, ":{", name, "}", "", ""],
            Key::OfVisitor(prefix) => {
                let [prefix, before, name, after, ..] = Key::Prefix(prefix).pieces(name, "");
                [prefix, before, name, after, ":", visitor]
            }
            Key::Suffix(suffix) if name.contains('{') => [name, ":", suffix, "", "", ""],
            Key::Suffix(suffix) => ["{", name, "}:", suffix, "", ""],
            Key::Braced(prefix) => [prefix, "{", name, "}", "", ""],
            Key::OfCondition(suffix) if name.contains('{') => {
                [PLACES, ":", name, ":", visitor, suffix]
            }
            Key::OfCondition(suffix) => [PLACES_IN_BRACES, name, "}:", visitor, suffix, ""],
            Key::BehindVisitor(suffix) | Key::BehindWriter(suffix) => {
                let [_, _, name, after, ..] = Key::Prefix("").pieces(name, "");
                let before = if after.is_empty() { "" } else { "{" };
                [before, name, after, ":", visitor, suffix]
            }
        }
    }
}

/// `full` is the client's prefix, followed by the lock name `given`.
///
/// A name is refused if its key and its channel are in different Cluster slots. This also holds without a Cluster, so
/// that a program can always move to a Cluster.
pub(super) fn flaw(given: &str, full: &str, channel: Key) -> Option<Error> {
    let reason = if given.is_empty() {
        "it is empty"
    } else if full.len() > LONGEST_NAME {
        "it is longer than 512 bytes, prefix included"
    } else if full.chars().any(char::is_control) {
        "it contains control characters"
    } else if matches!(channel, Key::Braced(_)) && full.contains(['{', '}']) {
        "it contains a brace, and Redisson puts braces around the name of a latch"
    } else if slot(full) != slot(&CHANNEL.of(full)) {
        "its braces would put the lock and its channel into different slots of a Redis Cluster"
    } else {
        return None;
    };
    let mut name: String = full.chars().take(64).collect();
    if name.len() < full.len() {
        name.push('…');
    }
    Some(Error::InvalidName { name, reason })
}

/// Returns the slot of a key in a Redis Cluster: CRC16 (XMODEM) of its hash tag, or else of the key, mod 16384.
pub(super) fn slot(key: &str) -> u16 {
    let rest = key.split_once('{').map(|(_, rest)| rest);
    let hashed = match rest.and_then(|rest| rest.split_once('}')) {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    };
    let crc = hashed.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_cluster_keyslot() {
        // `CLUSTER KEYSLOT` of redis-server 7.0.15 returned these slots.
        for (key, expected) in [
            ("foo", 12182),
            ("{}x", 10595),
            ("x{y", 2740),
            ("redisson_lock__channel:x{y", 12840),
        ] {
            assert_eq!(slot(key), expected, "{key}");
        }
        assert_eq!(slot("a{foo}b"), slot("foo"));
    }

    #[test]
    fn channels_follow_the_brace_rule() {
        assert_eq!(CHANNEL.of("orders"), "redisson_lock__channel:{orders}");
        assert_eq!(
            CHANNEL.of("{shop}:orders"),
            "redisson_lock__channel:{shop}:orders"
        );
    }

    #[test]
    fn names_whose_keys_span_slots_are_refused() {
        for good in ["plain", "a{b}c", "a}b{c}", "{a}", "ünïcode", " "] {
            assert!(flaw(good, good, CHANNEL).is_none(), "{good}");
        }
        for bad in ["", "x{y", "x{}y", "p}q", "a\nb", "a\0b", &"x".repeat(513)] {
            assert!(flaw(bad, bad, CHANNEL).is_some(), "{bad}");
        }
        let latch = Key::Braced("redisson_countdownlatch__channel__");
        assert!(flaw("plain", "plain", latch).is_none());
        for bad in ["", "a{b}c", "{a}", "a}b"] {
            assert!(flaw(bad, bad, latch).is_some(), "{bad}");
        }
    }

    #[test]
    fn request_keys_share_the_tag_of_their_counter() {
        let once = Key::OfVisitor("redlatch_once");
        assert_eq!(
            once.pieces("orders", "c:1").concat(),
            "redlatch_once:{orders}:c:1"
        );
        assert_eq!(
            once.pieces("{shop}:orders", "c:1").concat(),
            "redlatch_once:{shop}:orders:c:1"
        );
    }

    #[test]
    fn names_have_at_most_512_bytes() {
        let longest = "x".repeat(LONGEST_NAME);
        assert!(flaw(&longest, &longest, CHANNEL).is_none());
        let name_of = |name: &str| match flaw(name, name, CHANNEL) {
            Some(Error::InvalidName { name, .. }) => name,
            other => unreachable!("{other:?}"),
        };
        assert_eq!(name_of("p}q"), "p}q");
        let full = "x".repeat(63) + "}";
        assert_eq!(name_of(&full), full);
        assert_eq!(name_of(&(full.clone() + "y")), full + "…");
        assert!(flaw("", "prefix:", CHANNEL).is_some());
    }

    #[test]
    fn each_key_matches_its_own_form() {
        let of_condition = Key::OfCondition(":due");
        let behind = Key::BehindVisitor(":rwlock_timeout:1");
        for (key, name, visitor, expected) in [
            (Key::Name, "a", "", "a"),
            (Key::Prefix("p"), "a", "", "p:{a}"),
            (Key::Prefix("p"), "{a}b", "", "p:{a}b"),
            (Key::OfVisitor("p"), "a", "v", "p:{a}:v"),
            (Key::Suffix("s"), "a", "", "{a}:s"),
            (Key::Suffix("s"), "{a}b", "", "{a}b:s"),
            (Key::Braced("p"), "a", "", "p{a}"),
            (of_condition, "a", "c", "redlatch_condition:{a}:c:due"),
            (of_condition, "{a}b", "c", "redlatch_condition:{a}b:c:due"),
            (behind, "a", "v", "{a}:v:rwlock_timeout:1"),
            (behind, "{a}b", "v", "{a}b:v:rwlock_timeout:1"),
        ] {
            let made = key.pieces(name, visitor).concat();
            assert_eq!(made, expected);
            assert!(key.begins(&made), "{made}");
            if visitor.is_empty() {
                assert_eq!(key.of(name), expected);
            }
        }
        for (key, other) in [
            (Key::Prefix("p"), "p{a}"),
            (Key::Prefix("p"), "q:{a}"),
            (Key::Braced("p"), "p:{a}"),
            (Key::Suffix("s"), "{a}s"),
            (Key::Suffix("s"), "{a}:t"),
            (of_condition, "redlatch_conditions:{a}"),
        ] {
            assert!(!key.begins(other), "{other}");
        }
    }
}
