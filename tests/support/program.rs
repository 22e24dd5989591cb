//! The server program, and which server it is.

use std::process::Command;
use std::sync::OnceLock;

/// The product and the version of the server program.
#[derive(Debug)]
pub struct Product {
    /// Whether it is Valkey, which continues the versions of Redis from 7.2.
    pub is_valkey: bool,
    /// The first two numbers of its version.
    pub version: (u32, u32),
}

impl Product {
    /// Whether it is a Redis before version 7: other script errors, fewer settings and commands.
    pub fn is_before_7(&self) -> bool {
        !self.is_valkey && self.version.0 < 7
    }

    /// Whether a cluster supports sharded messages.
    pub fn has_sharded_messages(&self) -> bool {
        !self.is_before_7()
    }
}

/// The server program; `REDIS_SERVER` overrides it.
pub fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// Returns which server the program is, from its own version text.
#[track_caller]
pub fn product() -> &'static Product {
    static PRODUCT: OnceLock<Product> = OnceLock::new();
    PRODUCT.get_or_init(|| {
        let program = program();
        let output = Command::new(&program).arg("--version").output();
        let output = output.unwrap_or_else(|error| {
            panic!("{program} cannot be started ({error}); `make test` installs redis-server")
        });
        // `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0`
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.split_once(" v=").map(|(_, rest)| rest);
        let mut numbers = version.unwrap_or_default().split(['.', ' ']);
        let mut number = || numbers.next()?.parse().ok();
        Product {
            is_valkey: text.starts_with("Valkey"),
            version: number()
                .zip(number())
                .unwrap_or_else(|| panic!("{program} names no version: {text}")),
        }
    })
}
