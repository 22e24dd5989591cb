//! What this test binary does as a child process.

use crate::support::child;

#[test]
fn entry() {
    let Some(role) = child::role() else { return };
    let known = crate::faults::play(&role)
        || crate::chaos::play(&role)
        || crate::many_processes::play(&role)
        || crate::holds::play(&role)
        || crate::redlock::play(&role);
    #[cfg(feature = "mysql")]
    let known = known || crate::mysql::play(&role);
    assert!(known, "no role {role}");
}
