//! The means by which threads wait, and the batches that they hand to one another.

use super::scene::{LEASE, Scene};
use super::*;

#[test]
fn what_is_waited_for_is_looked_at_now_and_then_until_the_end() {
    let looks = std::cell::Cell::new(0);
    let look = |times| {
        looks.set(0);
        let began = time::now();
        let was_so = eventually(began + Duration::from_millis(50), || {
            looks.set(looks.get() + 1);
            looks.get() > times
        });
        (was_so, looks.get())
    };
    assert_eq!(look(0), (true, 1));
    assert_eq!(look(3), (true, 4));
    let (was_so, looks) = look(u32::MAX);
    // Each pause is twice as long as the one before, up to two milliseconds.
    assert!(!was_so && looks < 40, "{looks}");
    assert!(!eventually(time::now(), || false));
}

#[test]
fn a_batch_without_holds_may_still_end_a_wait() {
    let mut batch = jobs::Batch::default();
    assert!(batch.is_empty());
    let (mark, done) = unbounded::<jobs::Never>();
    batch.append(jobs::Batch {
        marks: vec![mark],
        ..Default::default()
    });
    assert!(!batch.is_empty());
    let scene = Scene::new();
    batch.append(jobs::Batch {
        holds: vec![scene.begun(Kind::Reentrant, "orders", Lease::Fixed(LEASE))],
        ..Default::default()
    });
    assert_eq!((batch.holds.len(), batch.marks.len()), (1, 1));
    batch.marks.clear();
    assert!(!batch.is_empty());
    drop(batch);
    assert!(done.recv().is_err());
}
