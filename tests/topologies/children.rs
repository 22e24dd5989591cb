//! What this test binary does as a child process.

use crate::kit::child;

#[test]
fn entry() {
    let Some(role) = child::role() else { return };
    panic!("no role {role}");
}
