//! The names of the scripts in traces.

use redlatch_server_checks::scripts::{ALL, hash};

/// Has traces call scripts by their names.
pub(crate) fn introduce() {
    let scripts = ALL.iter().flat_map(|script| {
        let texts = [script.text.to_owned(), script.sharded_text()];
        texts.map(|text| (script.name, hash(text.as_bytes()), text))
    });
    let scripts: Vec<_> = scripts.collect();
    redlatch_world::network::name_arguments(move |argument| {
        let mut scripts = scripts.iter();
        let (name, hash, _) = scripts.find(|(_, hash, text)| {
            let is_text =
                argument.len() > 20 && text.as_bytes().starts_with(argument.trim_ascii_end());
            hash.as_bytes() == argument || is_text
        })?;
        let is_hash = hash.as_bytes() == argument;
        Some(if is_hash {
            format!("<{name}>")
        } else {
            format!("<text of {name}>")
        })
    });
}
