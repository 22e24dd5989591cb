//! A shop that sells from one stock while the servers of its lock fail over, or its slot moves.
//!
//! Several processes with several threads each sell units under the lock: they read the stock, work for a while, and
//! write it back. The stock is on its own server, without faults.

use std::cell::Cell;
use std::time::Duration;

use redlatch::Client;

use crate::backends::is_long;
use crate::report;
use crate::support::child::arg;
use crate::support::ms;
use crate::support::shop::{Shop, ShopResult, sell_under};
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{AGREEMENT, Cluster, Sentinels};

const PROCESSES: usize = 3;
const THREADS: usize = 3;
const LEASE: Duration = ms(2000);

/// In a contender: sells from the stock.
pub(crate) fn sell() {
    let builder = Client::builder()
        .watchdog_timeout(LEASE)
        .command_timeout(ms(1000))
        .wait_replicas(arg("REPLICAS").parse().unwrap(), ms(300));
    let urls = arg("URLS");
    let urls = urls.split(' ');
    let client = match &*arg("TOPOLOGY") {
        "sentinel" => builder.sentinel(NAME, urls),
        "cluster" => builder.cluster(urls),
        other => panic!("no topology {other}"),
    };
    sell_under(vec![client.unwrap().lock(&arg("LOCK")); THREADS]);
}

/// Opens a shop whose lock is on these servers.
fn start(topology: &str, urls: &[String], lock: &str, replicas: u32) -> Shop {
    let mut shop = Shop::open();
    for _ in 0..PROCESSES {
        shop.hire(&[
            ("TOPOLOGY", topology),
            ("URLS", &urls.join(" ")),
            ("LOCK", lock),
            ("REPLICAS", &replicas.to_string()),
        ]);
    }
    shop.sells_on(AGREEMENT);
    shop
}

fn tell(day: &ShopResult, what: &str) {
    let counts = &day.counts;
    let history = match &day.history {
        Ok(summary) => format!("{} holds apart", summary.holds),
        Err(overlap) => format!("two holds at once: {overlap:?}"),
    };
    report(&format!(
        "shop, {what}: {} sold, {} of them twice; {} requests failed, {} holds lost, {} not replicated; {history}",
        day.sold, day.twice, counts.failed, counts.lost, counts.unreplicated
    ));
}

/// No client was told that it holds the lock while another client held it.
#[track_caller]
fn was_fair(day: &ShopResult) {
    assert_eq!(day.twice, 0, "sold twice");
    assert!(day.history.is_ok(), "{:?}", day.history);
}

fn rounds(short: usize) -> usize {
    if is_long() { 20 } else { short }
}

/// Sells while `fail_over` runs repeatedly, every second time by a kill.
fn through_failovers(what: &str, job: Shop, mut fail_over: impl FnMut(bool, &dyn Fn())) {
    let longest = Cell::new(Duration::ZERO);
    let sells_on = || longest.set(longest.get().max(job.sells_on(AGREEMENT)));
    for round in 0..rounds(2) {
        fail_over(round % 2 == 0, &sells_on);
    }
    let longest = longest.into_inner();
    report(&format!(
        "{what}: sold on {longest:.1?} after a failover at the latest"
    ));
    let day = job.close();
    tell(&day, what);
    was_fair(&day);
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn behind_sentinels_a_grant_on_all_replicas_sells_nothing_twice() {
    let set = Sentinels::start();
    let job = start("sentinel", &set.urls(), "stock", 2);
    through_failovers("behind sentinels", job, |kills, sells_on| {
        if kills {
            let (old, _) = set.lose_master();
            set.rejoin(old);
        } else {
            set.failover();
        }
        sells_on();
        set.wait_until_settled();
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn in_a_cluster_a_grant_on_all_replicas_sells_nothing_twice() {
    let cluster = Cluster::start();
    let name = cluster.name_at(1, "stock");
    let job = start("cluster", &cluster.urls(), &name, 1);
    through_failovers("in a cluster", job, |kills, sells_on| {
        if kills {
            let (old, _) = cluster.lose_owner(&name);
            cluster.rejoin(old);
        } else {
            cluster.failover(&name);
        }
        sells_on();
        cluster.wait_until_healthy();
    });
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn nothing_is_sold_twice_while_the_slot_of_the_lock_moves() {
    let cluster = Cluster::masters();
    let name = cluster.name_at(0, "stock");
    let job = start("cluster", &cluster.urls(), &name, 0);
    for round in 0..rounds(6) {
        let migration = cluster.begin_migration(&name, (round + 1) % 3);
        job.sells_on(AGREEMENT);
        migration.move_keys();
        job.sells_on(AGREEMENT);
        migration.finish();
        job.sells_on(AGREEMENT);
    }
    let day = job.close();
    tell(&day, "cluster, slot on the move");
    // No data is lost, so no hold is ever lost.
    was_fair(&day);
    assert_eq!(day.counts.lost, 0, "holds were lost");
}
