//! Parsing and formatting of numbers as in Redis.

use crate::commands::{Answer, Refused};

const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// Redis accepts only the canonical form: no `+`, no leading zeros.
pub(crate) fn integer(text: &[u8]) -> Answer<i64> {
    let (sign, digits) = match text.split_first() {
        Some((b'-', digits)) => (-1, digits),
        _ => (1, text),
    };
    let is_plain = matches!(digits, [b'1'..=b'9', ..]) || text == b"0";
    let digits = digits.iter().try_fold(0i64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(sign * digit)
    });
    let number = digits.filter(|_| is_plain);
    number.ok_or_else(|| Refused::new(NO_INTEGER))
}

pub(crate) fn count(text: &[u8]) -> Answer<usize> {
    let number = integer(text).ok().and_then(|it| usize::try_from(it).ok());
    number.ok_or_else(|| Refused::new("ERR value is out of range, must be positive"))
}

/// Accepts infinities, but not NaN.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Formats a double as `%.{digits}g` does in C.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..digits as i32).contains(&exponent) {
        let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or_default();
        return trimmed(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

pub(crate) fn score(number: f64) -> String {
    // This integer is exact.
    if number.fract() == 0.0 && number.abs() < 1e15 && !(number == 0.0 && number.is_sign_negative())
    {
        return (number as i64).to_string();
    }
    general(number, 17)
}

/// Adds decimal numbers with 17 decimals, as INCRBYFLOAT does.
pub(crate) fn sum(one: &[u8], other: &[u8]) -> Answer<Vec<u8>> {
    let both = (decimal(one), decimal(other));
    if let (Some(one), Some(other)) = both
        && let Some(sum) = one.checked_add(other)
    {
        let (whole, rest) = (sum.unsigned_abs() / ONE, sum.unsigned_abs() % ONE);
        let sign = if sum < 0 { "-" } else { "" };
        return Ok(trimmed(&format!("{sign}{whole}.{rest:017}")).into());
    }
    let sum = double(one)
        .zip(double(other))
        .map(|(one, other)| one + other);
    let sum = sum.ok_or_else(|| Refused::new("ERR value is not a valid float"))?;
    if !sum.is_finite() {
        return Err(Refused::new("ERR increment would produce NaN or Infinity"));
    }
    Ok(trimmed(&format!("{sum:.17}")).into())
}

const ONE: u128 = 100_000_000_000_000_000;

/// Parses a decimal number with at most 17 decimals and no exponent. The unit of the result is 10^-17.
fn decimal(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = |part: &str| part.bytes().all(|it| it.is_ascii_digit());
    if !is_plain(whole) || !is_plain(rest) || rest.len() > 17 || whole.len() + rest.len() == 0 {
        return None;
    }
    let number: i128 = format!("0{whole}{rest:0<17}").parse().ok()?;
    Some(sign * number)
}

fn trimmed(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_c() {
        let written = [
            (0.1, "0.10000000000000001"),
            (-1.5, "-1.5"),
            (3.0, "3"),
            (1e17, "1e+17"),
            (12_345_678_901_234_567.0, "12345678901234568"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1e-5, "1.0000000000000001e-05"),
            (1e300, "1.0000000000000001e+300"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in written {
            assert_eq!(general(number, 17), text);
        }
        assert_eq!(score(1e16), "10000000000000000");
    }

    #[test]
    fn only_plain_integers_are_integers() {
        for text in [
            "",
            "-",
            "01",
            "-0",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
        ] {
            assert!(integer(text.as_bytes()).is_err(), "{text:?}");
        }
        for number in [0, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Ok(number));
        }
    }

    #[test]
    fn decimals_are_added_exactly() {
        for (one, other, text) in [
            ("0.1", "0.2", "0.3"),
            ("3", "-3", "0"),
            ("-1.5", "1", "-0.5"),
            ("10", "1.0e1", "20"),
        ] {
            assert_eq!(sum(one.as_bytes(), other.as_bytes()), Ok(text.into()));
        }
        assert!(sum(b"x", b"1").is_err() && sum(b"inf", b"1").is_err());
    }
}
