//! The table of faults: it has every number once, and the tests that it names exist.

use std::fs;

use super::root;

const TABLE: &str = "tests/it/faults/README.md";

/// The faults there are.
const FAULTS: u32 = 71;

/// Where the path of a test in the table may begin.
const BINARIES: [&str; 5] = [
    "tests/it/faults",
    "tests/it",
    "tests/topologies",
    "tests",
    "tests/interop",
];

/// The rows of the table: the number of the fault, and the tests.
fn rows(table: &str) -> Vec<(u32, &str)> {
    table
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| F")?.split(" | ");
            Some((cells.next()?.parse().ok()?, cells.nth(1)?))
        })
        .collect()
}

/// The names of tests in a cell: what is in backticks and has a path.
fn tests(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains("::"))
}

/// Whether there is a test of this path, such as `transport::late::a_reply`.
fn exists(path: &str) -> bool {
    let Some((module, name)) = path.rsplit_once("::") else {
        return false;
    };
    let module = module.replace("::", "/");
    BINARIES.iter().any(|binary| {
        ["", "/mod", "/main"].iter().any(|file| {
            let file = root().join(format!("{binary}/{module}{file}.rs"));
            fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {name}(")))
        })
    })
}

#[test]
fn the_table_of_faults_names_tests_that_exist() {
    let table = fs::read_to_string(root().join(TABLE)).expect("the table of faults");
    let rows = rows(&table);
    let numbers: Vec<_> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=FAULTS).collect::<Vec<_>>(), "{TABLE}");
    let missing: Vec<_> = rows
        .iter()
        .flat_map(|(number, cell)| tests(cell).map(move |test| (number, test)))
        .filter(|(_, test)| !exists(test))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    let silent: Vec<_> = rows
        .iter()
        .filter(|(_, cell)| tests(cell).next().is_none() && !cell.starts_with("none: "))
        .collect();
    assert!(
        silent.is_empty(),
        "neither a test nor a reason: {silent:#?}"
    );
}

#[test]
fn a_test_that_does_not_exist_is_seen() {
    assert!(exists(
        "transport::lost_replies::a_lost_reply_to_a_reentry_counts_once"
    ));
    assert!(exists("shuttle::each_message_wakes_a_waiter_of_its_own"));
    assert!(!exists(
        "transport::lost_replies::a_lost_reply_to_a_reentry"
    ));
    assert!(!exists("transport::a_lost_reply_to_a_reentry_counts_once"));
}
