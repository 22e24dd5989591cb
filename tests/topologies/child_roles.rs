//! What this test binary does as a child process.

use crate::support::child;

#[test]
fn entry() {
    let Some(role) = child::role() else { return };
    let known = crate::shop::play(&role) || crate::network::play(&role);
    assert!(known, "no role {role}");
}
