//! The fault that is told of requests that were tried again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

/// The fault of a request that is tried again until `deadline`, of which the first try takes so long.
fn fault(takes: u64, deadline: u64) -> CallError {
    let scene = scene();
    scene.route.fail_over();
    let mut tries = 0;
    let deadline = Instant::now() + Duration::from_millis(deadline);
    let outcome: Result<(), _> = scene.node.server.with(deadline, |_| {
        tries += 1;
        if tries > 1 {
            return Err(CallError::NotSent("there is no time".into()));
        }
        std::thread::sleep(Duration::from_millis(takes));
        Err(CallError::Server("LOADING it is".into()))
    });
    assert!(tries > 1);
    outcome.unwrap_err()
}

#[test]
fn a_try_that_had_no_time_does_not_hide_the_one_before() {
    assert_eq!(
        fault(2_400, 3_000),
        CallError::Server("LOADING it is".into())
    );
    // Later ones that had some say how it is now.
    assert_eq!(
        fault(0, 1_000),
        CallError::NotSent("there is no time".into())
    );
}
