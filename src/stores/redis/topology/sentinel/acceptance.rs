//! Rules for accepting reports of sentinels, as pure functions.

use std::cmp::Reverse;

use super::report::Report;

/// Why the known master cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MasterState {
    /// The server reports another role.
    NoMaster,
    Silent,
    /// The server sent an error reply or failed the TLS checks, or another thread accepted another master.
    Unclear,
}

/// Returns the latest report that is later than `known` and names another server. A report of one sentinel is enough.
pub(super) fn lone_report(known: &Report, reports: &[Report]) -> Option<Report> {
    let is_later = |it: &Report| it.epoch > known.epoch;
    let is_news = |it: &&Report| is_later(it) && it.node() != known.node();
    let latest = reports.iter().filter(is_news);
    latest.max_by_key(|it| it.epoch).cloned()
}

/// The known master failed, and `lone` is a failover that only one sentinel reports. Returns why `lone` is ignored, or
/// `None` if it is accepted.
pub(super) fn reason_to_ignore(
    lone: &Report,
    reports: &[Report],
    configured: usize,
    failure: MasterState,
) -> Option<String> {
    let other = match failure {
        MasterState::Unclear => return Some("the last known master still reports".to_owned()),
        // The known master has another role. So `lone` is accepted as by a client that knows no master: if it is in `ranked`.
        MasterState::NoMaster => {
            let ranked = ranked(reports, configured);
            let is_one = ranked.iter().any(|it| it.node() == lone.node());
            ranked.into_iter().next().filter(|_| !is_one)
        }
        MasterState::Silent => {
            let mut others = reports.iter().filter(|it| it.node() != lone.node());
            others.next().cloned()
        }
    };
    other.map(|it| format!("other sentinels name {}", it.node()))
}

/// Ranks the reported masters for a client that knows no master: by epoch, then by the number of reports, the highest
/// first. Masters with too few reports are returned only if no master has enough reports.
pub(super) fn ranked(reports: &[Report], configured: usize) -> Vec<Report> {
    let enough = enough_of(configured);
    let mut ranked: Vec<(Report, usize)> = Vec::new();
    for one in reports {
        if ranked.iter().all(|(report, _)| report.node() != one.node()) {
            let epochs = epochs_of(reports, &one.node());
            let epoch = epochs.get(enough - 1).or(epochs.last());
            ranked.push((
                one.with_epoch(epoch.copied().unwrap_or_default()),
                epochs.len(),
            ));
        }
    }
    if ranked.iter().any(|(_, votes)| *votes >= enough) {
        ranked.retain(|(_, votes)| *votes >= enough);
    }
    ranked.sort_by_key(|(report, votes)| Reverse((report.epoch, *votes)));
    ranked.into_iter().map(|(report, _)| report).collect()
}

/// How many sentinels must report a later failover before it is accepted.
fn enough_of(configured: usize) -> usize {
    if configured < 3 { 1 } else { 2 }
}

fn epochs_of(reports: &[Report], node: &str) -> Vec<i64> {
    let naming = reports.iter().filter(|it| it.node() == node);
    let mut epochs: Vec<i64> = naming.map(|it| it.epoch).collect();
    epochs.sort_unstable_by_key(|epoch| Reverse(*epoch));
    epochs
}

/// Returns the master to accept after these reports, if its server or epoch differs from `accepted`. A report whose
/// epoch is not higher than the epoch of `accepted` counts only if `may_go_back` is true.
pub(super) fn newly_accepted(
    accepted: &Report,
    reports: &[Report],
    configured: usize,
    may_go_back: bool,
) -> Option<Report> {
    let enough = enough_of(configured);
    let later = reports.iter().filter_map(|one| {
        let epochs = epochs_of(reports, &one.node());
        let epoch = epochs.get(enough - 1).copied()?;
        (epoch > accepted.epoch).then(|| one.with_epoch(epoch))
    });
    if let Some(later) = later.max_by_key(|one| one.epoch) {
        return Some(later);
    }
    reports.iter().filter(|_| may_go_back).find_map(|one| {
        let epoch = *epochs_of(reports, &one.node()).get(configured / 2)?;
        let is_other = one.node() != accepted.node() || epoch < accepted.epoch;
        is_other.then(|| one.with_epoch(epoch))
    })
}
