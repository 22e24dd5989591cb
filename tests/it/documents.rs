//! The README and the pages in `docs/`: links, commands, names, and that their code runs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every document of the repository's root and of `docs/`, as a path from the root.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/migrate"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The numbered lines outside of code blocks.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((at + 1, line));
        }
    }
    lines
}

/// The targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

/// The anchor of a heading on the usual hosts.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|sign| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = read(&document);
        for (number, line) in prose(&text) {
            for link in links(line).filter(|link| !link.contains("://")) {
                let (file, wanted) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => document.clone(),
                    file => document.parent().unwrap().join(file),
                };
                let there = root().join(&target);
                let is_there = there.exists()
                    && (wanted.is_empty() || anchors(&read(&target)).contains(wanted));
                if !is_there {
                    broken.push(format!("{}:{number}: {link}", document.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let readme = read(Path::new("README.md"));
    for page in documents() {
        let path = page.to_str().unwrap();
        let is_page = path.starts_with("docs");
        assert!(
            !is_page || readme.contains(&format!("]({path})")),
            "{path} is not linked"
        );
    }
}

#[test]
fn the_code_of_every_page_runs() {
    // Pages that need more crates than the library run in a package of their own.
    let sources = [
        ("src/lib.rs", "../"),
        ("tests/worlds/src/lib.rs", "../../../"),
    ];
    let sources = sources.map(|(file, up)| (read(Path::new(file)), up));
    for page in documents() {
        let is_run = sources.iter().any(|(source, up)| {
            source.contains(&format!("include_str!(\"{up}{}\")", page.display()))
        });
        let has_code = read(&page).contains("```rust");
        assert!(is_run || !has_code, "{} is no doctest", page.display());
        let text = read(&page);
        let skipped = text.contains("rust,ignore") || text.contains("rust,text");
        assert!(!skipped, "code of {} is skipped", page.display());
    }
}

/// The word after each occurrence of `command` at the start of a line or of a code span.
fn arguments<'a>(text: &'a str, command: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let spans = line.split('`').skip(1).step_by(2);
        for span in spans.chain([line]) {
            if let Some(rest) = span.strip_prefix(command)
                && let Some(word) = rest.split(&[' ', '|'][..]).next()
                && word
                    .chars()
                    .all(|sign| sign.is_alphanumeric() || sign == '-')
            {
                found.insert(word);
            }
        }
    }
    found
}

#[test]
fn the_commands_of_the_documents_exist() {
    let makefile = read(Path::new("Makefile"));
    let mut seen = 0;
    for document in documents() {
        let text = read(&document);
        for target in arguments(&text, "make ") {
            let is_there = makefile
                .lines()
                .any(|line| line.starts_with(&format!("{target}:")));
            assert!(is_there, "{}: make {target}", document.display());
            seen += 1;
        }
        for (command, folder) in [
            ("cargo run --example ", "examples"),
            ("cargo bench --bench ", "benches"),
        ] {
            for name in arguments(&text, command) {
                let path = root().join(folder).join(name);
                let is_there = path.with_extension("rs").exists() || path.join("main.rs").exists();
                assert!(is_there, "{}: {command}{name}", document.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "only {seen} commands were found");
}

/// The code spans of prose.
fn spans(text: &str) -> BTreeSet<&str> {
    let prose = prose(text).into_iter();
    prose
        .flat_map(|(_, line)| line.split('`').skip(1).step_by(2))
        .collect()
}

/// The type or function that a code span names; `None` for anything else.
fn named(span: &str) -> Option<&str> {
    let path = span.strip_suffix("()").unwrap_or(span);
    let is_name = path.split("::").all(|part| {
        let mut signs = part.chars();
        signs.next().is_some_and(char::is_alphabetic)
            && signs.all(|sign| sign.is_alphanumeric() || sign == '_')
    });
    let is_ours = path.contains("::") || path.starts_with(char::is_uppercase);
    (is_name && is_ours && path.contains(char::is_lowercase)).then(|| path.rsplit("::").next())?
}

#[test]
fn the_architecture_names_existing_files() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let sources = crate::tidy::files(&root().join("src"));
    let sources: Vec<_> = sources.iter().map(|path| read(path)).collect();
    let defines = |name: &str| {
        let heads = ["struct", "enum", "trait", "fn", "type"].map(|word| format!("{word} {name}"));
        let is_end =
            |rest: &str| !rest.starts_with(|sign: char| sign.is_alphanumeric() || sign == '_');
        sources.iter().any(|source| {
            heads.iter().any(|head| source.split(head.as_str()).skip(1).any(is_end))
                // An enum variant.
                || source.lines().any(|line| line.trim_start().strip_prefix(name).is_some_and(|rest| [" {", ",", "("].iter().any(|end| rest.starts_with(end))))
        })
    };
    let mut gone = Vec::new();
    let (mut paths, mut names) = (0, 0);
    for span in spans(&text) {
        if span.contains('/') {
            paths += 1;
            if !root().join(span).exists() {
                gone.push(span);
            }
        } else if let Some(name) = named(span) {
            names += 1;
            if !defines(name) {
                gone.push(span);
            }
        }
    }
    assert!(paths > 20 && names > 5, "{paths} paths, {names} names");
    assert!(gone.is_empty(), "{gone:?}");
}

/// The rows of the table below a heading, without the header.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = text.split(heading).nth(1).unwrap().lines();
    let table = lines.skip_while(|line| !line.starts_with('|'));
    table
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .collect()
}

#[test]
fn each_promise_has_tests_that_exist() {
    let contributing = read(Path::new("CONTRIBUTING.md"));
    let tested = rows(&contributing, "\n## Promises\n");
    let readme = read(Path::new("README.md"));
    let promised = rows(&readme, "\n## What is promised\n");
    assert_eq!(tested.len(), promised.len());
    let tests = crate::tidy::files(&root().join("tests"));
    let tests: Vec<_> = tests.iter().map(|path| read(path)).collect();
    for row in tested {
        let names: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            let head = format!("fn {name}(");
            assert!(tests.iter().any(|text| text.contains(&head)), "{name}");
        }
    }
}

#[test]
fn the_checks_of_documents_detect_violations() {
    let text = "```sh\nmake demo    # a\n```\nsee `make test` and make no `make …`";
    assert_eq!(arguments(text, "make "), ["demo", "test"].into());
    assert_eq!(named("Lock::try_lock()"), Some("try_lock"));
    assert_eq!(named("Store"), Some("Store"));
    let others = ["make test", "KEYS", "a", "acquire.lua", "lock()"];
    assert!(others.iter().all(|other| named(other).is_none()));
    assert_eq!(anchor("Side by side, `x`"), "side-by-side-x");
    assert_eq!(
        links("[a](b.md#c) and [d](e)").collect::<Vec<_>>(),
        ["b.md#c", "e"]
    );
    let text = "# A\n```text\n# B\n```\nc";
    assert_eq!(prose(text), [(1, "# A"), (5, "c")]);
}
