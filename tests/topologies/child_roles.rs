//! The roles of this test binary as a child process.

use crate::support::child;
use crate::support::shop::SELLER;

#[test]
fn entry() {
    let Some(role) = child::role() else { return };
    if role == SELLER {
        return crate::shop::sell();
    }
    assert!(crate::network::play(&role), "no role {role}");
}
