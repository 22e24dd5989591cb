use std::time::Duration;

use super::*;

#[test]
fn all_attempts_get_equal_shares_of_the_time() {
    for (rest, part) in [(0, 40), (1, 40), (2, 20), (4, 10)] {
        let part = Duration::from_secs(part);
        let begun = Instant::now();
        let end = share(begun + Duration::from_secs(40), rest);
        assert!(end > begun + part - Duration::from_secs(1), "{rest}");
        assert!(end < begun + part + Duration::from_secs(5), "{rest}");
    }
    let over = Instant::now();
    assert!(share(over, 3) >= over);
}
