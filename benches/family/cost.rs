//! The cost of two members of the family above the least possible.

use std::time::{Duration, Instant};

use crate::Plan;
use crate::harness::report::{Report, Table};
use crate::harness::{bare, median};

/// The value that both sides of a guarded write store.
const VALUE: &str = "one piece";

/// A pair of lock and unlock, of a fenced lock and of a plain one.
pub(crate) fn fenced(plan: &Plan, report: &mut Report) {
    let client = plan.client();
    let pair = |lock: redlatch::Lock| {
        move || {
            lock.lock().expect("the lock is free");
            lock.unlock().expect("it is held");
        }
    };
    let (fenced, plain) = (client.fenced_lock("fenced"), client.lock("plain"));
    by_turns(
        plan,
        report,
        "fenced_vs_plain",
        ["fenced lock", "plain lock"],
        pair(fenced),
        pair(plain),
    );
}

/// Three commands under a lock: as a guarded write, and between `MULTI` and `EXEC`.
pub(crate) fn guarded(plan: &Plan, report: &mut Report) {
    let client = plan.client();
    let guard = client.lock("guarded").guard().expect("the lock is free");
    let mut connection = bare::connect(&plan.server.url());
    by_turns(
        plan,
        report,
        "guarded_vs_multi",
        ["Guard::write", "MULTI … EXEC"],
        || {
            let replies = guard.write(|batch| {
                batch.incr_by("ours:count", 1);
                batch.hset("ours:hash", "field", VALUE).get("ours:count");
            });
            assert_eq!(replies.expect("the lock is held").len(), 3);
        },
        || {
            let mut multi = redis::pipe();
            multi.atomic().cmd("INCRBY").arg("bare:count").arg(1);
            multi.cmd("HSET").arg("bare:hash").arg("field").arg(VALUE);
            multi.cmd("GET").arg("bare:count");
            let (_, _, count): (i64, i64, i64) = multi.query(&mut connection).expect("an answer");
            assert!(count > 0);
        },
    );
}

/// Alternates both sides.
fn by_turns(
    plan: &Plan,
    report: &mut Report,
    key: &'static str,
    sides: [&str; 2],
    mut ours: impl FnMut(),
    mut other: impl FnMut(),
) {
    p50_us(plan.slice / 4, &mut ours);
    p50_us(plan.slice / 4, &mut other);
    let (mut all_ours, mut all_other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for repeat in 0..plan.repeats {
        let (one, two);
        if repeat % 2 == 0 {
            one = p50_us(plan.slice, &mut ours);
            two = p50_us(plan.slice, &mut other);
        } else {
            two = p50_us(plan.slice, &mut other);
            one = p50_us(plan.slice, &mut ours);
        }
        all_ours.push(one);
        all_other.push(two);
        ratios.push(one / two);
    }
    let mut table = Table::new(&format!("{} and {}, p50", sides[0], sides[1]), &["", "µs"]);
    for (side, times) in sides.into_iter().zip([&mut all_ours, &mut all_other]) {
        table.row(vec![side.to_owned(), format!("{:.1}", median(times))]);
    }
    report.table(table);
    report.values(key, ratios);
}

pub(crate) fn p50_us(slice: Duration, call: &mut impl FnMut()) -> f64 {
    let mut times = Vec::with_capacity(1 << 16);
    let end = Instant::now() + slice;
    let mut start = Instant::now();
    while start < end {
        call();
        let done = Instant::now();
        times.push(u32::try_from((done - start).as_nanos()).unwrap_or(u32::MAX));
        start = done;
    }
    f64::from(median(&mut times)) / 1000.0
}
