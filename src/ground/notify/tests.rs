//! Messages of several sources.

use super::*;

#[test]
fn one_message_of_a_quorum_wakes_no_waiter() {
    let parker = Parker::default();
    let has_word_of = |source| {
        parker.hear(source, Wake::Permit);
        parker.take_permit().is_some()
    };
    // Source 1 is a lock on one server; 2 to 4 are a quorum.
    parker.need(2, 3, 2);
    assert!(has_word_of(1), "a lock of one server");
    for _ in 0..3 {
        assert!(!has_word_of(3), "the same node again");
    }
    assert!(has_word_of(4), "a second node");
    assert!(!has_word_of(2), "it begins anew");
    assert!(has_word_of(LAST_SOURCE + 7), "one of too many");
}
