//! Which answers of sentinels are believed, as functions of these answers.

use std::cmp::Reverse;

use super::answer::Named;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It says that it is no master.
    NoMaster,
    /// It could not be asked.
    Silent,
    /// Neither: it has refused the connection in words, or somebody else has found another master.
    Unclear,
}

/// Returns the news after `known` that one sentinel tells: the latest failover, to another server.
pub(super) fn told_by_one(known: &Named, answers: &[Named]) -> Option<Named> {
    let is_later = |it: &Named| it.epoch > known.epoch;
    let is_news = |it: &&Named| is_later(it) && it.node() != known.node();
    let latest = answers.iter().filter(is_news);
    latest.max_by_key(|it| it.epoch).cloned()
}

/// Why a failover that one sentinel alone tells of is not to be believed, where the master known last was missed.
pub(super) fn doubt_about(
    lone: &Named,
    answers: &[Named],
    configured: usize,
    missed: Standing,
) -> Option<String> {
    let other = match missed {
        Standing::Unclear => return Some("the last known master still answers".to_owned()),
        // As somebody who knows no master would choose.
        Standing::NoMaster => {
            let ranked = ranked(answers, configured);
            let is_one = ranked.iter().any(|it| it.node() == lone.node());
            ranked.into_iter().next().filter(|_| !is_one)
        }
        Standing::Silent => {
            let mut others = answers.iter().filter(|it| it.node() != lone.node());
            others.next().cloned()
        }
    };
    other.map(|it| format!("other sentinels name {}", it.node()))
}

/// The masters that were named to somebody who knows none, the best one first: of the latest failover, then the one
/// named most often. Those named by too few sentinels count only if all are.
pub(super) fn ranked(answers: &[Named], configured: usize) -> Vec<Named> {
    let enough = enough_of(configured);
    let mut ranked: Vec<(Named, usize)> = Vec::new();
    for one in answers {
        if ranked.iter().all(|(named, _)| named.node() != one.node()) {
            let epochs = epochs_of(answers, &one.node());
            let epoch = epochs.get(enough - 1).or(epochs.last());
            ranked.push((one.since(epoch.copied().unwrap_or_default()), epochs.len()));
        }
    }
    if ranked.iter().any(|(_, votes)| *votes >= enough) {
        ranked.retain(|(_, votes)| *votes >= enough);
    }
    ranked.sort_by_key(|(named, votes)| Reverse((named.epoch, *votes)));
    ranked.into_iter().map(|(named, _)| named).collect()
}

/// How many sentinels have to tell of a later failover.
fn enough_of(configured: usize) -> usize {
    if configured < 3 { 1 } else { 2 }
}

/// The epochs with which this node was named, the highest first.
fn epochs_of(answers: &[Named], node: &str) -> Vec<i64> {
    let naming = answers.iter().filter(|it| it.node() == node);
    let mut epochs: Vec<i64> = naming.map(|it| it.epoch).collect();
    epochs.sort_unstable_by_key(|epoch| Reverse(*epoch));
    epochs
}

/// The master after these answers, if it is another one than `believed`, or the failover another one. A master of a
/// failover that is not the latest is told only if `may_go_back`.
pub(super) fn overruled(
    believed: &Named,
    answers: &[Named],
    configured: usize,
    may_go_back: bool,
) -> Option<Named> {
    let enough = enough_of(configured);
    let later = answers.iter().filter_map(|one| {
        let epochs = epochs_of(answers, &one.node());
        let epoch = epochs.get(enough - 1).copied()?;
        (epoch > believed.epoch).then(|| one.since(epoch))
    });
    if let Some(later) = later.max_by_key(|one| one.epoch) {
        return Some(later);
    }
    answers.iter().filter(|_| may_go_back).find_map(|one| {
        let epoch = epochs_of(answers, &one.node())
            .get(configured / 2)
            .copied()?;
        let is_other = one.node() != believed.node() || epoch < believed.epoch;
        is_other.then(|| one.since(epoch))
    })
}
