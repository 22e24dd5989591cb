//! User functions that return credentials or certificates for each connection.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::ground::background::Background;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::reply_text::cut;

/// `user` is empty for the default user.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

type Ask<T> = dyn Fn() -> Result<T, String> + Send + Sync;

pub(crate) type CredentialsProvider = Provider<Credentials>;

/// The user function `ask` may block, so it runs on its own thread. Concurrent callers share one call of `ask`.
pub(crate) struct Provider<T> {
    /// The name of the returned value in error messages.
    what: &'static str,
    ask: Arc<Ask<T>>,
    calls: Arc<Background<(), T>>,
}

impl<T: Clone + Default + Send + 'static> Provider<T> {
    pub(crate) fn new<E: Into<Box<dyn Error + Send + Sync>>>(
        what: &'static str,
        ask: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Provider<T> {
        let ask = move || ask().map_err(|error| error.into().to_string());
        Provider {
            what,
            ask: Arc::new(ask),
            calls: Arc::default(),
        }
    }

    pub(crate) fn get(&self, deadline: Instant) -> Result<T, CallError> {
        let what = self.what;
        let ask = Arc::clone(&self.ask);
        let call = move || ask().map_err(io::Error::other);
        let (number, _) = self.calls.start(&(), deadline, call);
        let reason = match self.calls.wait(&(), number, deadline) {
            Some(Ok(given)) => return Ok(given),
            Some(Err(error)) => format!("the {what} provider failed: {}", cut(&error.to_string())),
            None => format!("the {what} provider has not answered in time (connect_timeout)"),
        };
        Err(CallError::NotSent(reason.into()))
    }
}

#[cfg(test)]
mod tests;
