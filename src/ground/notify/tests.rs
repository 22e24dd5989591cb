use super::*;

#[test]
fn one_message_of_a_quorum_wakes_no_waiter() {
    let parker = Parker::default();
    let makes_permit = |source| {
        parker.note_message(source, Wake::Permit);
        parker.take_permit().is_some()
    };
    // Source 1 is the channel of a lock on one server. Sources 2 to 4 are the nodes of a quorum.
    parker.need(2, 3, 2);
    assert!(makes_permit(1), "a lock of one server");
    for _ in 0..3 {
        assert!(!makes_permit(3), "the same node again");
    }
    assert!(makes_permit(4), "a second node");
    assert!(!makes_permit(2), "it begins anew");
    assert!(makes_permit(LAST_SOURCE + 7), "one of too many");
}
