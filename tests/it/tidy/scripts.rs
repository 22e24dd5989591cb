//! The Lua scripts: their heads say what their texts use.

use std::collections::BTreeSet;

use crate::support::scripts::{all, spliced};

/// The keys and arguments that a line names, such as `KEYS[1]`; `#ARGV`, the last one, is left out.
fn named(line: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for list in ["KEYS[", "ARGV["] {
        for (at, _) in line.match_indices(list) {
            let rest = &line[at + list.len()..];
            let index = rest
                .split(']')
                .next()
                .unwrap_or_default()
                .replace(" * ", "");
            let index = index.replace(' ', "");
            found.extend(
                index
                    .split("or")
                    .filter(|index| *index != "#ARGV")
                    .map(|index| format!("{list}{index}]")),
            );
        }
    }
    found
}

/// What is wrong with the head of a script.
fn flaws(script: &str) -> Vec<String> {
    let head: Vec<_> = script
        .lines()
        .map_while(|line| line.strip_prefix("--"))
        .map(str::trim)
        .collect();
    let opens = |line: &&&str| line.starts_with("KEYS[") || line.starts_with("ARGV[");
    let mut told: BTreeSet<_> = head
        .iter()
        .filter(opens)
        .flat_map(|line| named(line))
        .collect();
    let code = script
        .lines()
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let mut used: BTreeSet<_> = code.flat_map(named).collect();
    // The last key, of a script that is called with fewer for some operations.
    if used.remove("KEYS[#KEYS]") {
        let mut keys = told.iter().filter(|it| it.starts_with("KEYS["));
        used.extend(keys.next_back().cloned());
    }
    let mut flaws = Vec::new();
    if !head.first().is_some_and(|line| line.ends_with('.')) {
        flaws.push("its head does not open with a sentence".to_owned());
    }
    if !head.iter().any(|line| line.starts_with("Returns ")) {
        flaws.push("its head does not say what it returns".to_owned());
    }
    // The number of the request stands last, where a script may take it from the end.
    let number = head
        .iter()
        .rev()
        .find(|line| line.starts_with("ARGV["))
        .filter(|line| line.contains("the number of the request"));
    match number {
        Some(line) if script.contains("ARGV[#ARGV]") => {
            let last: BTreeSet<_> = named(line).difference(&used).cloned().collect();
            told.retain(|told| !last.contains(told));
        }
        Some(_) => {}
        None => flaws.push("its head does not end with the number of the request".to_owned()),
    }
    // Kinds of locks share their arguments, so a kind may say that it does not need one, or always gets the same.
    let is_excused = |argument: &String| {
        head.iter().filter(opens).any(|line| {
            let text = line.split_once(' ').map_or("", |(_, text)| text.trim());
            let is_spare = text.contains("does not use") || text.starts_with(['0', '1']);
            is_spare && named(line).contains(argument)
        })
    };
    let spare: Vec<_> = told
        .difference(&used)
        .filter(|it| !is_excused(it))
        .collect();
    let untold: Vec<_> = used.difference(&told).collect();
    if !spare.is_empty() || !untold.is_empty() {
        flaws.push(format!(
            "its head tells of {spare:?} in vain, and not of {untold:?}"
        ));
    }
    flaws
}

#[test]
fn the_head_of_each_script_says_what_it_uses() {
    let wrong: Vec<_> = all()
        .iter()
        .flat_map(|(path, script)| {
            flaws(&spliced(script))
                .into_iter()
                .map(move |flaw| format!("{path}: {flaw}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_head_that_says_too_little_or_too_much_is_seen() {
    let good = "-- Does.\n--\n-- KEYS[1]  it\n-- ARGV[1]  the number of the request\n--\n-- Returns 1\n\nreturn KEYS[1] + ARGV[1]";
    assert_eq!(flaws(good), Vec::<String>::new());
    for (part, other) in [
        ("-- Does.", "-- Does"),
        ("-- KEYS[1]  it\n", ""),
        ("-- ARGV[1]", "-- ARGV[1]  it\n-- ARGV[2]"),
        ("-- Returns 1\n", ""),
        ("return KEYS[1]", "return KEYS[1] + KEYS[2]"),
        ("the number of the request", "it"),
    ] {
        assert_eq!(flaws(&good.replace(part, other)).len(), 1, "{other}");
    }
}
