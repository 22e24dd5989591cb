//! The visitor of a wait, by the rules of its kind.

use crate::engine::raw_lock::wait_visitor::WaitVisitor;
use crate::ground::claim::{Rules, VisitorId};

/// The numbers of the visitors of three attempts, the second of which leaves something that is cleared up.
fn visitors(rules: &'static Rules) -> [String; 3] {
    let mut visitor = WaitVisitor::new(rules);
    [1, 2, 3].map(|number| {
        let next = visitor.next(|| VisitorId::new("client", 1, number));
        if number == 2 {
            visitor.retire();
        }
        next.to_string()
    })
}

#[test]
fn a_wait_has_one_visitor_where_a_refused_one_leaves_a_place_and_nothing_is_cleared_up() {
    const PLACED: Rules = Rules {
        places_in_store: true,
        ..Rules::PLAIN
    };
    let each = ["client:1:1", "client:1:2", "client:1:3"];
    assert_eq!(visitors(&Rules::PLAIN), each);
    assert_eq!(
        visitors(&PLACED),
        ["client:1:1", "client:1:1", "client:1:3"]
    );
}
