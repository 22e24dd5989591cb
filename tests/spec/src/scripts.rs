//! The scripts of the library: each as the text that it sends.

#[path = "../../../src/stores/redis/scripts/pieces.rs"]
mod pieces;

use std::sync::LazyLock;

/// A script and its text.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The path of its text below `src/stores/redis/kinds`, without the extension.
    pub name: &'static str,
    /// The text in Lua.
    pub text: &'static str,
}

macro_rules! scripts {
    ($($name:literal)*) => {
        /// All scripts.
        pub static ALL: LazyLock<Vec<Script>> = LazyLock::new(|| vec![$(Script {
            name: $name,
            text: spliced(include_str!(concat!("../../../src/stores/redis/kinds/", $name, ".lua"))).leak(),
        }),*]);
    };
}

scripts! {
    "reentrant/acquire"
    "reentrant/release"
    "reentrant/release_level"
    "reentrant/transfer"
    "reentrant/withdraw"
    "reentrant/force_release"
    "reentrant/inspect"
    "reentrant/renew"
    "token/acquire"
    "token/release"
    "token/transfer"
    "token/withdraw"
    "token/force_release"
    "token/inspect"
    "token/renew"
    "fenced/acquire"
    "fenced/transfer"
    "condition/look"
    "condition/signal"
    "latch/count"
    "permits/acquire"
    "permits/release"
    "permits/withdraw"
    "permits/renew"
    "permits/count"
    "permit_ids/acquire"
    "permit_ids/release"
    "permit_ids/withdraw"
    "permit_ids/renew"
    "permit_ids/count"
    "read_write/read"
    "read_write/write"
    "read_write/release"
    "read_write/release_level"
    "read_write/withdraw"
    "read_write/renew"
    "read_write/force_release"
    "read_write/inspect"
    "guarded"
    "fair/acquire"
    "fair/release"
    "fair/withdraw"
    "fair/force_release"
    "fair/waiters"
    "rights"
}

/// The script of this name.
pub fn named(name: &str) -> Option<&'static Script> {
    ALL.iter().find(|script| script.name == name)
}

impl Script {
    /// The text for nodes whose messages are sharded.
    pub fn sharded_text(&self) -> String {
        sharded(self.text)
    }
}

/// A text for nodes whose messages are sharded.
pub(crate) fn sharded(text: &str) -> String {
    let text = text.replace("'PUBLISH'", "'SPUBLISH'");
    text.replace("'NUMSUB'", "'SHARDNUMSUB'")
}

/// The text that is sent: the one of the file, with the pieces that scripts share where they belong.
pub fn spliced(text: &str) -> String {
    pieces::spliced(text)
}

/// The hash by which a text is called.
pub fn hash(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
