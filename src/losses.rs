use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::engine::hold::Hold;
use crate::engine::loss_notice::{Channel, LossNotice};
use crate::ground::loss::{Loss, LossCause, NoLoss};
use crate::ground::{process, time};

/// Reports the loss of one hold. [`Guard::lost`](crate::Guard::lost) and [`Lock::lost`](crate::Lock::lost) return this type.
///
/// A `Losses` can be sent to other threads, and outlives the guard. Reading the loss does not consume it: every call returns
/// the loss, on any thread and on any clone. [`NoLoss::NotYet`] means that the hold has not been lost so far.
/// [`NoLoss::Ended`] means that the hold was unlocked without a loss.
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
/// With the macro `select!` of [`crossbeam_channel`], a thread can wait for the loss and for other work:
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
    news: Arc<LossNotice>,
    pid: u32,
    channel: OnceLock<Channel>,
    /// The channel that [`Losses::as_receiver`] returns in a forked child.
    over: OnceLock<(Sender<Loss>, Receiver<Loss>)>,
}

impl Losses {
    pub(crate) fn of(hold: Arc<Hold>, pid: u32) -> Losses {
        let news = match process::id() == pid {
            true => hold.news(),
            // A forked child must not lock the hold's mutex, which stays locked if another thread had locked it at the fork.
            false => Arc::default(),
        };
        Losses::with(hold, news, pid)
    }

    fn with(hold: Arc<Hold>, news: Arc<LossNotice>, pid: u32) -> Losses {
        Losses {
            hold,
            news,
            pid,
            channel: OnceLock::new(),
            over: OnceLock::new(),
        }
    }

    /// Waits without a limit until the hold is lost, and returns the loss.
    ///
    /// # Errors
    ///
    /// [`NoLoss::Ended`] if the hold was unlocked.
    pub fn recv(&self) -> Result<Loss, NoLoss> {
        self.wait(None)
    }

    /// Waits until the hold is lost, at most for `timeout`, and returns the loss.
    ///
    /// If the end of `timeout` cannot be represented as an `Instant`, the call waits without a limit.
    ///
    /// # Errors
    ///
    /// [`NoLoss::NotYet`] after `timeout`; [`NoLoss::Ended`] if the hold was unlocked.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Loss, NoLoss> {
        self.wait(time::now().checked_add(timeout))
    }

    /// Returns the loss without waiting, if the hold was lost.
    ///
    /// # Errors
    ///
    /// [`NoLoss::NotYet`] if no loss has been reported so far; [`NoLoss::Ended`] if the hold was unlocked. A loss may
    /// be reported a moment after the end of the validity.
    pub fn try_recv(&self) -> Result<Loss, NoLoss> {
        self.wait(Some(time::now()))
    }

    /// Returns whether the lock is certainly held at this moment, without I/O; see
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        !self.is_forked() && self.hold.is_valid()
    }

    /// Returns a channel that receives the loss, for `select!` of [`crossbeam_channel`].
    ///
    /// An unlock closes the channel without a loss. If the loss was already received from the channel, the next call of this
    /// method sends the loss again. Only one clone of the channel receives the loss. So each thread that uses `select!` needs
    /// its own [`Losses`]. If a [`Losses`] is dropped before the unlock, its channel receives [`LossCause::Unheard`].
    pub fn as_receiver(&self) -> &Receiver<Loss> {
        if let Some(loss) = self.forked() {
            let (sender, receiver) = self.over.get_or_init(|| bounded(1));
            // Fails only if the channel has the loss already.
            let _ = sender.try_send(loss);
            return receiver;
        }
        let channel = self.channel.get_or_init(|| self.news.open());
        self.news.refill(channel.number);
        &channel.receiver
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<Loss, NoLoss> {
        let forked = self.forked();
        forked.map_or_else(|| self.news.wait(deadline), Ok)
    }

    fn is_forked(&self) -> bool {
        process::id() != self.pid
    }

    fn forked(&self) -> Option<Loss> {
        self.is_forked().then(|| self.hold.loss(LossCause::Forked))
    }
}

impl Clone for Losses {
    fn clone(&self) -> Losses {
        Losses::with(Arc::clone(&self.hold), Arc::clone(&self.news), self.pid)
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

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Losses")
            .field("lock", &self.hold.name)
            .field("visitor", &self.hold.visitor)
            .field("heard", &self.try_recv())
            .finish_non_exhaustive()
    }
}
