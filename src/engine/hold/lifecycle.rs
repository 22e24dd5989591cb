//! The beginning and the end of a hold, with their metrics and notices.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::counters::end_name;
use crate::engine::hold::Hold;
use crate::engine::hold::state::{Phase, State};
use crate::engine::loss_notice::LossNotice;
use crate::ground::clock::BootInstant;
use crate::ground::error::Error;
use crate::ground::events::{HoldSpan, WaitSpan};
use crate::ground::loss::{Loss, LossCause};
use crate::ground::observer::Event;
use crate::store::InDoubt;

impl Hold {
    /// Called when a thread gets the hold. Returns false if the hold is not valid.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let now = self.client.timeline.now();
        let is_valid = self.counts(&state, now);
        if let Some(class) = self.class.filter(|_| is_valid) {
            state.began = Some(now);
            drop(state);
            self.client.began(class);
        }
        is_valid
    }

    pub(crate) fn begin_span(&self, wait: WaitSpan, class: &str, waited: Duration) {
        let (visitor, fence) = (self.visitor.as_str(), self.fence());
        let span = HoldSpan::behind(wait, (&self.name, class), visitor, fence, waited);
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Held) {
            state.span = Some(span);
        }
    }

    pub(super) fn end_notice(&self, state: &mut State, is_lost: bool) -> EndNotice<'_> {
        let held = |since: BootInstant| since.until(self.client.timeline.now());
        EndNotice {
            hold: self,
            held: state.began.map(held),
            is_lost,
            span: state.span.take(),
        }
    }

    pub(crate) fn age(&self) -> Option<Duration> {
        let state = self.state.lock();
        let began = state.began.filter(|_| matches!(state.phase, Phase::Held))?;
        Some(began.until(self.client.timeline.now()))
    }

    /// Returns `None` if the hold had already ended.
    pub(crate) fn lose(&self, cause: LossCause) -> Option<Loss> {
        // `_ended` is dropped after the mutex is unlocked, because its `drop` calls the tracing subscriber and the observer.
        let _ended;
        let mut state = self.state.lock();
        let is_held = matches!(state.phase, Phase::Held);
        _ended = is_held.then(|| self.end_notice(&mut state, true));
        is_held.then(|| self.lose_now(&mut state, cause))
    }

    /// Marks a released hold as lost, because its release did not find the hold in the store. A renewal that does not find
    /// the hold must not call this, because an earlier release may have deleted the hold.
    pub(crate) fn lose_in_release(&self, cause: LossCause) -> Option<Loss> {
        let mut state = self.state.lock();
        matches!(state.phase, Phase::Released).then(|| self.lose_now(&mut state, cause))
    }

    fn lose_now(&self, state: &mut State, cause: LossCause) -> Loss {
        state.phase = Phase::Lost(Box::new(cause.clone()));
        let loss = self.loss(cause);
        if let Some(news) = state.news() {
            news.tell(loss.clone());
        }
        loss
    }

    pub(crate) fn lapse(&self) -> Option<LossCause> {
        let state = self.state.lock();
        if self.client.timeline.now() < state.valid_until {
            return None;
        }
        let owner_lives = self.owner.strong_count() > 0;
        state.lapse(self.client.timeline.read(), owner_lives)
    }

    /// Returns this hold as an in-doubt request. Resolving the request releases the hold if the store still has it.
    pub(crate) fn in_doubt(&self) -> InDoubt {
        let lease = self.state.lock().longest_in_store(&self.client.timeline);
        InDoubt::of(self.kind, &self.name, &self.visitor, lease)
    }

    /// Notifies present and future listeners that the client was shut down.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Held) {
            let loss = self.loss(LossCause::Closed);
            state.is_abandoned = true;
            state.rare().news.get_or_insert_default().tell(loss);
        }
    }

    pub(crate) fn loss(&self, cause: LossCause) -> Loss {
        Loss {
            lock: Arc::clone(&self.name),
            visitor: self.visitor.clone(),
            thread: self.thread,
            cause,
        }
    }

    pub(crate) fn news(&self) -> Arc<LossNotice> {
        let mut state = self.state.lock();
        if let Some(news) = state.news() {
            return Arc::clone(news);
        }
        let news: Arc<LossNotice> = Arc::default();
        match &state.phase {
            Phase::Held => {}
            Phase::Lost(cause) => news.tell(self.loss(LossCause::clone(cause))),
            Phase::Released => news.end(),
        }
        state.rare().news = Some(Arc::clone(&news));
        news
    }

    pub(crate) fn lost_error(&self, cause: LossCause) -> Error {
        Error::Lost {
            lock: Arc::clone(&self.name),
            visitor: self.visitor.clone(),
            cause,
        }
    }

    pub(crate) fn close_listeners(&self) {
        if let Some(news) = self.state.lock().news() {
            news.end();
        }
    }

    pub(crate) fn count_loss(&self, loss: &Loss) {
        if let Some(class) = self.class {
            self.client.tell(class, |class| Event::Lost { class, loss });
        }
    }

    pub(crate) fn report_if_long(&self, now: BootInstant) {
        let mut state = self.state.lock();
        let began = state.began.filter(|_| matches!(state.phase, Phase::Held));
        let (Some(class), Some(began)) = (self.class, began) else {
            return;
        };
        let held = began.until(now);
        let told_from = state.rare.as_ref().and_then(|it| it.long_from);
        if held >= told_from.unwrap_or(self.client.settings.long_hold) {
            state.rare().long_from = Some(held.saturating_mul(2));
            drop(state);
            let (client, lock) = (&self.client, &self.name);
            client.long_hold(class, lock, self.thread, held);
        }
    }
}

/// Dropping this value counts and reports the end of the hold. The mutex of the hold must be unlocked first.
pub(super) struct EndNotice<'a> {
    hold: &'a Hold,
    /// The age of the hold; `None` if no thread got it.
    held: Option<Duration>,
    is_lost: bool,
    span: Option<HoldSpan>,
}

impl Drop for EndNotice<'_> {
    fn drop(&mut self) {
        let Hold { client, name, .. } = self.hold;
        if let (Some(class), Some(held)) = (self.hold.class, self.held) {
            client.ended(class, name, held, self.is_lost);
        }
        if let Some(span) = &self.span {
            span.tell(end_name(self.is_lost));
        }
    }
}

#[cfg(test)]
mod tests;
