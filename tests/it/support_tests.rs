//! Tests of the support module: a fault that is not injected would make every test that relies on it pass.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::history::{Overlap, Summary, check};

fn verdict(records: &[&str]) -> Result<Summary, Overlap> {
    let dir = TempDir::new().expect("a directory");
    let write = |(number, text): (usize, &&str)| {
        let path: PathBuf = dir.path().join(number.to_string());
        std::fs::write(&path, text.replace("; ", "\n")).expect("a record");
        path
    };
    check(&records.iter().enumerate().map(write).collect::<Vec<_>>())
}

#[test]
fn a_history_finds_two_owners_at_once() {
    let clean = verdict(&[
        "1 invoke a; 2 return a; 4 release-invoke a; 7 release-return a; 20 invoke a; ",
        "1 invoke b; 5 return b; 6 return b; 8 release-invoke b; 9 release-invoke b; ",
    ]);
    assert_eq!(
        clean,
        Ok(Summary {
            holds: 2,
            owners: 2,
            unanswered: 1,
            lost: 0
        })
    );
    let overlap = verdict(&[
        "1 invoke a; 2 return a; 4 release-invoke a; ",
        "1 invoke b; 3 return b; ",
    ])
    .unwrap_err();
    assert_eq!(
        (
            overlap.first.owner.as_str(),
            overlap.second.owner.as_str(),
            overlap.second.start
        ),
        ("a", "b", 3)
    );
    let nested = verdict(&[
        "1 return a; 2 return a; 3 release-invoke a; 6 release-invoke a; ",
        "4 return b; ",
    ]);
    assert!(nested.is_err(), "the inner release does not end the hold");
    let hidden = verdict(&[
        "1 return a; 9 release-invoke a; ",
        "2 return a; 3 release-invoke a; 4 return b; ",
    ]);
    assert!(hidden.is_err(), "behind a short hold of the same owner");
}
