//! The answers of a server, and how they stand on the wire (RESP2, which is all that the library speaks).

use std::fmt;

/// An answer.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// An integer.
    Int(i64),
    /// A text of any bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// One word, such as `OK`.
    Status(&'static str),
    /// A refusal, which begins with its kind in capital letters.
    Error(String),
    /// Several answers together.
    Array(Vec<Reply>),
}

impl Reply {
    /// The answer `OK`.
    pub const OK: Reply = Reply::Status("OK");

    /// A text.
    pub fn text(text: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(text.as_ref().to_vec())
    }

    /// Writes it as it goes over the wire.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Reply::Int(number) => into.extend(format!(":{number}\r\n").bytes()),
            Reply::Nil => into.extend(b"$-1\r\n"),
            Reply::Status(word) => into.extend(format!("+{word}\r\n").bytes()),
            Reply::Error(text) => into.extend(format!("-{text}\r\n").bytes()),
            Reply::Bulk(bytes) => {
                into.extend(format!("${}\r\n", bytes.len()).bytes());
                into.extend(bytes);
                into.extend(b"\r\n");
            }
            Reply::Array(items) => {
                into.extend(format!("*{}\r\n", items.len()).bytes());
                items.iter().for_each(|item| item.encode(into));
            }
        }
    }
}

impl From<i64> for Reply {
    fn from(number: i64) -> Reply {
        Reply::Int(number)
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Reply {
        Reply::text(text)
    }
}

impl From<&[u8]> for Reply {
    fn from(bytes: &[u8]) -> Reply {
        Reply::text(bytes)
    }
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Reply {
        Reply::Bulk(bytes)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Int(number) => write!(f, "{number}"),
            Reply::Bulk(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Reply::Nil => f.write_str("nil"),
            Reply::Status(word) => f.write_str(word),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
        }
    }
}

/// An array of these parts.
macro_rules! array {
    ($($part:expr),* $(,)?) => {
        $crate::reply::Reply::Array(vec![$(Into::<$crate::reply::Reply>::into($part)),*])
    };
}
pub(crate) use array;
