//! Numbers as text, without the machinery of `format!`, which takes twice as long: some stand in the way of every request.

use smallvec::SmallVec;

/// The digits of a number.
pub(crate) fn digits(mut number: u64) -> SmallVec<[u8; 20]> {
    let mut digits = SmallVec::new();
    loop {
        digits.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            digits.reverse();
            return digits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_they_are_printed() {
        for number in [0, 7, 10, 99, 1_234_567_890, u64::MAX] {
            assert_eq!(*digits(number), *number.to_string().as_bytes());
        }
    }
}
