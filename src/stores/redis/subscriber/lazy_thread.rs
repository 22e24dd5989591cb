use std::thread;

use crate::ground::events;
use crate::ground::sync::{self, JoinHandle, Mutex};

#[derive(Default)]
pub(in crate::stores::redis) struct LazyThread(Mutex<Option<JoinHandle<()>>>);

impl LazyThread {
    pub(in crate::stores::redis) fn ensure_running(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) {
        let mut thread = self.0.lock();
        if thread.is_some() {
            return;
        }
        match sync::spawn(name, run) {
            Ok(handle) => *thread = Some(handle),
            // The next call tries again to start the thread.
            Err(error) => events::subscriber_cannot_start(&error),
        }
    }

    /// The caller must ask the thread to end before this call.
    pub(in crate::stores::redis) fn join(&self) {
        if let Some(handle) = self.0.lock().take()
            && handle.thread().id() != thread::current().id()
        {
            // A panic of the thread is ignored, because the owner is closing.
            let _ = handle.join();
        }
    }
}
