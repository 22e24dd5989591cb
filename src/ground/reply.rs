use std::str;

/// The reply to one command of a guarded write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No value, such as the value of a missing key.
    Nil,
    /// An integer. Every integer passes through Lua, whose numbers represent integers exactly only up to 2^53.
    Int(i64),
    /// A string of bytes, or a status such as `OK`.
    Bytes(Vec<u8>),
    /// Several replies.
    List(Vec<Reply>),
}

impl Reply {
    /// Returns the integer. A string of decimal digits, as `GET` returns it, is parsed as an integer.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Reply::Int(number) => Some(*number),
            _ => self.as_str()?.parse().ok(),
        }
    }

    /// Returns the string if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Reply::Bytes(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_int_reads_decimal_digits() {
        assert_eq!(Reply::Int(-7).as_int(), Some(-7));
        assert_eq!(Reply::Bytes(b"-7".to_vec()).as_int(), Some(-7));
        for none in [
            Reply::Nil,
            Reply::Bytes(b"7x".to_vec()),
            Reply::List(vec![Reply::Int(7)]),
        ] {
            assert_eq!(none.as_int(), None);
        }
        assert_eq!(Reply::Bytes(b"OK".to_vec()).as_str(), Some("OK"));
        assert_eq!(Reply::Bytes(vec![0xff]).as_str(), None);
        assert_eq!(Reply::Int(7).as_str(), None);
    }
}
