//! The end of one hold, for everybody who waits to hear of a loss.

use std::collections::BTreeMap;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::ground::loss::{Loss, NoLoss};
use crate::ground::sync::{Clock, Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) number: u64,
    pub(crate) receiver: Receiver<Loss>,
}

/// The end of one hold, for everybody who listens to it.
#[derive(Debug, Default)]
pub(crate) struct LossNotice {
    heard: Mutex<Heard>,
    changed: Condvar,
}

/// | state | entered by | leads to |
/// |---|---|---|
/// | nothing | – | lost, ended |
/// | lost | the first loss that is told | – |
/// | ended | the hold was released | – |
#[derive(Debug, Default)]
struct Heard {
    loss: Option<Loss>,
    has_ended: bool,
    /// By number, those that somebody selects on: with room for the loss, and open as long as the hold has not ended
    /// well.
    channels: BTreeMap<u64, Sender<Loss>>,
    next_channel: u64,
}

impl LossNotice {
    /// Tells of a loss, unless something was told before.
    pub(crate) fn tell(&self, loss: Loss) {
        let mut heard = self.heard.lock();
        if heard.loss.is_some() || heard.has_ended {
            return;
        }
        for channel in heard.channels.values() {
            // One that is full has it already.
            let _ = channel.try_send(loss.clone());
        }
        heard.loss = Some(loss);
        self.changed.notify_all();
    }

    /// Tells that the hold ended well, unless a loss was told before.
    pub(crate) fn end(&self) {
        let mut heard = self.heard.lock();
        if heard.loss.is_none() {
            heard.has_ended = true;
            heard.channels.clear();
            self.changed.notify_all();
        }
    }

    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Loss, NoLoss> {
        let mut heard = self.heard.lock();
        loop {
            if let Some(loss) = &heard.loss {
                return Ok(loss.clone());
            }
            if heard.has_ended {
                return Err(NoLoss::Ended);
            }
            if deadline.is_some_and(|deadline| Clock::look().has_passed(deadline)) {
                return Err(NoLoss::NotYet);
            }
            heard = self.changed.wait(heard, deadline);
        }
    }

    pub(crate) fn open(&self) -> Channel {
        let (sender, receiver) = bounded(1);
        let mut heard = self.heard.lock();
        let number = heard.next_channel;
        if !heard.has_ended {
            heard.channels.insert(number, sender);
            heard.next_channel += 1;
        }
        Channel { number, receiver }
    }

    /// Puts a loss back into a channel that it was taken from.
    pub(crate) fn refill(&self, number: u64) {
        let heard = self.heard.lock();
        if let (Some(loss), Some(channel)) = (&heard.loss, heard.channels.get(&number)) {
            // One that is full still has it.
            let _ = channel.try_send(loss.clone());
        }
    }

    /// Tells nothing more on a channel. A clone of it is not to take that for a good end.
    pub(crate) fn close(&self, number: u64, unheard: Loss) {
        if let Some(channel) = self.heard.lock().channels.remove(&number) {
            // One that is full has a loss to tell, and nobody else may want to hear.
            let _ = channel.try_send(unheard);
        }
    }
}
