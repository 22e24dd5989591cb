//! Tests of the tool: small sources whose changes are found, compiled together and chosen one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::find::{self, Edit, Found};
use crate::rewrite::{SWITCH, rewrite};
use crate::sources;

const SAMPLE: &str = r#"
#[derive(Debug, Default)]
pub struct Size { width: u32, height: u32 }

impl Size {
    fn wide() -> Size {
        Size { width: 3, ..Size { width: 1, height: 2 } }
    }

    fn is_wide(&self) -> bool {
        self.width > self.height
    }
}

fn both(left: bool, right: bool) -> bool {
    left && !right
}

fn sum(left: i32, right: i32) -> i32 {
    left + right * 3
}

fn grow(count: &mut u32) {
    *count += 5;
}

fn kind(count: u32) -> &'static str {
    match count {
        0 => "none",
        // Umlauts (äöü) move what stands behind them.
        few if few < 3 => "few",
        3 | 4 => "some",
        _ => "many",
    }
}

fn positive(count: i32) -> Option<i32> {
    (count > 0).then_some(-count)
}

fn asked(asks: &std::cell::Cell<u32>) -> bool {
    asks.set(asks.get() + 1);
    true
}

fn main() {
    let asks = std::cell::Cell::new(7);
    let mut count = 10;
    grow(&mut count);
    let found = both(false, asked(&asks)) || both(true, asked(&asks));
    let kinds: Vec<_> = (0..6).map(kind).collect();
    let pairs = [both(true, false), both(false, false), both(false, true)];
    println!("{:?} {} {} {}", Size::wide(), Size::wide().is_wide(), Size { width: 2, height: 2 }.is_wide(), Size::default().is_wide());
    println!("{pairs:?} {} {} {} {}", sum(7, 2), sum(1, 1), sum(0, 5), sum(-2, 4));
    println!("{count} {kinds:?} {:?} {:?} {:?}", positive(2), positive(0), positive(-2));
    println!("{found} {}", asks.get());
}
"#;

fn found(text: &str) -> Found {
    find::changes("sample.rs", text, 1).expect("it is Rust")
}

fn words(found: &Found) -> Vec<&str> {
    found.changes.iter().map(|change| &*change.what).collect()
}

/// A program with all changes of a source, in a folder of its own.
struct Program {
    _folder: TempDir,
    path: PathBuf,
}

fn compiled(text: &str) -> Program {
    let found = found(text);
    let written = rewrite(text, &found.edits, &BTreeSet::new());
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("switch.rs"), SWITCH).expect("a file");
    let source = format!("{}\nmod switch;\n", written.text);
    fs::write(folder.path().join("main.rs"), &source).expect("a file");
    let path = folder.path().join("main");
    let output = Command::new("rustc")
        .args(["--edition=2024", "-Awarnings", "-Cdebuginfo=0", "main.rs"])
        .current_dir(folder.path())
        .output()
        .expect("rustc runs");
    assert!(
        output.status.success(),
        "{}\n{source}",
        String::from_utf8_lossy(&output.stderr)
    );
    Program {
        _folder: folder,
        path,
    }
}

impl Program {
    fn run(&self, change: u32) -> String {
        let output = Command::new(&self.path)
            .env("REDLATCH_CHANGE", change.to_string())
            .output();
        String::from_utf8(output.expect("it runs").stdout).expect("text")
    }
}

#[test]
fn each_kind_of_change_is_found_once() {
    let found = found(SAMPLE);
    let expected = [
        "replace Size::wide -> Size with Default::default()",
        "delete field width from struct Size expression in Size::wide",
        "replace Size::is_wide -> bool with true",
        "replace Size::is_wide -> bool with false",
        "replace > with == in Size::is_wide",
        "replace > with < in Size::is_wide",
        "replace > with >= in Size::is_wide",
        "replace both -> bool with true",
        "replace both -> bool with false",
        "replace && with || in both",
        "delete ! in both",
        "replace sum -> i32 with 0",
        "replace sum -> i32 with 1",
        "replace sum -> i32 with -1",
        "replace + with - in sum",
        "replace + with * in sum",
        "replace * with + in sum",
        "replace * with / in sum",
        "replace grow with ()",
        "replace += with -= in grow",
        "replace += with *= in grow",
        "replace kind -> &'static str with \"\"",
        "replace kind -> &'static str with \"xyzzy\"",
        "delete match arm 0 in kind",
        "replace match guard few < 3 with true in kind",
        "replace match guard few < 3 with false in kind",
        "replace < with == in kind",
        "replace < with > in kind",
        "replace < with <= in kind",
        "delete match arm 3 | 4 in kind",
        "replace positive -> Option<i32> with None",
        "replace positive -> Option<i32> with Some(0)",
        "replace positive -> Option<i32> with Some(1)",
        "replace positive -> Option<i32> with Some(-1)",
        "replace > with == in positive",
        "replace > with < in positive",
        "replace > with >= in positive",
        "delete - in positive",
        "replace asked -> bool with true",
        "replace asked -> bool with false",
        "replace + with - in asked",
        "replace + with * in asked",
        "replace main with ()",
        "replace || with && in main",
    ];
    assert_eq!(words(&found), expected);
    assert_eq!(
        found.changes[1].name().split(": ").next(),
        Some("sample.rs:7:16")
    );
    assert!(
        found.left_out.is_empty() && found.unviable == 0,
        "{found:?}"
    );
}

#[test]
fn each_change_is_made_alone() {
    let program = compiled(SAMPLE);
    let unchanged = "Size { width: 3, height: 2 } true false false\n\
        [true, false, false] 13 4 15 10\n\
        15 [\"none\", \"few\", \"few\", \"some\", \"some\", \"many\"] Some(-2) None None\n\
        false 9\n";
    assert_eq!(program.run(0), unchanged);
    let seen: BTreeMap<_, _> = found(SAMPLE)
        .changes
        .iter()
        .map(|change| (change.what.clone(), program.run(change.number)))
        .collect();
    for (change, output) in &seen {
        assert_ne!(output, unchanged, "{change}");
    }
    let expected = [
        (
            "replace Size::wide -> Size with Default::default()",
            "Size { width: 0, height: 0 } false false false",
        ),
        (
            "delete field width from struct Size expression in Size::wide",
            "Size { width: 1, height: 2 } false false false",
        ),
        (
            "replace > with >= in Size::is_wide",
            "Size { width: 3, height: 2 } true true true",
        ),
        ("delete ! in both", "[false, false, false] 13 4 15 10"),
        // As the text would be with the other operator: 7 * (2 * 3), and (7) + (2 + 3).
        ("replace + with * in sum", "[true, false, false] 42 3 0 -24"),
        ("replace * with + in sum", "[true, false, false] 12 5 8 5"),
        (
            "replace += with *= in grow",
            "50 [\"none\", \"few\", \"few\", \"some\", \"some\", \"many\"] Some(-2) None None",
        ),
        (
            "delete match arm 0 in kind",
            "15 [\"few\", \"few\", \"few\", \"some\", \"some\", \"many\"] Some(-2) None None",
        ),
        (
            "replace match guard few < 3 with true in kind",
            "15 [\"none\", \"few\", \"few\", \"few\", \"few\", \"few\"] Some(-2) None None",
        ),
        (
            "replace match guard few < 3 with false in kind",
            "15 [\"none\", \"many\", \"many\", \"some\", \"some\", \"many\"] Some(-2) None None",
        ),
        (
            "replace < with == in kind",
            "15 [\"none\", \"many\", \"many\", \"few\", \"some\", \"many\"] Some(-2) None None",
        ),
        (
            "replace positive -> Option<i32> with Some(1)",
            "15 [\"none\", \"few\", \"few\", \"some\", \"some\", \"many\"] Some(1) Some(1) Some(1)",
        ),
        (
            "delete - in positive",
            "15 [\"none\", \"few\", \"few\", \"some\", \"some\", \"many\"] Some(2) None None",
        ),
        ("replace main with ()", ""),
        // The right side is not asked where the left one decides.
        ("replace || with && in main", "false 8"),
    ];
    for (change, line) in expected {
        let output = seen.get(change).expect(change);
        assert!(
            output.lines().any(|it| it == line) || output == line,
            "{change}: {output}"
        );
    }
}

#[test]
fn a_record_names_the_changes_that_are_reached_and_makes_none() {
    let program = compiled(SAMPLE);
    let file = program.path.with_extension("reached");
    let output = Command::new(&program.path)
        .env("REDLATCH_REACHED", &file)
        .env("REDLATCH_CHANGE", "1")
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), program.run(0));
    let reached = fs::read_to_string(&file).expect("a record");
    let mut reached: Vec<u32> = reached
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    reached.sort_unstable();
    let all: Vec<u32> = found(SAMPLE)
        .changes
        .iter()
        .map(|change| change.number)
        .collect();
    assert_eq!(reached, all, "main gets everywhere, and each is told once");
}

#[test]
fn code_for_tests_and_constants_are_not_changed() {
    let text = r#"
        const SUM: u32 = 1 + 2;
        static LIMIT: u32 = 3 * 4;
        const fn half(of: u32) -> u32 { of / 2 }
        enum Level { Low = 1 << 2 }
        struct Row([u8; 2 + 2]);
        fn wide() -> usize { let row = [0; 1 + 1]; row.len() }
        fn all() -> impl Iterator<Item = u32> { 0..3 }
        fn ends() -> ! { std::process::exit(1) }
        unsafe fn raw() -> bool { true }
        fn empty() {}
        impl Default for Row { fn default() -> Row { Row([1; 4]) } }
        impl Row { fn new() -> bool { 1 == 2 } }
        #[cfg(test)]
        mod tests { fn is() -> bool { 1 == 2 } }
        #[test]
        fn is() { assert!(1 == 2); }
        #[cfg(not(feature = "tls"))]
        fn without() -> bool { false }
        #[cfg(all(unix, feature = "tls"))]
        fn with() -> bool { false }
        #[cfg(any(redlatch_shuttle, test))]
        fn simulated() -> bool { false }
    "#;
    let found = found(text);
    let expected = [
        "replace wide -> usize with 0",
        "replace wide -> usize with 1",
        "replace with -> bool with true",
    ];
    assert_eq!(words(&found), expected);
    let left_out: Vec<_> = found
        .left_out
        .iter()
        .map(|(name, _)| name.rsplit(": ").next().unwrap_or(name))
        .collect();
    let expected = [
        "replace + with -",
        "replace + with *",
        "replace * with +",
        "replace * with /",
        "replace half -> u32 with 0",
        "replace half -> u32 with 1",
        "replace / with % in half",
        "replace / with * in half",
        "replace << with >>",
        "replace + with - in wide",
        "replace + with * in wide",
        "replace all -> impl Iterator<Item = u32> with a value",
    ];
    assert_eq!(left_out, expected);
}

#[test]
fn a_chain_with_let_keeps_its_operators_and_its_parts_are_changed() {
    let text = "fn is(it: Option<u32>, n: u32) -> bool { if let Some(it) = it && it == n && n < 5 { n > 1 } else { false } }";
    let found = found(text);
    assert_eq!(found.unviable, 2);
    assert!(
        words(&found).contains(&"replace == with != in is"),
        "{found:?}"
    );
    let program = compiled(&format!(
        "{text}\nfn main() {{ println!(\"{{}}\", is(Some(2), 2)); }}"
    ));
    assert_eq!(program.run(0), "true\n");
}

#[test]
fn values_are_drawn_from_the_type() {
    let of = |result: &str| {
        let text = format!("fn it() -> {result} {{ todo!() }}");
        let found = found(&text);
        let value = |what: &&str| {
            what.rsplit_once(" with ")
                .map(|(_, value)| value.to_owned())
        };
        words(&found).iter().filter_map(value).collect::<Vec<_>>()
    };
    assert_eq!(of("Result<(), Error>"), ["Ok(())"]);
    assert_eq!(of("Option<bool>"), ["None", "Some(true)", "Some(false)"]);
    assert_eq!(
        of("Vec<String>"),
        ["vec![]", "vec![String::new()]", "vec![\"xyzzy\".into()]"]
    );
    assert_eq!(
        of("(bool, &str)"),
        [
            "(true, \"\",)",
            "(true, \"xyzzy\",)",
            "(false, \"\",)",
            "(false, \"xyzzy\",)"
        ]
    );
    assert_eq!(of("&Duration"), ["Box::leak(Box::new(Default::default()))"]);
    assert_eq!(of("[u8; 2]"), ["[0; 2]", "[1; 2]"]);
    assert_eq!(of("Arc<u32>"), ["Arc::new(0)", "Arc::new(1)"]);
    assert_eq!(of("fmt::Result"), ["Ok(Default::default())"]);
    assert_eq!(of("MutexGuard<'_, bool>").len(), 7);
}

#[test]
fn an_error_is_blamed_on_the_innermost_change() {
    let text = "fn it(a: u32, b: u32) -> bool { match a { 1 => a + b == 2, _ => false } }";
    let found = found(text);
    let number = |what: &str| {
        let change = found.changes.iter().find(|change| change.what == what);
        change.expect(what).number
    };
    let written = rewrite(text, &found.edits, &BTreeSet::new());
    let blamed = |part: &str| {
        let at = written.text.find(part).expect(part);
        written.blamed(&(at..at + part.len()))
    };
    assert_eq!(
        blamed("(a) - (b)"),
        Some((&[number("replace + with - in it")][..], true))
    );
    assert_eq!(
        blamed("(a + b) != (2)"),
        Some((&[number("replace == with != in it")][..], true))
    );
    assert_eq!(blamed("fn it"), None);
    let (numbers, is_changed) = blamed("if !crate::").expect("an arm");
    assert_eq!(
        (numbers, is_changed),
        (&[number("delete match arm 1 in it")][..], false)
    );
    let returned = blamed("return true").expect("a body");
    assert_eq!(
        returned,
        (&[number("replace it -> bool with true")][..], true)
    );

    let all = found.changes.iter().map(|change| change.number).collect();
    assert_eq!(
        rewrite(text, &found.edits, &all).text,
        text,
        "without changes it is as it was"
    );
    assert!(matches!(found.edits[0], Edit::Body { .. }));
}

#[test]
fn the_files_of_modules_are_found_and_those_of_tests_are_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let put = |file: &str, text: &str| {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    put(
        "src/lib.rs",
        "mod one; mod two { mod inner; } #[cfg(test)] mod tests;",
    );
    put("src/one/mod.rs", "mod below;");
    put("src/one/below.rs", "");
    put("src/two/inner.rs", "");
    put("src/tests.rs", "");
    let expected = [
        "src/lib.rs",
        "src/one/below.rs",
        "src/one/mod.rs",
        "src/two/inner.rs",
    ];
    assert_eq!(sources::modules(folder.path()).expect("modules"), expected);
    assert!(
        sources::matches("src/*/below.rs", expected[1])
            && sources::matches("src/**/*.rs", expected[0])
    );
    assert!(
        !sources::matches("src/*.rs", expected[1]) && !sources::matches("src/one", expected[1])
    );
}

#[test]
fn the_changes_of_the_library_are_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let engine: Vec<_> = sources::modules(&root).expect("modules");
    assert!(
        engine
            .iter()
            .any(|file| file == "src/engine/hold/validity.rs"),
        "{engine:?}"
    );
    assert!(
        !engine.iter().any(|file| file.ends_with("/tests.rs")),
        "{engine:?}"
    );
    let file = "src/engine/hold/validity.rs";
    let text = fs::read_to_string(root.join(file)).expect("a file");
    assert!(
        find::changes(file, &text, 1)
            .expect("it is Rust")
            .changes
            .len()
            > 10
    );
}
