use redis::Value;

use super::report::report_in;
use super::*;
use crate::stores::redis::random_replies::{altered, draws};
use crate::stores::redis::transport::Announced;

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn report(host: &str, epoch: i64) -> Report {
    Report {
        host: host.to_owned(),
        port: 1,
        epoch,
        announced: Announced::default(),
    }
}

#[test]
fn replies_of_sentinels_are_parsed() {
    let address = Value::Array(vec![text("10.0.0.1"), text("6379")]);
    let details = ["name", "m", "config-epoch", "7", "flags", "master"];
    let details = Value::Array(details.into_iter().map(text).collect());
    let expected = Report {
        host: "10.0.0.1".to_owned(),
        port: 6379,
        epoch: 7,
        announced: Announced::default(),
    };
    assert_eq!(report_in(&address, &details), Some(expected));
    assert_eq!(report_in(&Value::Nil, &Value::Nil), None);
    assert_eq!(report_in(&address, &Value::Nil).map(|it| it.epoch), Some(0));
}

#[test]
fn masters_rank_by_epoch_then_by_reports() {
    let of = |report: &[Report]| ranked(report, 3).first().map(|it| it.host.clone());
    assert_eq!(of(&[]), None);
    let late = [report("old", 1), report("new", 2), report("new", 2)];
    assert_eq!(of(&late), Some("new".to_owned()));
    let even = [report("b", 0), report("a", 0), report("b", 0)];
    assert_eq!(of(&even), Some("b".to_owned()));
    // One report is not enough if the other sentinels agree on another master.
    let lone = [report("a", 1), report("b", 9), report("a", 1)];
    assert_eq!(ranked(&lone, 3), [report("a", 1)]);
    let two = [report("a", 1), report("b", 9)];
    assert_eq!(ranked(&two, 3), [report("b", 9), report("a", 1)]);
    assert_eq!(ranked(&two, 2), [report("b", 9), report("a", 1)]);
}

#[test]
fn enough_reports_replace_the_accepted_master() {
    let (old, new, other) = (report("old", 4), report("new", 5), report("other", 6));
    let over = |reports: &[&Report], configured| {
        let reports: Vec<Report> = reports.iter().copied().cloned().collect();
        newly_accepted(&new, &reports, configured, true)
    };
    // No report has a later epoch than the accepted master `new`.
    for reports in [
        &[][..],
        &[&new],
        &[&old],
        &[&old, &new],
        &[&new, &new, &old],
    ] {
        assert_eq!(over(reports, 3), None, "{reports:?}");
    }
    // A later failover needs two reports, or one if fewer than three sentinels are configured.
    assert_eq!(over(&[&other], 3), None);
    assert_eq!(over(&[&other, &new, &new], 3), None);
    assert_eq!(over(&[&other, &new, &other], 3), Some(other.clone()));
    assert_eq!(over(&[&other, &new], 2), Some(other.clone()));
    let later = other.with_epoch(7);
    assert_eq!(over(&[&other, &later], 5), Some(other.clone()));
    // A later failover may lead to the same server.
    let again = new.with_epoch(8);
    assert_eq!(over(&[&again, &again], 3), Some(again));
    // An earlier failover needs a majority of the configured sentinels.
    assert_eq!(over(&[&old, &old], 3), Some(old.clone()));
    assert_eq!(over(&[&old, &old], 5), None);
    assert_eq!(over(&[&old], 2), None);
    assert_eq!(over(&[&old], 1), Some(old.clone()));
    let reports = [old.clone(), old];
    assert_eq!(newly_accepted(&new, &reports, 3, false), None);
    // Sentinels that were set up again restart their epochs.
    let anew = new.with_epoch(0);
    assert_eq!(over(&[&anew, &anew], 3), Some(anew));
}

#[test]
fn one_report_counts_only_if_the_known_master_failed() {
    let (old, new, other) = (report("old", 4), report("new", 5), report("other", 6));
    assert_eq!(
        lone_report(&old, &[old.clone(), new.clone()]),
        Some(new.clone())
    );
    assert_eq!(lone_report(&new, &[old.clone(), new.clone()]), None);
    assert_eq!(lone_report(&new, &[new.with_epoch(7)]), None);
    let doubt = |reports: &[&Report], failure| {
        let reports: Vec<Report> = reports.iter().copied().cloned().collect();
        reason_to_ignore(&new, &reports, 3, failure)
    };
    assert_eq!(doubt(&[&new], MasterState::NoMaster), None);
    assert_eq!(doubt(&[&new, &old], MasterState::NoMaster), None);
    assert!(doubt(&[&new, &old, &old], MasterState::NoMaster).is_some());
    assert_eq!(doubt(&[&new], MasterState::Silent), None);
    assert!(doubt(&[&new, &old], MasterState::Silent).is_some());
    assert!(doubt(&[&new, &other], MasterState::Silent).is_some());
    assert!(doubt(&[&new], MasterState::Unclear).is_some());
    // Another server with the same epoch does not count.
    assert_eq!(lone_report(&new, &[other.with_epoch(5)]), None);
}

#[test]
fn an_epoch_counts_if_enough_sentinels_report_it() {
    let a = |epoch| report("a", epoch);
    assert_eq!(ranked(&[a(9), a(3), a(7)], 3), [a(7)]);
    assert_eq!(ranked(&[a(9), a(3), a(7)], 2), [a(9)]);
    assert_eq!(ranked(&[a(9)], 3), [a(9)]);
}

#[test]
fn a_report_without_a_later_epoch_is_no_news() {
    let known = report("a", 5);
    for (told, is_no_newer_than) in [
        (report("a", 5), true),
        (report("a", 4), true),
        (report("a", 6), false),
        (report("b", 5), false),
        (report("b", 4), false),
        (report("b", 6), false),
    ] {
        assert_eq!(told.is_no_newer_than(&known), is_no_newer_than, "{told:?}");
    }
}

#[test]
fn only_config_epoch_is_read() {
    let address = Value::Array(vec![text("h"), text("1")]);
    let details = ["quorum", "3", "config-epoch", "7", "failover-epoch", "9"];
    let details = Value::Array(details.into_iter().map(text).collect());
    assert_eq!(report_in(&address, &details).map(|it| it.epoch), Some(7));
}

#[test]
fn random_replies_of_sentinels_are_ranked() {
    let address = b"*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n";
    let details = b"*6\r\n$4\r\nname\r\n$1\r\nm\r\n$12\r\nconfig-epoch\r\n$1\r\n7\r\n$5\r\nflags\r\n$6\r\nmaster\r\n";
    draws("sentinel", |draw| {
        let count = draw.usize(1..=4);
        let reports = (0..count).filter_map(|_| {
            let (address, details) = (altered(draw, &[address]), altered(draw, &[details]));
            report_in(&address, &details)
        });
        let reports: Vec<Report> = reports.collect();
        let ranked = ranked(&reports, count);
        assert_eq!(ranked.is_empty(), reports.is_empty());
        if let [accepted, others @ ..] = &*reports {
            let report = |it: &Report| reports.iter().any(|one| one.node() == it.node());
            let told = lone_report(accepted, others);
            let over = newly_accepted(accepted, others, count, draw.bool());
            assert!(told.iter().chain(&over).chain(&ranked).all(report));
        }
    });
}
