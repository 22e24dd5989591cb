//! Reports the loss of a hold to the listeners of this hold and to the client's `on_lost` hook.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::ground::loss::{Loss, NoLoss};
use crate::ground::sync::{Clock, Condvar, Mutex};
use crate::ground::{events, time};

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) number: u64,
    pub(crate) receiver: Receiver<Loss>,
}

#[derive(Debug, Default)]
pub(crate) struct LossNotice {
    state: Mutex<NoticeState>,
    changed: Condvar,
}

/// | state | entered by | leads to |
/// |---|---|---|
/// | held | creation | lost, ended |
/// | lost | the first reported loss | – |
/// | ended | the release | – |
#[derive(Debug, Default)]
struct NoticeState {
    loss: Option<Loss>,
    has_ended: bool,
    /// The channels of listeners, by number. A channel that is closed without a loss means a release.
    channels: BTreeMap<u64, Sender<Loss>>,
    next_channel: u64,
}

impl std::panic::RefUnwindSafe for LossNotice {}

impl LossNotice {
    pub(crate) fn tell(&self, loss: Loss) {
        let mut state = self.state.lock();
        if state.loss.is_some() || state.has_ended {
            return;
        }
        for channel in state.channels.values() {
            // `try_send` fails only if the channel has no receivers.
            let _ = channel.try_send(loss.clone());
        }
        state.loss = Some(loss);
        self.changed.notify_all();
    }

    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        if state.loss.is_none() {
            state.has_ended = true;
            state.channels.clear();
            self.changed.notify_all();
        }
    }

    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<Loss, NoLoss> {
        let mut state = self.state.lock();
        loop {
            if let Some(loss) = &state.loss {
                return Ok(loss.clone());
            }
            if state.has_ended {
                return Err(NoLoss::Ended);
            }
            if deadline.is_some_and(|deadline| Clock::look().has_passed(deadline)) {
                return Err(NoLoss::NotYet);
            }
            state = self.changed.wait(state, deadline);
        }
    }

    pub(crate) fn open(&self) -> Channel {
        let (sender, receiver) = bounded(1);
        let mut state = self.state.lock();
        let number = state.next_channel;
        if !state.has_ended {
            state.channels.insert(number, sender);
            state.next_channel += 1;
        }
        Channel { number, receiver }
    }

    pub(crate) fn refill(&self, number: u64) {
        let state = self.state.lock();
        if let (Some(loss), Some(channel)) = (&state.loss, state.channels.get(&number)) {
            let _ = channel.try_send(loss.clone());
        }
    }

    /// If the channel is empty, sends `unheard` before closing it, because an empty closed channel means a release.
    pub(crate) fn close(&self, number: u64, unheard: Loss) {
        if let Some(channel) = self.state.lock().channels.remove(&number) {
            // `try_send` fails only if the channel already contains a loss, or has no receivers.
            let _ = channel.try_send(unheard);
        }
    }
}

pub(crate) type OnLost = Arc<dyn Fn(&Loss) + Send + Sync>;

#[derive(Default)]
pub(crate) struct LossHook {
    state: Mutex<HookState>,
}

#[derive(Default)]
struct HookState {
    sender: Option<Sender<Loss>>,
    /// Set by the shutdown. No call of the hook begins after this instant.
    deadline: Option<Instant>,
}

impl LossHook {
    pub(crate) fn open(&self) -> Receiver<Loss> {
        let (sender, receiver) = unbounded();
        self.state.lock().sender = Some(sender);
        receiver
    }

    pub(crate) fn tell(&self, loss: Loss) {
        events::lost(&loss.lock, &loss.visitor, &loss.cause);
        if let Some(sender) = &self.state.lock().sender {
            // Sending fails only if the hook's thread could not be started.
            let _ = sender.send(loss);
        }
    }

    pub(crate) fn call(&self, on_lost: &OnLost, losses: &Receiver<Loss>) {
        for loss in losses {
            let deadline = self.state.lock().deadline;
            if deadline.is_some_and(|deadline| time::now() >= deadline) {
                return;
            }
            let tell = std::panic::AssertUnwindSafe(|| on_lost(&loss));
            let told = std::panic::catch_unwind(tell);
            if told.is_err() {
                events::hook_panicked(&loss.lock);
            }
        }
    }

    pub(crate) fn close(&self, deadline: Instant) {
        *self.state.lock() = HookState {
            sender: None,
            deadline: Some(deadline),
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::ground::claim::VisitorId;
    use crate::ground::loss::LossCause;

    fn loss(cause: LossCause) -> Loss {
        Loss {
            lock: "orders".into(),
            visitor: VisitorId::new("c", 1, 1),
            thread: 1,
            cause,
        }
    }

    #[test]
    fn nothing_is_reported_after_a_loss_or_a_release() {
        let lost = LossNotice::default();
        lost.tell(loss(LossCause::Gone));
        lost.tell(loss(LossCause::HeldBy("c:2:1".to_owned())));
        lost.end();
        let told = lost.wait(None).map(|loss| loss.cause);
        assert!(matches!(told, Ok(LossCause::Gone)), "{told:?}");
        let ended = LossNotice::default();
        ended.end();
        ended.tell(loss(LossCause::Gone));
        assert!(matches!(ended.wait(None), Err(NoLoss::Ended)));
    }

    #[test]
    fn the_hook_gets_earlier_losses_until_its_deadline() {
        for (left, state) in [(Duration::from_secs(60), 2), (Duration::ZERO, 0)] {
            let (hook, calls) = (LossHook::default(), Arc::new(AtomicUsize::new(0)));
            let losses = hook.open();
            (0..2).for_each(|_| hook.tell(loss(LossCause::Gone)));
            hook.close(time::now() + left);
            hook.tell(loss(LossCause::Gone));
            let counted = Arc::clone(&calls);
            let on_lost: OnLost = Arc::new(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            hook.call(&on_lost, &losses);
            assert_eq!(calls.load(Ordering::Relaxed), state);
        }
    }

    fn is_gone(told: Result<Loss, crossbeam_channel::TryRecvError>) -> bool {
        told.is_ok_and(|loss| matches!(loss.cause, LossCause::Gone))
    }

    #[test]
    fn each_channel_gets_the_loss_again_after_a_refill() {
        let notice = LossNotice::default();
        let (one, other) = (notice.open(), notice.open());
        assert_ne!(one.number, other.number);
        notice.refill(one.number);
        assert!(one.receiver.try_recv().is_err(), "there is no loss yet");
        notice.tell(loss(LossCause::Gone));
        for channel in [&one, &other] {
            assert!(is_gone(channel.receiver.try_recv()));
            assert!(channel.receiver.try_recv().is_err());
        }
        notice.refill(other.number);
        assert!(is_gone(other.receiver.try_recv()) && one.receiver.try_recv().is_err());
    }

    #[test]
    fn a_release_closes_the_channels() {
        let notice = LossNotice::default();
        let before = notice.open();
        notice.end();
        let after = notice.open();
        for channel in [before, after] {
            let told = channel.receiver.try_recv();
            assert_eq!(
                told.unwrap_err(),
                crossbeam_channel::TryRecvError::Disconnected
            );
        }
    }

    #[test]
    fn closing_a_channel_reports_a_last_loss_and_spares_others() {
        let notice = LossNotice::default();
        let (closed, open) = (notice.open(), notice.open());
        notice.close(closed.number, loss(LossCause::Closed));
        let told = closed.receiver.try_recv();
        assert!(matches!(told, Ok(loss) if matches!(loss.cause, LossCause::Closed)));
        assert!(closed.receiver.try_recv().is_err() && open.receiver.try_recv().is_err());
        notice.tell(loss(LossCause::Gone));
        assert!(is_gone(open.receiver.try_recv()) && closed.receiver.try_recv().is_err());
    }
}
