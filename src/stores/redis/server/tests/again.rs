//! The fault that is told of requests that were tried again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

fn loading_data(text: &str) -> CallError {
    CallError::Server(format!("LOADING {text}"))
}

fn no_time() -> CallError {
    CallError::NotSent("there is no time".into())
}

/// The fault of a request that is tried again for 3 s, where the first tries take so many ms and end so, and all others
/// are not sent.
fn fault(tries: &[(u64, CallError)]) -> CallError {
    let scene = scene();
    scene.route.fail_over();
    let mut made = 0;
    let deadline = Instant::now() + Duration::from_millis(3_000);
    let outcome: Result<(), _> = scene.node.server.with(deadline, |_| {
        made += 1;
        let Some((takes, fault)) = tries.get(made - 1) else {
            return Err(no_time());
        };
        std::thread::sleep(Duration::from_millis(*takes));
        Err(fault.clone())
    });
    assert!(made > tries.len() || tries.len() > 1, "{made}");
    outcome.unwrap_err()
}

#[test]
fn a_try_that_had_no_time_does_not_hide_the_one_before() {
    let (first, second) = (loading_data("first"), loading_data("second"));
    let slow = CallError::NotSent("it is slow".into());
    let told = [
        vec![(2_400, first.clone())],
        // The last one that had time tells.
        vec![(0, first.clone()), (2_300, second.clone())],
        vec![(0, first.clone())],
        vec![(0, first.clone()), (3_050, slow)],
    ];
    let told = std::thread::scope(|scope| {
        let told = told.each_ref();
        let told = told.map(|tries| scope.spawn(|| fault(tries)));
        told.map(|it| it.join().unwrap())
    });
    assert_eq!(told[..2], [first, second]);
    let unsent = |fault: &CallError| matches!(fault, CallError::NotSent(_));
    assert!(told[2..].iter().all(unsent), "{told:?}");
}
