//! The roles of this test binary as a child process.

use crate::support::child;

#[test]
fn entry() {
    let Some(role) = child::role() else { return };
    let is_known = crate::exclusion::play(&role) || crate::token::play(&role);
    assert!(is_known, "no role {role}");
}
