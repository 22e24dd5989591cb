//! The scripts: each as the text that the library sends, and as a function that does the same.
//!
//! A function calls the commands of [`Redis`] as the Lua text does: `?` stands for `redis.call`, and an answer that is
//! looked into for `redis.pcall`.

mod arguments;
pub mod condition;
pub mod fair;
pub mod fenced;
pub mod guarded;
mod holder;
pub mod latch;
pub mod many;
pub mod permit_ids;
pub mod permits;
#[path = "../../../../src/stores/redis/scripts/pieces.rs"]
mod pieces;
pub mod reentrant;
pub mod rw;
pub mod token;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::commands::{Answer, Redis};
use crate::reply::{Reply, array};

pub use arguments::Args;

/// The words for a key that cannot be a lock of this kind any more.
const ANOTHER_TYPE: &str = "a key of another type";

/// A small answer comes in one integer with the number of its request, which stands this far above it.
const SMALL: i64 = 1 << 22;

/// A script: the function that says what it does.
pub type Spec = fn(&mut Redis<'_>, Args<'_>, Args<'_>) -> Answer<Reply>;

/// A script and its text.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The path of its text below `src/stores/redis/scripts`, without the extension.
    pub name: &'static str,
    /// The text in Lua.
    pub text: &'static str,
    /// The same in Rust.
    pub spec: Spec,
}

macro_rules! scripts {
    ($($name:literal => $spec:path),* $(,)?) => {
        /// All scripts.
        pub static ALL: LazyLock<Vec<Script>> = LazyLock::new(|| vec![$(Script {
            name: $name,
            text: spliced(include_str!(concat!("../../../../src/stores/redis/scripts/", $name, ".lua"))).leak(),
            spec: $spec,
        }),*]);
    };
}

scripts! {
    "acquire" => reentrant::acquire,
    "release" => reentrant::release,
    "release_level" => reentrant::release_level,
    "transfer" => reentrant::transfer,
    "withdraw" => reentrant::withdraw,
    "force_release" => reentrant::force_release,
    "inspect" => reentrant::inspect,
    "renew" => reentrant::renew,
    "token/acquire" => token::acquire,
    "token/release" => token::release,
    "token/transfer" => token::transfer,
    "token/withdraw" => token::withdraw,
    "token/force_release" => token::force_release,
    "token/inspect" => token::inspect,
    "token/renew" => token::renew,
    "fenced/acquire" => fenced::acquire,
    "fenced/transfer" => fenced::transfer,
    "condition/look" => condition::look,
    "condition/signal" => condition::signal,
    "latch/count" => latch::count,
    "permits/acquire" => permits::acquire,
    "permits/release" => permits::release,
    "permits/withdraw" => permits::withdraw,
    "permits/renew" => permits::renew,
    "permits/count" => permits::count,
    "permit_ids/acquire" => permit_ids::acquire,
    "permit_ids/release" => permit_ids::release,
    "permit_ids/withdraw" => permit_ids::withdraw,
    "permit_ids/renew" => permit_ids::renew,
    "permit_ids/count" => permit_ids::count,
    "guarded" => guarded::guarded,
    "rw/read" => rw::read,
    "rw/write" => rw::write,
    "rw/release" => rw::release,
    "rw/release_level" => rw::release_level,
    "rw/withdraw" => rw::withdraw,
    "rw/renew" => rw::renew,
    "rw/force_release" => rw::force_release,
    "rw/inspect" => rw::inspect,
    "fair/acquire" => fair::acquire,
    "fair/release" => fair::release,
    "fair/withdraw" => fair::withdraw,
    "fair/force_release" => fair::force_release,
    "fair/waiters" => fair::waiters,
    "rights" => many::rights,
}

/// The script of this name.
pub fn named(name: &str) -> Option<&'static Script> {
    ALL.iter().find(|script| script.name == name)
}

impl Script {
    /// The text for nodes whose messages are sharded.
    pub fn sharded_text(&self) -> String {
        let text = self.text.replace("'PUBLISH'", "'SPUBLISH'");
        text.replace("'NUMSUB'", "'SHARDNUMSUB'")
    }
}

/// The text that is sent: the one of the file, with the pieces that scripts share where they belong.
pub fn spliced(text: &str) -> String {
    pieces::spliced(text)
}

/// The hash by which a text is called.
pub fn hash(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

/// The scripts by their hashes, each with whether it is the one for sharded messages.
pub(crate) fn by_hash() -> HashMap<String, (&'static Script, bool)> {
    let plain = ALL
        .iter()
        .map(|script| (hash(script.text.as_bytes()), (script, false)));
    let sharded = ALL.iter().map(|script| {
        let text = script.sharded_text();
        // One that tells nobody is the same script.
        let is_sharded = text != script.text;
        (hash(text.as_bytes()), (script, is_sharded))
    });
    plain.chain(sharded).collect()
}

/// The answer of a request with this number.
fn answered(number: i64, answer: impl Into<Reply>) -> Answer<Reply> {
    Ok(array![number, answer])
}

/// A small answer of a request with this number.
fn small(number: i64, answer: i64) -> Answer<Reply> {
    Ok(Reply::Int(number * SMALL + answer.min(SMALL - 1)))
}

/// The first bytes of a text.
fn begin(text: &[u8], length: usize) -> &[u8] {
    text.get(..length).unwrap_or(text)
}
