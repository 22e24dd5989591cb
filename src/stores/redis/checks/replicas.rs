//! Risks to locks from the replicas of a master.

use super::settings::{ClientSettings, Info, Settings};
use crate::stores::redis::findings::Findings;

pub(super) fn find(
    found: &mut Findings,
    info: &Info<'_>,
    settings: &Settings,
    client: ClientSettings,
) {
    const CODE: &str = "replicas";
    let Some(count) = info.number("connected_slaves") else {
        return;
    };
    let (wanted, others) = (u64::from(client.wait_replicas), found.all.len());
    // INFO has this field only if both min-replicas-to-write and min-replicas-max-lag are above 0.
    let good = info.number("min_slaves_good_slaves");
    let least = settings.get("min-replicas-to-write");
    let least = least.and_then(|least| least.parse().ok()).unwrap_or(1);
    let is_ignored = info.version().is_some_and(|version| version < (7, 0));
    if let Some(good) = good.filter(|good| *good < least && !is_ignored) {
        let message = format!(
            "min-replicas-to-write is above the {good} replicas that are up to date, so it grants no locks"
        );
        let advice = "bring the replicas back, or lower min-replicas-to-write";
        found.danger(CODE, message, advice);
    }
    if wanted > count {
        let message = format!(
            "wait_replicas is {wanted} but {count} are connected, so no lock can be acquired"
        );
        let advice = "bring the replicas back, or lower wait_replicas";
        found.danger(CODE, message, advice);
    }
    if (count > 0 || good.is_some()) && (is_ignored || good.is_none()) {
        let (unbound, binding) = match is_ignored {
            true => (
                "scripts ignore min-replicas-to-write before Redis 7",
                "install Redis 7 or later",
            ),
            // If one of the two settings is 0, neither setting has an effect.
            false => (
                "min-replicas-to-write or min-replicas-max-lag is 0",
                "set min-replicas-to-write 1 and min-replicas-max-lag 10",
            ),
        };
        let goes_on = format!("{unbound}: a master cut off from the network keeps granting locks");
        match client.is_cluster {
            true => {
                let message = format!("{goes_on} for up to cluster-node-timeout");
                found.note(CODE, message, binding);
            }
            false => {
                let message = format!("{goes_on} that the new master may grant too");
                found.danger(CODE, message, binding);
            }
        }
    }
    if count == 0 && client.can_fail_over {
        let message = "no replica is connected: if this server fails, nothing takes over and its locks cannot be \
            acquired";
        found.note(CODE, message, "connect a replica");
    }
    if wanted < count {
        let message = format!(
            "{count} connected, wait_replicas is {wanted}: a replica without the lock may become the master"
        );
        let advice = "set Builder::wait_replicas (--wait-replicas) to the number of all replicas";
        found.note(CODE, message, advice);
    }
    if found.all.len() == others {
        let message = match count {
            0 => "no replicas, so there is no failover".to_owned(),
            count => format!("{count} connected, wait_replicas is {wanted}"),
        };
        found.ok(CODE, message);
    }
}
