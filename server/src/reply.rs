//! Replies of a server and their encoding in RESP2.

use std::borrow::Cow;
use std::fmt;

/// A reply of the server.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// A null bulk string.
    Nil,
    /// A null array.
    NilArray,
    /// A simple string, such as `OK`.
    Status(Cow<'static, str>),
    /// An error. Its first word is its code.
    Error(String),
    /// An array.
    Array(Vec<Reply>),
}

impl Reply {
    /// The reply `OK`.
    pub const OK: Reply = Reply::Status(Cow::Borrowed("OK"));

    /// Creates a bulk string.
    pub fn text(text: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(text.as_ref().to_vec())
    }

    /// Appends the reply, encoded as RESP2.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Reply::Int(number) => into.extend(format!(":{number}\r\n").bytes()),
            Reply::Nil => into.extend(b"$-1\r\n"),
            Reply::NilArray => into.extend(b"*-1\r\n"),
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

impl From<i32> for Reply {
    fn from(number: i32) -> Reply {
        Reply::Int(number.into())
    }
}

impl From<usize> for Reply {
    fn from(number: usize) -> Reply {
        Reply::Int(number as i64)
    }
}

impl From<bool> for Reply {
    fn from(is_so: bool) -> Reply {
        Reply::Int(i64::from(is_so))
    }
}

impl From<Option<Vec<u8>>> for Reply {
    fn from(text: Option<Vec<u8>>) -> Reply {
        text.map_or(Reply::Nil, Reply::Bulk)
    }
}

impl From<Vec<Reply>> for Reply {
    fn from(items: Vec<Reply>) -> Reply {
        Reply::Array(items)
    }
}

impl From<Vec<Vec<u8>>> for Reply {
    fn from(texts: Vec<Vec<u8>>) -> Reply {
        Reply::Array(texts.into_iter().map(Reply::Bulk).collect())
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
            Reply::Nil | Reply::NilArray => f.write_str("nil"),
            Reply::Status(word) => f.write_str(word),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
        }
    }
}

macro_rules! array {
    ($($part:expr),* $(,)?) => {
        $crate::reply::Reply::Array(vec![$(Into::<$crate::reply::Reply>::into($part)),*])
    };
}
pub(crate) use array;
