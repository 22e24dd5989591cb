use std::fmt;
use std::sync::Arc;

use crate::ground::error::{Error, Result};

/// A name of a table or column that needs no escaping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ident(Arc<str>);

impl Ident {
    pub(crate) fn new(name: &str) -> Result<Ident> {
        let mut bytes = name.bytes();
        let is_plain = bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
            && name.len() <= 64;
        if !is_plain {
            let reason = format!(
                "{:?} is not a letter or '_' followed by letters, digits, '_' and '$', 64 in all",
                name.chars().take(70).collect::<String>()
            );
            return Err(Error::config("the name of a table or column", reason));
        }
        Ok(Ident(name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// MySQL ignores the case of column names.
    pub(crate) fn is(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other)
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyedTable {
    pub(crate) table: Ident,
    pub(crate) key: Ident,
}

impl KeyedTable {
    pub(crate) fn new(table: &str, key: &str) -> Result<KeyedTable> {
        let (table, key) = (Ident::new(table)?, Ident::new(key)?);
        Ok(KeyedTable { table, key })
    }
}

#[cfg(test)]
mod tests;
