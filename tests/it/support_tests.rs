//! The support module tested on itself: a fault that does not happen would make every test that relies on it pass.

use std::net::TcpStream;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::history::{Overlap, Summary, check};
use crate::support::{Child, Recorder, RedisServer, child, eventually, ms};

#[test]
fn what_a_process_has_started_ends_with_it_however_it_ends() {
    for is_killed in [true, false] {
        let mut parent = Child::spawn_at("support_tests::entry", "lends servers", &[]);
        let mut addresses = Vec::new();
        if cfg!(feature = "mysql") {
            addresses.push(parent.expect_line("listens on ", ms(60_000)));
        }
        addresses.push(parent.expect_line("listens on ", ms(60_000)));
        let child = parent.expect_line("runs as ", ms(5000));
        if is_killed {
            parent.kill();
        } else {
            assert!(parent.wait(ms(20_000)).success());
        }
        for address in addresses {
            let address = address.trim_start_matches("listens on ");
            eventually(ms(10_000), address, || TcpStream::connect(address).is_err());
        }
        let child = child.trim_start_matches("runs as ").parse();
        let child = child.expect("a process id");
        eventually(ms(10_000), "the child ends", || {
            !crate::support::runs(child)
        });
    }
}

#[test]
fn entry() {
    if child::role().as_deref() == Some("echo") {
        child::say("ready");
        child::listen();
    }
    if child::role().as_deref() == Some("lends servers") {
        let server = RedisServer::start();
        let child = Child::spawn_at("support_tests::entry", "echo", &[]);
        #[cfg(feature = "mysql")]
        let database = crate::support::MariaDb::start();
        #[cfg(feature = "mysql")]
        child::say(&format!("listens on {}", database.addr()));
        child::say(&format!("listens on {}", server.addr()));
        // It cannot end by itself.
        child.freeze();
        child::say(&format!("runs as {}", child.pid()));
        child::listen();
    }
}

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

#[test]
fn a_history_ends_a_hold_where_it_was_last_sure() {
    let lost = verdict(&[
        "1 return a; 3 valid a; 9 lost a; 10 release-invoke a; ",
        "4 return b; 5 release-invoke b; ",
    ]);
    assert_eq!(
        lost,
        Ok(Summary {
            holds: 2,
            owners: 2,
            unanswered: 0,
            lost: 1
        })
    );
    assert!(verdict(&["1 return a; 5 valid a; 9 lost a; ", "4 return b; "]).is_err());
    let killed = verdict(&[
        "1 return a; 3 valid a; 3 inv",
        "4 return b; 5 release-invoke b; ",
    ]);
    assert_eq!(killed.map(|summary| summary.holds), Ok(2));

    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("record");
    let recorder = Recorder::open(&path);
    for (owner, valid) in [("a", true), ("b", false)] {
        recorder.invoke(owner);
        recorder.returned(owner);
        assert!(recorder.check(owner, || true));
        recorder.releasing(owner, || valid);
        recorder.released(owner);
    }
    assert_eq!(
        check(&[path]),
        Ok(Summary {
            holds: 2,
            owners: 2,
            unanswered: 0,
            lost: 1
        })
    );
}
