//! How many waiters of this client a message is for.

/// The rule of a semaphore: its messages tell how many permits are free.
pub(super) fn wakes_as_many(words: &str) -> usize {
    let free = words.parse::<i64>();
    free.map_or(1, |free| usize::try_from(free).unwrap_or_default())
}

/// The rule of a lock that one of its waiters gets.
pub(super) fn wakes_one(words: &str) -> usize {
    match words {
        // Redisson's "read unlock", which is for everybody.
        "1" => usize::MAX,
        _ => 1,
    }
}

/// The rule of a latch: its opening is for everybody, and that it was set is for nobody.
pub(super) fn wakes_all(words: &str) -> usize {
    match words {
        "0" => usize::MAX,
        "1" => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_reads_its_messages() {
        let permits = [("3", 3), ("0", 0), ("-2", 0), ("x", 1), ("", 1)];
        for (words, expected) in permits {
            assert_eq!(wakes_as_many(words), expected, "{words}");
        }
        let locks = [("0", 1), ("1", usize::MAX), ("2", 1), ("", 1)];
        for (words, expected) in locks {
            assert_eq!(wakes_one(words), expected, "{words}");
        }
        let latches = [("0", usize::MAX), ("1", 0), ("2", 1), ("", 1)];
        for (words, expected) in latches {
            assert_eq!(wakes_all(words), expected, "{words}");
        }
    }
}
