//! A strict reader of OpenMetrics text, as far as this library writes it.

use std::collections::{BTreeMap, BTreeSet};

/// A page that was read.
pub(super) struct Page {
    pub(super) families: BTreeMap<String, Family>,
    pub(super) samples: Vec<Sample>,
}

pub(super) struct Family {
    pub(super) kind: String,
}

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) family: String,
    suffix: String,
    pub(super) labels: Vec<(String, String)>,
    value: f64,
}

/// Reads a page; whatever breaks the rules of the format is a panic.
pub(super) fn parse(text: &str) -> Page {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut page = Page {
        families: BTreeMap::new(),
        samples: Vec::new(),
    };
    let mut current = String::new();
    for line in body.lines() {
        match line.strip_prefix("# ") {
            Some(meta) => head(&mut page, &mut current, meta),
            None => {
                let sample = sample(line, &current, &page.families[&current].kind);
                page.samples.push(sample);
            }
        }
    }
    is_sound(&page);
    page
}

fn head(page: &mut Page, current: &mut String, meta: &str) {
    let mut words = meta.splitn(3, ' ');
    let (what, name, rest) = (
        words.next().unwrap(),
        words.next().unwrap(),
        words.next().unwrap(),
    );
    match what {
        "TYPE" => {
            let kind = rest.to_owned();
            let before = page.families.insert(name.to_owned(), Family { kind });
            assert!(before.is_none(), "{name} comes twice");
            *current = name.to_owned();
        }
        "UNIT" => assert!(
            name == current && name.ends_with(&format!("_{rest}")),
            "{meta}"
        ),
        "HELP" => assert!(name == current && rest.ends_with('.'), "{meta}"),
        _ => panic!("an unknown line: {meta}"),
    }
}

fn sample(line: &str, family: &str, kind: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, rest) = line.split_at(end);
    let suffix = name
        .strip_prefix(family)
        .expect("a sample of the family before it");
    let allowed: &[&str] = match kind {
        "counter" => &["_total"],
        "histogram" => &["_bucket", "_count", "_sum"],
        _ => &[""],
    };
    assert!(allowed.contains(&suffix), "{line}");
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest),
        None => (Vec::new(), rest),
    };
    let value = value.strip_prefix(' ').expect("a space before the value");
    Sample {
        family: family.to_owned(),
        suffix: suffix.to_owned(),
        labels,
        value: value.parse().expect("a number"),
    }
}

/// Reads labels up to the brace, and returns what follows it.
fn labels(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    loop {
        let (name, rest) = text.split_once("=\"").expect("a label");
        assert!(name.chars().all(|sign| sign.is_ascii_lowercase()), "{name}");
        let mut value = String::new();
        let mut signs = rest.char_indices();
        let end = loop {
            match signs.next().expect("the end of a value") {
                (at, '"') => break at,
                (_, '\\') => value.push(match signs.next().expect("an escaped sign").1 {
                    'n' => '\n',
                    sign @ ('"' | '\\') => sign,
                    sign => panic!("\\{sign} is no escape"),
                }),
                (_, sign) => value.push(sign),
            }
        };
        found.push((name.to_owned(), value));
        let rest = &rest[end + 1..];
        match rest.strip_prefix(',') {
            Some(next) => text = next,
            None => return (found, rest.strip_prefix('}').expect("a brace")),
        }
    }
}

/// No sample comes twice, and the buckets of each histogram rise to its count.
fn is_sound(page: &Page) {
    let mut seen = BTreeSet::new();
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for it in &page.samples {
        let key = format!("{}{}{:?}", it.family, it.suffix, it.labels);
        assert!(seen.insert(key), "{it:?} comes twice");
        assert!(it.value >= 0.0, "{it:?}");
        if it.suffix == "_bucket" {
            let (bound, labels) = it.labels.split_last().unwrap();
            assert_eq!(bound.0, "le");
            let bound = bound.1.replace("+Inf", "inf").parse().unwrap();
            let key = format!("{}{labels:?}", it.family);
            buckets.entry(key).or_default().push((bound, it.value));
        }
    }
    for it in page.samples.iter().filter(|it| it.suffix == "_count") {
        let of = &buckets[&format!("{}{:?}", it.family, it.labels)];
        assert!(of.is_sorted(), "{of:?}");
        assert_eq!(of.last(), Some(&(f64::INFINITY, it.value)));
    }
}
