use redis::Value;

use super::answer::named_in;
use super::*;
use crate::stores::redis::drawn::{altered, draws};
use crate::stores::redis::transport::Announced;

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn named(host: &str, epoch: i64) -> Named {
    Named {
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
    let expected = Named {
        host: "10.0.0.1".to_owned(),
        port: 6379,
        epoch: 7,
        announced: Announced::default(),
    };
    assert_eq!(named_in(&address, &details), Some(expected));
    assert_eq!(named_in(&Value::Nil, &Value::Nil), None);
    assert_eq!(named_in(&address, &Value::Nil).map(|it| it.epoch), Some(0));
}

#[test]
fn masters_rank_by_epoch_then_by_reports() {
    let of = |named: &[Named]| ranked(named, 3).first().map(|it| it.host.clone());
    assert_eq!(of(&[]), None);
    let late = [named("old", 1), named("new", 2), named("new", 2)];
    assert_eq!(of(&late), Some("new".to_owned()));
    let even = [named("b", 0), named("a", 0), named("b", 0)];
    assert_eq!(of(&even), Some("b".to_owned()));
    // One report is not enough if other sentinels agree.
    let lone = [named("a", 1), named("b", 9), named("a", 1)];
    assert_eq!(ranked(&lone, 3), [named("a", 1)]);
    let two = [named("a", 1), named("b", 9)];
    assert_eq!(ranked(&two, 3), [named("b", 9), named("a", 1)]);
    assert_eq!(ranked(&two, 2), [named("b", 9), named("a", 1)]);
}

#[test]
fn enough_reports_replace_the_accepted_master() {
    let (old, new, other) = (named("old", 4), named("new", 5), named("other", 6));
    let over = |answers: &[&Named], configured| {
        let answers: Vec<Named> = answers.iter().copied().cloned().collect();
        overruled(&new, &answers, configured, true)
    };
    // No reports, or none of a later failover.
    for answers in [
        &[][..],
        &[&new],
        &[&old],
        &[&old, &new],
        &[&new, &new, &old],
    ] {
        assert_eq!(over(answers, 3), None, "{answers:?}");
    }
    // A later failover: two reports, or one if fewer than three sentinels are configured.
    assert_eq!(over(&[&other], 3), None);
    assert_eq!(over(&[&other, &new, &new], 3), None);
    assert_eq!(over(&[&other, &new, &other], 3), Some(other.clone()));
    assert_eq!(over(&[&other, &new], 2), Some(other.clone()));
    let later = other.since(7);
    assert_eq!(over(&[&other, &later], 5), Some(other.clone()));
    // The same server after a later failover.
    let again = new.since(8);
    assert_eq!(over(&[&again, &again], 3), Some(again));
    // An earlier failover: a majority of the configured sentinels.
    assert_eq!(over(&[&old, &old], 3), Some(old.clone()));
    assert_eq!(over(&[&old, &old], 5), None);
    assert_eq!(over(&[&old], 2), None);
    assert_eq!(over(&[&old], 1), Some(old.clone()));
    let answers = [old.clone(), old];
    assert_eq!(overruled(&new, &answers, 3, false), None);
    // Sentinels that were set up again restart their epochs.
    let anew = new.since(0);
    assert_eq!(over(&[&anew, &anew], 3), Some(anew));
}

#[test]
fn one_report_counts_only_if_the_known_master_failed() {
    let (old, new, other) = (named("old", 4), named("new", 5), named("other", 6));
    assert_eq!(
        told_by_one(&old, &[old.clone(), new.clone()]),
        Some(new.clone())
    );
    assert_eq!(told_by_one(&new, &[old.clone(), new.clone()]), None);
    assert_eq!(told_by_one(&new, &[new.since(7)]), None);
    let doubt = |answers: &[&Named], missed| {
        let answers: Vec<Named> = answers.iter().copied().cloned().collect();
        doubt_about(&new, &answers, 3, missed)
    };
    assert_eq!(doubt(&[&new], Standing::NoMaster), None);
    assert_eq!(doubt(&[&new, &old], Standing::NoMaster), None);
    assert!(doubt(&[&new, &old, &old], Standing::NoMaster).is_some());
    assert_eq!(doubt(&[&new], Standing::Silent), None);
    assert!(doubt(&[&new, &old], Standing::Silent).is_some());
    assert!(doubt(&[&new, &other], Standing::Silent).is_some());
    assert!(doubt(&[&new], Standing::Unclear).is_some());
    // Another server with the same epoch does not count.
    assert_eq!(told_by_one(&new, &[other.since(5)]), None);
}

#[test]
fn an_epoch_counts_if_enough_sentinels_report_it() {
    let a = |epoch| named("a", epoch);
    assert_eq!(ranked(&[a(9), a(3), a(7)], 3), [a(7)]);
    assert_eq!(ranked(&[a(9), a(3), a(7)], 2), [a(9)]);
    assert_eq!(ranked(&[a(9)], 3), [a(9)]);
}

#[test]
fn a_report_without_a_later_epoch_is_no_news() {
    let known = named("a", 5);
    for (told, is_no_news) in [
        (named("a", 5), true),
        (named("a", 4), true),
        (named("a", 6), false),
        (named("b", 5), false),
        (named("b", 4), false),
        (named("b", 6), false),
    ] {
        assert_eq!(told.is_no_news(&known), is_no_news, "{told:?}");
    }
}

#[test]
fn only_config_epoch_is_read() {
    let address = Value::Array(vec![text("h"), text("1")]);
    let details = ["quorum", "3", "config-epoch", "7", "failover-epoch", "9"];
    let details = Value::Array(details.into_iter().map(text).collect());
    assert_eq!(named_in(&address, &details).map(|it| it.epoch), Some(7));
}

#[test]
fn random_replies_of_sentinels_are_ranked() {
    let address = b"*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n";
    let details = b"*6\r\n$4\r\nname\r\n$1\r\nm\r\n$12\r\nconfig-epoch\r\n$1\r\n7\r\n$5\r\nflags\r\n$6\r\nmaster\r\n";
    draws("sentinel", |draw| {
        let count = draw.usize(1..=4);
        let answers = (0..count).filter_map(|_| {
            let (address, details) = (altered(draw, &[address]), altered(draw, &[details]));
            named_in(&address, &details)
        });
        let answers: Vec<Named> = answers.collect();
        let ranked = ranked(&answers, count);
        assert_eq!(ranked.is_empty(), answers.is_empty());
        if let [believed, others @ ..] = &*answers {
            let named = |it: &Named| answers.iter().any(|one| one.node() == it.node());
            let told = told_by_one(believed, others);
            let over = overruled(believed, others, count, draw.bool());
            assert!(told.iter().chain(&over).chain(&ranked).all(named));
        }
    });
}
