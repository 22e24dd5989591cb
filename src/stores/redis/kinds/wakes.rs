//! How many waiters of this client a message wakes.

/// A message of a semaphore is its number of free permits. Sometimes Redisson sends the number of added permits.
pub(super) fn wakes_as_many(words: &str) -> usize {
    let free = words.parse::<i64>();
    free.map_or(1, |free| usize::try_from(free).unwrap_or_default())
}

pub(super) fn wakes_one(words: &str) -> usize {
    match words {
        // As in Redisson, "1" wakes all waiters.
        "1" => usize::MAX,
        _ => 1,
    }
}

/// "0" means that the latch opened. "1" means that the latch got a count, or that Redisson deleted the latch.
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
