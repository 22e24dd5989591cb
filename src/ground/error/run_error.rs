use std::fmt;

use super::Error;

/// The error of [`Lock::run`](crate::Lock::run), with the value of the closure if the closure ran.
///
/// The text of a `RunError` contains the text of its [`Error`]. So `source()` returns the source of this [`Error`], and
/// a printed chain of errors repeats nothing.
///
/// In a function that returns [`Error`], `?` works for a closure that returns nothing: [`RunError::Ran`] becomes
/// [`Error::Ran`]. There is no conversion for a closure with a value, because the conversion would drop the value.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, Lock, RunError};
///
/// fn charge(lock: &Lock) -> redlatch::Result<u64> {
///     match lock.run(|_| 42) {
///         Ok(receipt) => Ok(receipt),
///         // It was charged, whatever became of the lock.
///         Err(RunError::Ran { value, error, .. }) => {
///             eprintln!("look whether {value} was charged twice: {error}");
///             Ok(value)
///         }
///         Err(error) => Err(error.into_parts().1),
///     }
/// }
///
/// assert_eq!(charge(&Client::in_memory().lock("orders:42"))?, 42);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum RunError<T> {
    /// The lock was not acquired, and the closure did not run.
    NotRun(Error),
    /// The closure ran, but the unlock failed. If the hold was lost before the end of the closure, another holder may have
    /// worked at the same time.
    #[non_exhaustive]
    Ran {
        /// The value of the closure.
        value: T,
        /// The error of the unlock.
        error: Error,
    },
}

impl<T> RunError<T> {
    /// Returns the error.
    pub fn error(&self) -> &Error {
        match self {
            RunError::NotRun(error) | RunError::Ran { error, .. } => error,
        }
    }

    /// Returns the closure's value if the closure ran.
    pub fn into_value(self) -> Option<T> {
        self.into_parts().0
    }

    /// Returns the error, and the closure's value if the closure ran.
    pub fn into_parts(self) -> (Option<T>, Error) {
        match self {
            RunError::NotRun(error) => (None, error),
            RunError::Ran { value, error } => (Some(value), error),
        }
    }

    /// Returns whether the same call may succeed later, like [`Error::is_retryable`]; false if the closure ran.
    pub fn is_retryable(&self) -> bool {
        matches!(self, RunError::NotRun(error) if error.is_retryable())
    }
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotRun(error) => f.debug_tuple("NotRun").field(error).finish(),
            RunError::Ran { error, .. } => f
                .debug_struct("Ran")
                .field("error", error)
                .finish_non_exhaustive(),
        }
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotRun(error) => write!(f, "{error}"),
            RunError::Ran { error, .. } => write!(f, "the closure ran, but {error}"),
        }
    }
}

impl<T> std::error::Error for RunError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // `Display` prints the inner error. If the inner error were the source, a printed chain would repeat its text.
        self.error().source()
    }
}

impl From<RunError<()>> for Error {
    fn from(error: RunError<()>) -> Error {
        match error {
            RunError::NotRun(error) => error,
            RunError::Ran { error, .. } => Error::Ran {
                error: Box::new(error),
            },
        }
    }
}
