//! A wall clock that jumps when the test sets it; Linux only, because it needs `LD_PRELOAD`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::{NamedTempFile, TempPath};

use super::shim;

/// The variable with the path of the shim's offset.
pub const OFFSET_VARIABLE: &str = "REDLATCH_CLOCK_OFFSET";

/// The offset of one wall clock, for one server or several.
pub struct ClockShim {
    library: &'static Path,
    offset: File,
    offset_path: TempPath,
}

impl ClockShim {
    /// A clock with the true time at first; the first one of a process compiles the shim.
    pub fn build() -> Self {
        let (offset, offset_path) = NamedTempFile::new()
            .expect("a file for the offset")
            .into_parts();
        let shim = Self {
            library: library(),
            offset,
            offset_path,
        };
        shim.set(0);
        shim
    }

    /// Shifts the clock to `offset_ms` milliseconds from the true time, at once, also for running servers.
    pub fn set(&self, offset_ms: i64) {
        self.offset
            .write_all_at(&offset_ms.to_ne_bytes(), 0)
            .expect("the offset can be written");
        // Valkey 9 reads the clock at most once a millisecond.
        std::thread::sleep(super::ms(2));
    }

    /// The shared library to preload.
    pub fn library(&self) -> &Path {
        self.library
    }

    /// The value of [`OFFSET_VARIABLE`].
    pub fn offset_path(&self) -> &str {
        self.offset_path
            .to_str()
            .expect("temporary paths are UTF-8")
    }
}

/// Compiles the shim once per process.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| shim::compiled("clock_shim", include_str!("clock_shim.c")))
}
