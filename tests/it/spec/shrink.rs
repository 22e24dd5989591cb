//! Fewer operations that still fail.

/// Leaves operations out as long as the rest `fails`.
pub(super) fn shrink<T: Clone>(ops: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut ops = ops;
    let mut size = ops.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + size).min(ops.len()));
            if fails(&fewer) {
                ops = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    ops
}

#[test]
fn a_sequence_shrinks_to_what_fails() {
    let fails = |ops: &[u32]| ops.contains(&3) && ops.contains(&77);
    assert_eq!(shrink((0..100).collect(), fails), [3, 77]);
}
