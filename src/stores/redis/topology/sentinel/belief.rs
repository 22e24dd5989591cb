//! Rules for accepting reports of sentinels, as pure functions.

use std::cmp::Reverse;

use super::answer::Named;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It reports another role.
    NoMaster,
    /// It is unreachable.
    Silent,
    /// It sent an error reply, or another thread accepted another master.
    Unclear,
}

/// Returns the report of the latest failover after `known` to another server, even if only one sentinel reports it.
pub(super) fn told_by_one(known: &Named, answers: &[Named]) -> Option<Named> {
    let is_later = |it: &Named| it.epoch > known.epoch;
    let is_news = |it: &&Named| is_later(it) && it.node() != known.node();
    let latest = answers.iter().filter(is_news);
    latest.max_by_key(|it| it.epoch).cloned()
}

/// Why a failover that only one sentinel reports is not accepted after the known master failed; `None` if it is accepted.
pub(super) fn doubt_about(
    lone: &Named,
    answers: &[Named],
    configured: usize,
    missed: Standing,
) -> Option<String> {
    let other = match missed {
        Standing::Unclear => return Some("the last known master still answers".to_owned()),
        // The choice of a new client.
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

/// The masters for a client that knows none, the best one first: by epoch, then by the number of reports. Masters reported by too
/// few sentinels count only if no master has enough reports.
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

/// How many sentinels must report a later failover.
fn enough_of(configured: usize) -> usize {
    if configured < 3 { 1 } else { 2 }
}

/// The epochs in the reports of this node, in descending order.
fn epochs_of(answers: &[Named], node: &str) -> Vec<i64> {
    let naming = answers.iter().filter(|it| it.node() == node);
    let mut epochs: Vec<i64> = naming.map(|it| it.epoch).collect();
    epochs.sort_unstable_by_key(|epoch| Reverse(*epoch));
    epochs
}

/// The newly accepted master after these reports, if server or epoch differ from `believed`. A master without a later failover is
/// accepted only if `may_go_back`.
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
