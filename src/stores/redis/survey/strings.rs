//! Locks whose key is a string: token locks, and the counters of semaphores and latches.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::error::Result;
use crate::store::{Holder, LockInfo, LockKind};
use crate::stores::redis::keys::Key;
use crate::stores::redis::replies::text_of;
use crate::stores::redis::survey::queries::{FoundLocks, KeyQueries, about, number_of};
use crate::stores::redis::transport::CallError;

/// In bytes. A longer string is not reported as a token.
const LONGEST_TOKEN: i64 = 256;

/// The acquired permits of a semaphore are in `OWNERS`. Acquired permits with ids are in `IDS`.
const OWNERS: Key = Key::Prefix("redlatch_sc");
const IDS: Key = Key::Suffix("timeout");

impl KeyQueries<'_> {
    pub(super) fn strings(
        &mut self,
        names: Vec<Arc<str>>,
        has_tokens: bool,
        has_counters: bool,
    ) -> Result<FoundLocks, CallError> {
        let mut looked = FoundLocks::default();
        let names: Vec<Arc<str>> = names.into_iter().filter(|it| !is_beside(it)).collect();
        let sizes = self.query_each(&redis::cmd("STRLEN"), names, None, &mut looked)?;
        let is_short = |(_, size): &(_, _)| (1..=LONGEST_TOKEN).contains(&number_of(size));
        let short = sizes.into_iter().filter(is_short);
        let short: Vec<Arc<str>> = short.map(|(name, _)| name).collect();
        let mut queries = Vec::new();
        for name in &short {
            queries.push(about(&redis::cmd("GET"), name));
            queries.push(about(&redis::cmd("PTTL"), name));
            if has_counters {
                queries.push(about(&redis::cmd("EXISTS"), &OWNERS.of(name)));
                queries.push(about(&redis::cmd("EXISTS"), &IDS.of(name)));
            }
        }
        let mut answers = self.ask(&queries)?.into_iter();
        for name in short {
            let text = looked.next(&name, &mut answers)?;
            let life = looked.next(&name, &mut answers)?;
            let mut exists = || {
                let answer = answers.next().and_then(Result::ok);
                answer.as_ref().map(number_of) == Some(1)
            };
            let beside = has_counters.then(|| (exists(), exists()));
            let Some(text) = text.as_ref().map(text_of) else {
                continue;
            };
            let life = life.as_ref().map_or(-2, number_of);
            let free = LockInfo {
                expires: u64::try_from(life).ok().map(Duration::from_millis),
                ..LockInfo::free(&name, LockKind::Token, self.node.name())
            };
            if let (Some((has_owners, has_ids)), Ok(number)) = (beside, text.parse()) {
                looked.found.push(LockInfo {
                    kind: match (has_owners, has_ids) {
                        (true, _) => LockKind::Semaphore,
                        (_, true) => LockKind::PermitSemaphore,
                        _ => LockKind::Counter,
                    },
                    available: Some(number),
                    ..free
                });
            } else if has_tokens && life != -2 {
                looked.found.push(LockInfo {
                    holders: vec![Holder::of_field(&text, 1)],
                    ..free
                });
            }
        }
        Ok(looked)
    }
}

/// Whether the key is not a lock, but an auxiliary key of another lock.
fn is_beside(name: &str) -> bool {
    const BEGINNINGS: [&str; 3] = ["redlatch_once:", "redlatch_fence:", "redisson_lock_token:"];
    let begins = BEGINNINGS.iter().any(|begin| name.starts_with(begin));
    begins || name.contains(":rwlock_timeout:")
}
