use std::fmt;

use super::{Error, IoSource};

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unreachable { source, .. }
            | Error::Unknown { source, .. }
            | Error::Untrusted { source, .. } => Some(&**source.as_ref()?),
            // The text of `Ran` contains the text of `error`. If `error` were the source, a printed chain would repeat it.
            Error::Ran { error } => error.source(),
            #[cfg(feature = "mysql")]
            Error::Database(error) => error.source(),
            _ => None,
        }
    }
}

/// Prints the error and its sources in one line, because `main` prints a returned error by `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

pub(super) struct Missing<'a>(pub(super) &'a [String]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            missing => write!(f, " (missing: {})", missing.join(" ")),
        }
    }
}

/// Prints the reason without the text of the source, because `Debug` prints the source too.
pub(super) struct ReasonText<'a>(pub(super) &'a str, pub(super) &'a Option<IoSource>);

impl fmt::Display for ReasonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReasonText(reason, source) = self;
        let mut words = (*reason).to_owned();
        let text = source.as_ref().map(|source| source.to_string());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            for form in [format!(": {text}"), format!(" ({text})"), text] {
                words = words.replace(&form, "");
            }
        }
        match words.trim() {
            "" => Ok(()),
            words => write!(f, ": {words}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::ground::error::Reason;

    fn of(words: &str) -> [Error; 3] {
        let (lock, node): (Arc<str>, Arc<str>) = ("orders".into(), "here".into());
        let cause = io::Error::other("no way");
        let (reason, source) = Reason::of_io(words, cause).into_parts();
        [
            Error::Unreachable {
                lock: Arc::clone(&lock),
                node: Arc::clone(&node),
                reason: reason.clone(),
                source: source.clone(),
            },
            Error::Unknown {
                lock: Arc::clone(&lock),
                node: Arc::clone(&node),
                operation: "acquire",
                visitor: None,
                reason: reason.clone(),
                source: source.clone(),
            },
            Error::Untrusted {
                lock,
                node,
                reason,
                source,
            },
        ]
    }

    #[test]
    fn the_text_of_an_error_omits_its_source() {
        for (words, ends) in [
            ("no way", ""),
            ("connecting failed: no way", ": connecting failed"),
            ("it is old (no way); renew it", ": it is old; renew it"),
            ("connecting, no way", ": connecting,"),
            ("closed", ": closed"),
        ] {
            for error in of(words) {
                let text = error.to_string();
                assert!(text.ends_with(ends) && !text.contains("no way"), "{text}");
                assert!(!text.ends_with(':'), "{text}");
                assert_eq!(format!("{error:?}"), format!("{text}: no way"));
                let ran = Error::Ran {
                    error: Box::new(error),
                };
                assert_eq!(format!("{ran:?}"), format!("{ran}: no way"));
                #[cfg(feature = "mysql")]
                let (_, source) = Reason::of_io("", io::Error::other("no way")).into_parts();
                #[cfg(feature = "mysql")]
                let lost = super::super::database::DatabaseError::TransactionLost {
                    lock: "orders".into(),
                    node: "here".into(),
                    reason: words.to_owned(),
                    source,
                };
                #[cfg(feature = "mysql")]
                assert!(lost.to_string().ends_with(ends), "{lost}");
            }
        }
    }
}
