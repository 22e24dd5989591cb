//! Numbers as text, without the machinery of `format!`, which takes far longer: some thirty stand in the way of each
//! request.

use std::ops::Deref;

/// The digits of [`u64::MAX`].
const MOST: usize = 20;

/// The digits of a number.
pub(crate) struct Digits {
    bytes: [u8; MOST],
    first: usize,
}

/// Writes a number as digits.
pub(crate) fn digits(mut number: u64) -> Digits {
    let mut digits = Digits {
        bytes: [b'0'; MOST],
        first: MOST,
    };
    for (at, digit) in digits.bytes.iter_mut().enumerate().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            digits.first = at;
            break;
        }
    }
    digits
}

impl Deref for Digits {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.first..]
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
