use super::five::*;
use super::*;
use crate::ground::time;

#[test]
fn a_lock_that_a_majority_may_have_is_reported_as_held() {
    for (free, modes, expected) in [
        (&[][..], [W; 5], Some(true)),
        (&[0, 1], [W; 5], Some(true)),
        (&[0, 1, 2], [W; 5], Some(false)),
        (&[0, 1], [W, W, D, W, W], Some(true)),
        (&[0, 1, 2], [W, W, W, D, W], Some(false)),
        (&[0, 1], [W, D, D, W, W], Some(true)),
        (&[], [D, D, D, W, W], None),
    ] {
        let five = Five::held(2);
        five.lose(free, None);
        five.set(modes);
        let was_held = five.quorum.force_release(&lock(), soon());
        assert_eq!(was_held.ok(), expected, "{free:?} {modes:?}");
        let five = Five::held(2);
        five.lose(free, None);
        five.set(modes);
        let holding = five.inspect();
        let is_locked = holding.as_ref().ok().map(|it| it.is_locked);
        assert_eq!(is_locked, expected, "{free:?} {modes:?}");
        let any = five.quorum.inspect(&lock(), None, soon());
        assert_eq!(any.ok().map(|it| it.is_locked), expected);
        if let Ok(holding) = holding {
            let well = modes.iter().filter(|mode| **mode == W).count();
            let has = well - free.iter().filter(|it| modes[**it] == W).count();
            assert_eq!(holding.count, if has >= 3 { 2 } else { 0 }, "{free:?}");
        }
    }
}

#[test]
fn the_third_longest_lease_of_five_decides() {
    let five = Five::new();
    // The remaining leases are 1 to 5 s.
    five.lose(&[0, 1, 2, 3, 4], Some("other"));
    let left = five.inspect().unwrap().remaining.unwrap();
    assert!(
        left <= Duration::from_secs(3) && left > Duration::from_secs(2),
        "{left:?}"
    );
    five.set([D, W, W, W, W]);
    let left = five.inspect().unwrap().remaining.unwrap();
    assert!(
        left <= Duration::from_secs(3) && left > Duration::from_secs(2),
        "{left:?}"
    );
    // Only two nodes report a remaining lease, which is no majority. So the shorter lease counts.
    five.lose(&[2], None);
    five.set([D, D, W, W, W]);
    let left = five.inspect().unwrap().remaining.unwrap();
    assert!(
        left <= Duration::from_secs(4) && left > Duration::from_secs(3),
        "{left:?}"
    );
}

#[test]
fn a_silent_node_is_skipped_for_growing_pauses() {
    let five = Five::new();
    let node = &five.quorum.nodes[0];
    let purpose = Purpose::Request;
    let pause = || {
        let breaker = node.breaker.lock();
        let left = breaker
            .deadline
            .map(|it| it.saturating_duration_since(time::now()));
        (breaker.pause.as_millis(), left.map(|it| it.as_millis() > 0))
    };
    assert!(!node.is_tripped(purpose));
    node.trip(&error(true));
    assert!(!node.is_tripped(purpose), "it has answered");
    for expected in [250, 500, 1_000, 1_000] {
        node.trip(&error(false));
        assert!(node.is_tripped(purpose));
        assert_eq!(pause(), (expected, Some(true)));
    }
    assert_eq!(node.breaker.lock().reason, "it is dead");
    // After the pause one call tries the node. Other calls skip the node until it replies.
    node.breaker.lock().deadline = Some(time::now());
    assert!(!node.is_tripped(purpose));
    assert!(node.is_tripped(purpose));
    assert_eq!(pause(), (1_000, Some(true)));
    // A new connection closes the circuit, but the pause keeps growing until the node replies.
    node.revive();
    assert_eq!(pause(), (1_000, None));
    assert!(!node.is_tripped(purpose));
    node.trip(&error(false));
    assert_eq!(pause(), (1_000, Some(true)));
    node.reset();
    assert_eq!(pause(), (0, None));
    assert!(node.breaker.lock().reason.is_empty());
}

#[test]
fn skipped_nodes_are_used_if_the_others_are_too_few() {
    let five = Five::new();
    let order = |tripped: &[usize], among: u64, holds: &[u64]| {
        for (index, node) in five.quorum.nodes.iter().enumerate() {
            node.reset();
            if tripped.contains(&index) {
                node.trip(&error(false));
            }
        }
        five.quorum.in_order(among, holds, Purpose::Renewal)
    };
    let all = five.quorum.all();
    assert_eq!(all, 0b11111);
    assert_eq!(order(&[], all, &[]), vec![0, 1, 2, 3, 4]);
    assert_eq!(order(&[1, 3], all, &[]), vec![0, 2, 4]);
    assert_eq!(order(&[1, 2, 3], all, &[]), vec![0, 4, 1, 2, 3]);
    assert_eq!(order(&[1], 0b00111, &[]), vec![0, 2, 1]);
    // If too few nodes of a hold have a closed circuit, the other nodes of the hold are used too.
    assert_eq!(order(&[0], all, &[0b00111]), vec![1, 2, 3, 4, 0]);
    assert_eq!(order(&[0], all, &[0b01111]), vec![1, 2, 3, 4]);
    assert_eq!(order(&[0, 4], all, &[0b01111, 0b00111]), vec![1, 2, 3, 0]);
    // Both holds have too few nodes with a closed circuit, and the holds have nodes in common.
    assert_eq!(
        order(&[0, 1], all, &[0b00111, 0b01011]),
        vec![2, 3, 4, 0, 1]
    );
}

#[test]
fn the_round_trip_is_a_smoothed_measurement() {
    let mut five = Five::new();
    five.quorum.settings.node_timeout = None;
    assert_eq!(five.quorum.round_trip(), FIRST_ROUND_TRIP);
    five.quorum.note_round_trip(Duration::from_millis(10));
    assert_eq!(five.quorum.round_trip(), Duration::from_millis(3));
    five.quorum.note_round_trip(Duration::from_millis(3));
    assert_eq!(five.quorum.round_trip(), Duration::from_millis(3));
    assert_eq!(five.quorum.node_timeout(LEASE), Duration::from_millis(50));
    assert_eq!(five.quorum.node_timeout(LEASE * 100), NODE_TIMEOUTS[1]);
    assert_eq!(five.quorum.node_timeout(LEASE / 1_000), NODE_TIMEOUTS[0]);
}
