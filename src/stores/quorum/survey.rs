//! Surveys of the locks of a quorum, merged from the replies of all nodes.

use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::LockId;
use crate::ground::error::Result;
use crate::store::{LockInfo, LockKind, Position, Store, SurveyOf, merge_nodes};
use crate::stores::quorum::Quorum;
use crate::stores::quorum::tally::{Tally, Vote};
use crate::stores::share;

impl Quorum {
    pub(super) fn describe_by_majority(
        &self,
        lock: &LockId,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        let mut tally = Tally::new(self.nodes.len());
        let mut told = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let by = share(deadline, self.nodes.len() - index);
            let (one, mut position) = (SurveyOf::One(lock), Position::default());
            match node.node.survey(one, &mut position, by) {
                Ok(info) => {
                    told.push(info);
                    tally.note(index, Vote::Granted);
                }
                Err(error) => tally.note(index, Vote::Failed(error)),
            }
        }
        if told.len() < self.needed {
            return Err(self.no_quorum(&lock.name, &tally));
        }
        let of = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let free = || LockInfo {
            nodes: Some((0, of)),
            ..LockInfo::free(&lock.name, LockKind::of(lock.kind), self.node(None))
        };
        let told = told.into_iter().flatten().collect();
        let merged = merge_nodes(told, self.needed, self.nodes.len());
        Ok(vec![merged.unwrap_or_else(free)])
    }

    /// Each call reads some locks of one node. The call after the last node returns the merged locks of all nodes.
    pub(super) fn survey_nodes(
        &self,
        all: SurveyOf<'_>,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        let Some(node) = self.nodes.get(position.node) else {
            position.is_over = true;
            let told = std::mem::take(&mut position.told).into_values();
            let all = told.filter_map(|told| {
                merge_nodes(told.into_values().collect(), self.needed, self.nodes.len())
            });
            return Ok(all.collect());
        };
        let index = position.node;
        let within = position.within.get_or_insert_default();
        let found = node.node.survey(all, within, deadline);
        if within.is_over || found.is_err() {
            position.within = None;
            position.node += 1;
        }
        for info in found? {
            // A scan may return a key twice. Then the later description replaces the earlier description.
            let told = position.told.entry(Arc::clone(&info.name)).or_default();
            told.insert(index, info);
        }
        Ok(Vec::new())
    }
}
