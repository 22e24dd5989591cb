//! Credentials that a function of the program gives anew for each connection.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::ground::callback;
use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::reply_text::cut;

/// A user, empty for the default one, and its password.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

type Given = Result<Credentials, String>;

/// A function of the program that gives credentials.
///
/// It runs on a thread of its own, because it may hang. Connections that are made while it runs share its answer, so there is
/// at most one such thread.
pub(crate) struct CredentialsProvider {
    ask: Box<dyn Fn() -> Given + Send + Sync>,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// How many calls have ended.
    ended: u64,
    /// The answer of the last one.
    given: Option<Given>,
}

impl CredentialsProvider {
    pub(crate) fn new(ask: impl Fn() -> Given + Send + Sync + 'static) -> CredentialsProvider {
        CredentialsProvider {
            ask: Box::new(ask),
            state: Mutex::default(),
            answered: Condvar::default(),
        }
    }

    /// Returns the answer of a call that ends after now.
    pub(crate) fn get(self: &Arc<Self>, deadline: Instant) -> Result<Credentials, CallError> {
        let mut state = self.state.lock();
        let before = state.ended;
        while state.ended == before {
            if time::now() >= deadline {
                let reason = "the credentials provider has not answered in time (connect_timeout)";
                return Err(CallError::NotSent(reason.into()));
            }
            if !state.is_running {
                let provider = Arc::clone(self);
                sync::spawn("redlatch-credentials", move || provider.call())
                    .map_err(CallError::not_sent)?;
                state.is_running = true;
            }
            state = self.answered.wait(state, Some(deadline));
        }
        let given = state.given.clone();
        drop(state);
        let given = given.unwrap_or_else(|| Err("it gave none".to_owned()));
        given.map_err(|error| {
            let reason = format!("the credentials provider failed: {}", cut(&error));
            CallError::NotSent(reason.into())
        })
    }

    fn call(&self) {
        let called = catch_unwind(AssertUnwindSafe(|| callback::within(|| (self.ask)())));
        let given = called.unwrap_or_else(|_| Err("it panicked".to_owned()));
        let mut state = self.state.lock();
        state.is_running = false;
        state.ended += 1;
        state.given = Some(given);
        self.answered.notify_all();
    }
}

#[cfg(test)]
mod tests;
