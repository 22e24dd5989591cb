//! The names of the scripts, by which a trace calls them.

const SCRIPTS: [(&str, &str); 16] = [
    (
        "acquire",
        include_str!("../../../src/stores/redis/scripts/acquire.lua"),
    ),
    (
        "release",
        include_str!("../../../src/stores/redis/scripts/release.lua"),
    ),
    (
        "release_level",
        include_str!("../../../src/stores/redis/scripts/release_level.lua"),
    ),
    (
        "transfer",
        include_str!("../../../src/stores/redis/scripts/transfer.lua"),
    ),
    (
        "withdraw",
        include_str!("../../../src/stores/redis/scripts/withdraw.lua"),
    ),
    (
        "force_release",
        include_str!("../../../src/stores/redis/scripts/force_release.lua"),
    ),
    (
        "inspect",
        include_str!("../../../src/stores/redis/scripts/inspect.lua"),
    ),
    (
        "renew",
        include_str!("../../../src/stores/redis/scripts/renew.lua"),
    ),
    (
        "rights",
        include_str!("../../../src/stores/redis/scripts/rights.lua"),
    ),
    (
        "token/acquire",
        include_str!("../../../src/stores/redis/scripts/token/acquire.lua"),
    ),
    (
        "token/release",
        include_str!("../../../src/stores/redis/scripts/token/release.lua"),
    ),
    (
        "token/transfer",
        include_str!("../../../src/stores/redis/scripts/token/transfer.lua"),
    ),
    (
        "token/withdraw",
        include_str!("../../../src/stores/redis/scripts/token/withdraw.lua"),
    ),
    (
        "token/force_release",
        include_str!("../../../src/stores/redis/scripts/token/force_release.lua"),
    ),
    (
        "token/inspect",
        include_str!("../../../src/stores/redis/scripts/token/inspect.lua"),
    ),
    (
        "token/renew",
        include_str!("../../../src/stores/redis/scripts/token/renew.lua"),
    ),
];

fn hash(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

/// The hashes of a script: of the one as it is, and of the one whose messages are sharded.
pub(crate) fn hashes_of(script: &str) -> Vec<String> {
    let script = redlatch_spec::scripts::named(script);
    let texts = script.map(|it| [it.text.to_owned(), it.sharded_text()]);
    let texts = texts.into_iter().flatten();
    texts.map(|text| hash(&text)).collect()
}

/// Has traces call scripts by their names.
pub(crate) fn introduce() {
    let hashes: Vec<_> = SCRIPTS
        .iter()
        .flat_map(|(name, _)| hashes_of(name).into_iter().map(|hash| (*name, hash)))
        .collect();
    redlatch_world::network::name_arguments(move |argument| {
        let by_hash = hashes.iter().find(|(_, hash)| hash.as_bytes() == argument);
        let by_text = || {
            SCRIPTS.iter().find(|(_, text)| {
                text.as_bytes().starts_with(argument.trim_ascii_end()) && argument.len() > 20
            })
        };
        by_hash
            .map(|(name, _)| format!("<{name}>"))
            .or_else(|| by_text().map(|(name, _)| format!("<text of {name}>")))
    });
}
