//! The sentences of the documentation in the source: none opens with a word that makes its reader look for the subject.

use std::collections::BTreeMap;
use std::fs;

use super::{below, root, sources};

const BARRED: [&str; 4] = ["Who", "Whoever", "What", "Whatever"];

/// Files that still have such sentences, and how many. The numbers may only fall; an entry goes with its last sentence.
const LEFT: &[(&str, usize)] = &[
    ("engine/client_inner.rs", 3),
    ("engine/hold/mod.rs", 3),
    ("engine/hold/renewal.rs", 2),
    ("engine/hold/state.rs", 2),
    ("engine/in_doubt.rs", 2),
    ("engine/loss_notice.rs", 1),
    ("engine/owner/holds.rs", 1),
    ("engine/owner/mod.rs", 1),
    ("engine/raw_lock/mod.rs", 1),
    ("engine/timer.rs", 1),
    ("engine/wait_loop/mod.rs", 1),
    ("engine/wait_queue.rs", 2),
    ("engine/watchdog/jobs.rs", 4),
    ("engine/watchdog/mod.rs", 5),
    ("ground/claim.rs", 2),
    ("ground/clock.rs", 2),
    ("ground/events.rs", 1),
    ("ground/mod.rs", 1),
];

/// The sentences of doc comments in a text that open with a barred word.
fn barred(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = String::new();
    let mut is_code = false;
    for line in text.lines() {
        let line = line.trim_start();
        let Some(doc) = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
        else {
            before.clear();
            continue;
        };
        let doc = doc.trim();
        if doc.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || doc.is_empty() {
            before.clear();
            continue;
        }
        let doc = doc.trim_start_matches(['-', '*', '|', ' ']);
        let mut rest = doc;
        let mut opens = before.is_empty() || before.ends_with(['.', '!', '?']);
        loop {
            let word = rest
                .split(|sign: char| !sign.is_alphabetic())
                .next()
                .unwrap_or_default();
            let sentence = rest.split_inclusive(". ").next().unwrap_or(rest);
            if opens && BARRED.contains(&word) && !sentence.contains('?') {
                found.push(sentence.trim().to_owned());
            }
            let Some((_, next)) = rest.split_once(". ") else {
                break;
            };
            rest = next.trim_start();
            opens = true;
        }
        doc.clone_into(&mut before);
    }
    found
}

#[test]
fn no_sentence_of_the_documentation_hides_its_subject() {
    let known: BTreeMap<_, _> = LEFT.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in sources() {
        let file = below(&root().join("src"), &path);
        let text = fs::read_to_string(&path).expect("a source file");
        let found = barred(&text);
        let allowed = known.get(&*file).copied().unwrap_or(0);
        seen += usize::from(known.contains_key(&*file));
        if found.len() > allowed {
            wrong.push(format!("(\"{file}\", {}), {found:?}", found.len()));
        } else if found.len() < allowed {
            wrong.push(format!("(\"{file}\", {}), not {allowed}", found.len()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(seen, LEFT.len(), "files that are no more");
}

#[test]
fn a_sentence_that_hides_its_subject_is_seen() {
    let count = |text: &str| barred(text).len();
    assert_eq!(count("/// Whoever holds it may go.\nfn f() {}"), 1);
    assert_eq!(count("/// A lock. What waits is\n/// woken."), 1);
    assert_eq!(count("/// It says\n/// What it is."), 0, "the line goes on");
    assert_eq!(count("/// It ends.\n/// Who waits is woken."), 1);
    assert_eq!(
        count("/// What is a lock? One asks.\n/// ```\n/// Who\n/// ```"),
        0
    );
    assert_eq!(count("// What a comment says.\n/// Whatever_else"), 1);
}
