//! Lost holds: the cause, the event and its receiver.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::claim::VisitorId;
use crate::hold::Hold;
use crate::sync::{Clock, Condvar, Mutex};

/// The reason for which a hold was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The store has no hold under this name: it expired there, or was flushed, evicted, deleted or force-unlocked.
    Gone,
    /// The store has another hold under this name, with this id; a long one is shortened, and control characters are
    /// spelled out.
    HeldBy(String),
    /// The validity ended before a renewal was confirmed: the server was silent or refused, or this process was paused.
    #[non_exhaustive]
    Unreachable {
        /// The outcome of the last renewal.
        reason: String,
    },
    /// The fixed lease time is over.
    LeaseEnded,
    /// The thread that held the lock ended without unlocking it, so the hold was no longer renewed.
    ThreadEnded,
    /// The renewal thread died, so nothing keeps the hold alive any more.
    WatchdogDied,
    /// This process was forked from the one that holds the lock.
    Forked,
    /// The client was shut down: the hold is no longer renewed, and lasts until its lease ends or it is unlocked.
    Closed,
    /// The [`Losses`] of a channel was dropped: the channel does not report what becomes of the hold.
    Unheard,
}

impl LossCause {
    /// The hold of `holder`, a text that anybody may have written.
    pub(crate) fn held_by(holder: &str) -> LossCause {
        LossCause::HeldBy(printable(holder))
    }
}

/// A text of somebody else with its control characters spelled out, so that it forges no line of a log.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            // Separators of lines and paragraphs, and what turns the direction of a line.
            '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                printable.extend(sign.escape_unicode());
            }
            sign if sign.is_control() => printable.extend(sign.escape_default()),
            sign => printable.push(sign),
        }
    }
    printable
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossCause::Gone => f.write_str(
                "it is gone from the store (expired, deleted, evicted or force-unlocked)",
            ),
            LossCause::HeldBy(visitor) => write!(f, "{visitor} holds it now"),
            LossCause::Unreachable { reason } => {
                write!(
                    f,
                    "its validity ended before a renewal was confirmed ({reason})"
                )
            }
            LossCause::LeaseEnded => f.write_str("its lease time is over"),
            LossCause::ThreadEnded => f.write_str("the thread that held it has ended"),
            LossCause::WatchdogDied => f.write_str("the renewal thread died"),
            LossCause::Forked => f.write_str("this process is a fork of the one that holds it"),
            LossCause::Unheard => {
                f.write_str("nobody is told any more what becomes of it, its `Losses` was dropped")
            }
            LossCause::Closed => f.write_str("the client was shut down, it is no longer renewed"),
        }
    }
}

/// The event that a hold was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The name of the lock, prefix included.
    pub lock: Arc<str>,
    /// The visitor that held it.
    pub visitor: VisitorId,
    /// The number of the thread that held it; see [`current_thread_id`](crate::current_thread_id).
    pub thread: u64,
    /// The reason.
    pub cause: LossCause,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lock {:?}: the hold of {} was lost: {}",
            self.lock, self.visitor, self.cause
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_forges_no_line() {
        assert_eq!(printable("uuid:1 ünï \\ \""), "uuid:1 ünï \\ \"");
        let said = LossCause::held_by("a\r\n\u{1b}[2J\u{2029}b\u{202e}\0").to_string();
        assert_eq!(said, r"a\r\n\u{1b}[2J\u{2029}b\u{202e}\u{0} holds it now");
    }
}

/// The receiver of the loss of one hold, made by [`Guard::lost`](crate::Guard::lost) and [`Lock::lost`](crate::Lock::lost).
///
/// A receiver can be sent to other threads and shared among them, and outlives the guard. A loss is not used up: every
/// call returns it, now and later, on every thread and on every clone. So [`NoLoss::NotYet`] means that the hold was not
/// lost until now, and [`NoLoss::Ended`] that it ended well.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, LossCause, NoLoss};
///
/// let client = Client::in_memory();
/// let lock = client.lock("lock:orders:42");
/// let guard = lock.guard()?;
/// let losses = guard.lost();
/// assert_eq!(losses.try_recv(), Err(NoLoss::NotYet));
///
/// let watcher = std::thread::spawn({
///     let losses = losses.clone();
///     move || losses.recv().map(|loss| loss.cause)
/// });
/// lock.force_unlock()?;
/// assert_eq!(watcher.join().unwrap(), Ok(LossCause::Gone));
/// assert_eq!(losses.recv()?.cause, LossCause::Gone);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a `select!` of [`crossbeam_channel`] beside other work:
///
/// ```
/// use crossbeam_channel::{bounded, select};
///
/// # let client = redlatch::Client::in_memory();
/// let guard = client.lock("lock:orders:42").guard()?;
/// let losses = guard.lost();
/// let (work, results) = bounded(1);
/// work.send("done").unwrap();
/// select! {
///     recv(losses.as_receiver()) -> loss => panic!("stop working: {}", loss.unwrap()),
///     recv(results) -> result => assert_eq!(result, Ok("done")),
/// }
/// guard.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
pub struct Losses {
    hold: Arc<Hold>,
    news: Arc<News>,
    /// In a forked child nobody tells anything.
    pid: u32,
    channel: OnceLock<Channel>,
    /// The channel of a forked child, where all is over from the start.
    over: OnceLock<(Sender<Loss>, Receiver<Loss>)>,
}

#[derive(Debug)]
struct Channel {
    number: u64,
    receiver: Receiver<Loss>,
}

/// The reason for which there is no loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoLoss {
    /// The hold was not lost until now.
    #[error("the hold was not lost until now")]
    NotYet,
    /// The hold has ended well: it was unlocked before it could be lost.
    #[error("the hold has ended well")]
    Ended,
}

impl Losses {
    pub(crate) fn of(hold: Arc<Hold>, pid: u32) -> Losses {
        let news = if std::process::id() == pid {
            hold.news()
        } else {
            // The mutex of the hold may be locked by a thread that is not there.
            Arc::default()
        };
        Losses {
            hold,
            news,
            pid,
            channel: OnceLock::new(),
            over: OnceLock::new(),
        }
    }

    /// Waits until the hold is lost, and returns the loss.
    ///
    /// # Errors
    ///
    /// [`NoLoss::Ended`] once the hold has ended well.
    pub fn recv(&self) -> Result<Loss, NoLoss> {
        self.wait(None)
    }

    /// Waits until the hold is lost, at most for `timeout`, and returns the loss.
    ///
    /// A `timeout` without an end that can be expressed is for ever.
    ///
    /// # Errors
    ///
    /// [`NoLoss::NotYet`] if the time is over; [`NoLoss::Ended`] once the hold has ended well.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Loss, NoLoss> {
        // What cannot be expressed is for ever.
        self.wait(Instant::now().checked_add(timeout))
    }

    /// Waits until the hold is lost, at most until `deadline`, and returns the loss.
    ///
    /// # Errors
    ///
    /// Those of [`Losses::recv_timeout`].
    pub fn recv_deadline(&self, deadline: Instant) -> Result<Loss, NoLoss> {
        self.wait(Some(deadline))
    }

    /// Returns the loss if the hold was lost, without waiting.
    ///
    /// # Errors
    ///
    /// [`NoLoss::NotYet`] if it was not lost until now; [`NoLoss::Ended`] once the hold has ended well.
    pub fn try_recv(&self) -> Result<Loss, NoLoss> {
        self.wait(Some(Instant::now()))
    }

    /// Returns whether the hold is certain at this moment, without I/O; see [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        !self.is_forked() && self.hold.is_valid()
    }

    /// Returns a channel on which the loss arrives, for `select!` of [`crossbeam_channel`].
    ///
    /// The channel is closed without an event when the hold ends well, and only then. The next call of this method puts an
    /// event back that was taken. Two threads that select at the same time need a clone of the [`Losses`] each; a clone of
    /// the channel shares its one event, and receives [`LossCause::Unheard`] when the [`Losses`] is dropped.
    pub fn as_receiver(&self) -> &Receiver<Loss> {
        if let Some(loss) = self.forked() {
            let (sender, receiver) = self.over.get_or_init(|| bounded(1));
            // One that is full still has it.
            let _ = sender.try_send(loss);
            return receiver;
        }
        let channel = self.channel.get_or_init(|| self.news.open());
        self.news.refill(channel.number);
        &channel.receiver
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<Loss, NoLoss> {
        match self.forked() {
            Some(loss) => Ok(loss),
            None => self.news.wait(deadline),
        }
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    fn forked(&self) -> Option<Loss> {
        self.is_forked().then(|| self.hold.loss(LossCause::Forked))
    }
}

impl Clone for Losses {
    /// Makes another receiver of the same hold; each of the two gets every report.
    fn clone(&self) -> Losses {
        Losses {
            hold: Arc::clone(&self.hold),
            news: Arc::clone(&self.news),
            pid: self.pid,
            channel: OnceLock::new(),
            over: OnceLock::new(),
        }
    }
}

impl Drop for Losses {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.get()
            && !self.is_forked()
        {
            let unheard = self.hold.loss(LossCause::Unheard);
            self.news.close(channel.number, unheard);
        }
    }
}

impl AsRef<Receiver<Loss>> for Losses {
    fn as_ref(&self) -> &Receiver<Loss> {
        self.as_receiver()
    }
}

// As for `Client`.
impl UnwindSafe for Losses {}
impl RefUnwindSafe for Losses {}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Losses")
            .field("lock", &self.hold.name)
            .field("visitor", &self.hold.visitor)
            .field("heard", &self.try_recv())
            .finish_non_exhaustive()
    }
}

/// What became of one hold, for everybody who listens to it.
#[derive(Debug, Default)]
pub(crate) struct News {
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

impl News {
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

    fn wait(&self, deadline: Option<Instant>) -> Result<Loss, NoLoss> {
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

    fn open(&self) -> Channel {
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
    fn refill(&self, number: u64) {
        let heard = self.heard.lock();
        if let (Some(loss), Some(channel)) = (&heard.loss, heard.channels.get(&number)) {
            // One that is full still has it.
            let _ = channel.try_send(loss.clone());
        }
    }

    /// Tells nothing more on a channel. A clone of it is not to take that for a good end.
    fn close(&self, number: u64, unheard: Loss) {
        if let Some(channel) = self.heard.lock().channels.remove(&number) {
            // One that is full has a loss to tell, and nobody else may want to hear.
            let _ = channel.try_send(unheard);
        }
    }
}
