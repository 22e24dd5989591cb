use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// The cause of an [`Error`](super::Error): an [`io::Error`].
///
/// [`std::error::Error::source`] returns this [`io::Error`]. The text of the [`Error`](super::Error) does not contain the
/// text of the [`io::Error`].
///
/// # Examples
///
/// ```
/// use std::error::Error;
/// use std::io;
/// use redlatch::Client;
///
/// // Nobody listens there.
/// let client = Client::open("redis://127.0.0.1:1")?;
/// let error = client.lock("orders:42").try_lock().unwrap_err();
/// let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
/// assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IoSource(Arc<io::Error>);

impl Deref for IoSource {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reason {
    words: Box<str>,
    source: Option<IoSource>,
}

impl Reason {
    pub(crate) fn of_io(words: impl Into<String>, error: io::Error) -> Reason {
        Reason {
            words: words.into().into(),
            source: Some(IoSource(Arc::new(error))),
        }
    }

    pub(crate) fn os_error(&self) -> Option<i32> {
        self.source.as_ref()?.raw_os_error()
    }

    pub(crate) fn io_kind(&self) -> Option<io::ErrorKind> {
        Some(self.source.as_ref()?.kind())
    }

    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Reason {
        let words = reword(&self.words).into();
        Reason { words, ..self }
    }

    pub(crate) fn into_words(self) -> String {
        self.words.into()
    }

    pub(crate) fn into_parts(self) -> (String, Option<IoSource>) {
        (self.words.into(), self.source)
    }
}

impl From<String> for Reason {
    fn from(words: String) -> Reason {
        let (words, source) = (words.into(), None);
        Reason { words, source }
    }
}

impl From<&str> for Reason {
    fn from(words: &str) -> Reason {
        words.to_owned().into()
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.words
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Reason) -> bool {
        self.words == other.words
    }
}

impl Eq for Reason {}
