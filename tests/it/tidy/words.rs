//! Words that only some files may use.

use std::fs;
use std::path::Path;

use super::{below, code, root, says, sources};

/// Words that only some files may use outside of test modules.
struct Rule {
    words: &'static [&'static str],
    /// Files and folders below `src`.
    only_in: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        words: &[".unwrap(", ".expect("],
        only_in: &[],
        why: "nothing panics in a user's process",
    },
    Rule {
        words: &["print!", "println!", "eprint!", "eprintln!", "dbg!"],
        only_in: &[],
        why: "output is the user's",
    },
    Rule {
        words: &["todo!", "unimplemented!"],
        only_in: &[],
        why: "no stubs",
    },
    Rule {
        words: &["unsafe"],
        only_in: &[],
        why: "the crate forbids it",
    },
    Rule {
        words: &["redis::"],
        only_in: &["stores/redis"],
        why: "only this store knows the client",
    },
    Rule {
        words: &["rustls::"],
        only_in: &["stores/redis/transport/tls"],
        why: "only this folder knows the crate",
    },
    Rule {
        words: &["mysql::"],
        only_in: &["stores/mysql"],
        why: "only this store knows the crate",
    },
    Rule {
        words: &[
            "thread::Builder",
            "thread::spawn",
            "thread::scope",
            "thread::sleep",
            "thread::park",
        ],
        only_in: &["ground/sync.rs"],
        why: "the tests run the library on a scheduler of their own, which has to know each thread and each sleep",
    },
    Rule {
        words: &["sync::spawn"],
        only_in: &[
            "ground/sync.rs",
            "engine/watchdog/mod.rs",
            "engine/background_release.rs",
            "engine/client_inner.rs",
            "ground/background.rs",
            "stores/connection_pool.rs",
            "stores/redis/transport/tunnel.rs",
            "stores/redis/subscriber/lazy_thread.rs",
            "stores/redis/transport/credentials.rs",
            "stores/quorum",
        ],
        why: "the threads of a client have names and an end, and a quorum connects to several nodes at a time",
    },
    Rule {
        words: &["Instant::now", "elapsed(", "SystemTime", "clock_gettime"],
        only_in: &["ground/time.rs"],
        why: "the tests run the library in a time of their own",
    },
    Rule {
        words: &["PollFd", "BorrowedFd", "event::poll"],
        only_in: &["ground/poll.rs"],
        why: "the tests wait at connections of their own",
    },
    Rule {
        words: &["Uuid::new_v4"],
        only_in: &["ground/random.rs"],
        why: "the tests draw all chance from a seed",
    },
];

#[test]
fn the_source_keeps_the_house_rules() {
    let mut broken = Vec::new();
    for path in sources() {
        let file = below(&root().join("src"), &path);
        let text = fs::read_to_string(&path).expect("a source file");
        for (number, line) in code(&text) {
            for rule in RULES {
                let mut places = rule.only_in.iter();
                if places.any(|place| Path::new(&file).starts_with(place)) {
                    continue;
                }
                for word in rule.words.iter().filter(|word| says(line, word)) {
                    broken.push(format!("src/{file}:{number}: `{word}`: {}", rule.why));
                }
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
