//! A name resolver that replies as the test sets, or hangs; Linux only, because it needs `LD_PRELOAD`.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::{NamedTempFile, TempPath};

use super::shim;

/// The reply of the resolver for every name that ends in `.example`. Other names are resolved normally.
pub struct Resolver {
    library: PathBuf,
    said: TempPath,
}

impl Resolver {
    /// A resolver with this reply; the first one of a process compiles the shim.
    pub fn saying(said: &str) -> Resolver {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let text = include_str!("resolver_shim.c");
        let library = LIBRARY.get_or_init(|| shim::compiled("resolver_shim", text));
        let said_in = NamedTempFile::new().expect("a file for the answer");
        let resolver = Resolver {
            library: library.clone(),
            said: said_in.into_temp_path(),
        };
        resolver.say(said);
        resolver
    }

    /// Sets the reply: an address, `none` for no such name, or `hang` for no reply until the next change.
    pub fn say(&self, said: &str) {
        let fresh = self.said.with_extension("new");
        fs::write(&fresh, said).expect("the answer can be written");
        fs::rename(&fresh, &self.said).expect("it can be put in place");
    }

    /// The environment of a program that uses this resolver.
    pub fn env(&self) -> [(&'static str, &str); 2] {
        [
            (
                "LD_PRELOAD",
                self.library.to_str().expect("a path in UTF-8"),
            ),
            (
                "REDLATCH_RESOLVER",
                self.said.to_str().expect("a path in UTF-8"),
            ),
        ]
    }
}
