//! The largest fencing tokens that this client has seen. The client accepts only larger tokens, even after the server
//! has lost its data.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use crate::ground::claim::Claim;
use crate::ground::error::{Error, Result};
use crate::stores::redis::Redis;

/// The client keeps the tokens of at least this many recently used names, and of at most twice as many.
const REMEMBERED: usize = 5_000;

/// The largest token seen of each name. When `recent` is full, it replaces `before`.
#[derive(Debug, Default)]
pub(super) struct Fences {
    recent: HashMap<Arc<str>, u64>,
    before: HashMap<Arc<str>, u64>,
}

impl Fences {
    fn floor(&self, name: &str) -> u64 {
        let seen = self.recent.get(name).or_else(|| self.before.get(name));
        seen.map_or(0, |seen| seen.saturating_add(1))
    }

    fn note(&mut self, name: &Arc<str>, token: u64) {
        if let Some(seen) = self.recent.get_mut(name) {
            *seen = token.max(*seen);
            return;
        }
        if self.recent.len() >= REMEMBERED {
            self.before = take(&mut self.recent);
        }
        let seen = self.before.get(name).copied().unwrap_or_default();
        self.recent.insert(Arc::clone(name), token.max(seen));
    }
}

impl Redis {
    /// Returns the smallest token that the server may draw for `claim`; 0 if the lock has no tokens.
    pub(super) fn fence_floor(&self, claim: &Claim) -> u64 {
        match claim.kind.rules().is_fenced {
            true => self.fences.lock().floor(&claim.name),
            false => 0,
        }
    }

    /// `floor` is the smallest token that the request allowed. A hold with a smaller token cannot be used.
    pub(super) fn drawn(&self, claim: &Claim, token: i64, floor: u64) -> Result<u64> {
        let drawn = u64::try_from(token).unwrap_or_default();
        if drawn < floor {
            return Err(Error::FenceRegressed {
                lock: Arc::clone(&claim.name),
                node: self.topology.name(&claim.name),
                seen: floor.saturating_sub(1),
                drawn,
            });
        }
        self.fences.lock().note(&claim.name, drawn);
        Ok(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::claim::Kind;
    use crate::stores::redis::tests::stub::{self, StubServer};

    fn claim(kind: Kind) -> Claim {
        Claim {
            kind,
            ..stub::claim("lock")
        }
    }

    #[test]
    fn a_token_below_one_seen_is_refused() {
        let server = StubServer::start(|_| None);
        let (store, claim) = (server.store(), claim(Kind::Fenced));
        assert_eq!(store.fence_floor(&claim), 0);
        assert_eq!(store.drawn(&claim, 7, 0).ok(), Some(7));
        assert_eq!(store.fence_floor(&claim), 8);
        let refused = store.drawn(&claim, 7, 8);
        assert!(
            matches!(&refused, Err(Error::FenceRegressed { seen: 7, drawn: 7, lock, node })
                if **lock == *"lock" && **node == *server.address()),
            "{refused:?}"
        );
        let refused = store.drawn(&claim, -3, 8);
        assert!(matches!(
            refused,
            Err(Error::FenceRegressed { drawn: 0, .. })
        ));
        assert_eq!(store.fence_floor(&claim), 8);
        assert_eq!(store.drawn(&claim, 8, 8).ok(), Some(8));
        assert_eq!(store.drawn(&claim, 12, 9).ok(), Some(12));
        assert_eq!(store.fence_floor(&claim), 13);
    }

    #[test]
    fn a_lock_without_tokens_has_no_minimum() {
        let server = StubServer::start(|_| None);
        let store = server.store();
        store.drawn(&claim(Kind::Fenced), 7, 0).ok();
        assert_eq!(store.fence_floor(&claim(Kind::Reentrant)), 0);
    }

    #[test]
    fn only_recently_used_names_are_kept() {
        let names: Vec<Arc<str>> = (0..30_000).map(|it| it.to_string().into()).collect();
        let mut fences = Fences::default();
        for name in &names {
            fences.note(name, 7);
            // A name in constant use keeps its token, which never decreases.
            fences.note(&"often".into(), 9);
            fences.note(&"often".into(), 5);
            assert_eq!(fences.floor("often"), 10);
            assert!(fences.recent.len() + fences.before.len() <= 2 * REMEMBERED);
        }
        let known = names.iter().map(|name| fences.floor(name) == 8);
        let known: Vec<bool> = known.collect();
        assert!(known.iter().rev().take(REMEMBERED - 1).all(|known| *known));
        assert_eq!(fences.floor("0"), 0);
    }
}
