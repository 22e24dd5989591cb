//! The sentences of the documentation in the source: none opens with a word that makes its reader look for the subject.

use std::fs;

use super::{below, root, sources};

const BARRED: [&str; 4] = ["Who", "Whoever", "What", "Whatever"];

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
    let mut wrong = Vec::new();
    for path in sources() {
        let file = below(&root().join("src"), &path);
        let text = fs::read_to_string(&path).expect("a source file");
        let found = barred(&text);
        wrong.extend(found.iter().map(|sentence| format!("{file}: {sentence}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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
