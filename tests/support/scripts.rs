//! The Lua scripts as the library sends them.

#[allow(
    clippy::duplicate_mod,
    reason = "the unit tests of the library have it, too"
)]
#[path = "../../src/stores/redis/scripts/pieces.rs"]
mod pieces;

/// The text that is sent: the one of the file, with the pieces that scripts share where they belong.
pub fn spliced(text: &str) -> String {
    pieces::spliced(text)
}

/// The hash by which a script is called, of the text of its file.
pub fn hash(text: &str) -> String {
    redis::Script::new(&spliced(text)).get_hash().to_owned()
}
