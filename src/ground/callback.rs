//! Whether the calling thread runs a program's own code that this library has called: a hook, an observer, a subscriber.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// Calls the program's code.
pub(crate) fn within<T>(call: impl FnOnce() -> T) -> T {
    DEPTH.set(DEPTH.get().saturating_add(1));
    let _inside = Inside;
    call()
}

/// Whether the calling thread is inside such a call, for which another one may be waiting.
pub(crate) fn is_within() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_over_when_it_returns_or_panics() {
        assert!(!is_within());
        within(|| {
            assert!(is_within());
            within(|| ());
            assert!(is_within());
        });
        assert!(!is_within());
        assert!(std::panic::catch_unwind(|| within(|| panic!("as planned"))).is_err());
        assert!(!is_within());
    }
}
