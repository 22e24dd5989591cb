//! The names of the scripts, by which a trace calls them.

use redlatch_spec::scripts::{self, ALL};

/// The hashes of a script: of the one as it is, and of the one whose messages are sharded.
pub(crate) fn hashes_of(script: &str) -> Vec<String> {
    let script = scripts::named(script);
    let texts = script.map(|it| [it.text.to_owned(), it.sharded_text()]);
    let texts = texts.into_iter().flatten();
    texts.map(|text| scripts::hash(text.as_bytes())).collect()
}

/// Has traces call scripts by their names.
pub(crate) fn introduce() {
    let hashes: Vec<_> = ALL
        .iter()
        .flat_map(|script| {
            hashes_of(script.name)
                .into_iter()
                .map(|hash| (script.name, hash))
        })
        .collect();
    redlatch_world::network::name_arguments(move |argument| {
        let by_hash = hashes.iter().find(|(_, hash)| hash.as_bytes() == argument);
        let by_text = || {
            ALL.iter().find(|script| {
                let text = script.text.as_bytes();
                text.starts_with(argument.trim_ascii_end()) && argument.len() > 20
            })
        };
        by_hash
            .map(|(name, _)| format!("<{name}>"))
            .or_else(|| by_text().map(|script| format!("<text of {}>", script.name)))
    });
}
