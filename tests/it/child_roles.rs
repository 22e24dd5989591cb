//! The roles of this test binary as a child process.

use crate::support::child;
use crate::support::shop::SELLER;

#[test]
fn entry() {
    let Some(role) = child::role() else { return };
    match &*role {
        SELLER => return crate::processes_under_faults::sell(),
        crate::fair::ROLE => return crate::fair::wait(),
        crate::redlock::ROLE => return crate::redlock::take_it(),
        _ => {}
    }
    let known = crate::faults::play(&role) || crate::holds::play(&role);
    let known = known || crate::condition::play(&role) || crate::owned::play(&role);
    #[cfg(feature = "mysql")]
    let known = known || crate::mysql::play(&role);
    assert!(known, "no role {role}");
}
