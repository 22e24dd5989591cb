//! How a hold is counted, from its beginning to its end.

use std::time::Duration;

use crate::engine::counters::class::ClassId;
use crate::engine::counters::end_name;
use crate::engine::hold::Hold;
use crate::engine::hold::state::{Phase, State};
use crate::ground::clock::BootInstant;
use crate::ground::events::{HoldSpan, WaitSpan};
use crate::ground::loss::Loss;
use crate::ground::observer::Event;

impl Hold {
    /// Has it be counted in this class, as soon as a thread has come to it.
    pub(crate) fn counted_in(self, class: ClassId) -> Hold {
        Hold {
            class: Some(class),
            ..self
        }
    }

    /// Counts it from now on, as one that a thread has come to. Returns whether it has not ended before.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let is_held = matches!(state.phase, Phase::Held);
        if let Some(class) = self.class.filter(|_| is_held) {
            state.began = Some(self.timeline.now());
            drop(state);
            self.client.began(class);
        }
        is_held
    }

    /// Opens its span, behind that of the wait that led to it.
    pub(crate) fn begin_span(&self, wait: WaitSpan, class: &str, waited: Duration) {
        let (visitor, fence) = (self.visitor.as_str(), self.fence);
        let span = HoldSpan::behind(wait, (&self.name, class), visitor, fence, waited);
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Held) {
            state.span = Some(span);
        } else {
            // Lost meanwhile, and told behind the mutex.
            drop(state);
            span.tell(end_name(true));
        }
    }

    /// Counts that it has ended, when this is dropped.
    pub(super) fn end_notice(&self, state: &mut State, is_lost: bool) -> EndNotice<'_> {
        let held = |since: BootInstant| since.until(self.timeline.now());
        EndNotice {
            hold: self,
            held: state.began.map(held),
            is_lost,
            span: state.span.take(),
        }
    }

    /// For how long it has lasted, if it is counted and goes on.
    pub(crate) fn age(&self) -> Option<Duration> {
        let state = self.state.lock();
        let began = state.began.filter(|_| matches!(state.phase, Phase::Held))?;
        Some(began.until(self.timeline.now()))
    }

    /// The number of its owner.
    pub(crate) fn thread(&self) -> u64 {
        self.thread
    }

    /// Counts a loss that is told. One that a release has found is the loss of a hold that was given back.
    pub(crate) fn count_loss(&self, loss: &Loss) {
        if let Some(class) = self.class {
            self.client.tell(class, |class| Event::Lost { class, loss });
        }
    }

    /// Tells if it has lasted for long, when that has doubled since it was told last.
    pub(crate) fn look_at_age(&self) {
        let (Some(class), Some(held)) = (self.class, self.age()) else {
            return;
        };
        let mut state = self.state.lock();
        let told_from = state.rare.as_ref().and_then(|it| it.long_from);
        if held >= told_from.unwrap_or(self.client.settings().long_hold) {
            state.rare().long_from = Some(held.saturating_mul(2));
            drop(state);
            let (client, lock) = (&self.client, &self.name);
            client.long_hold(class, lock, self.thread, held);
        }
    }
}

/// The end of a hold: it is counted, and told, when this is dropped, behind the mutex of the hold.
pub(super) struct EndNotice<'a> {
    hold: &'a Hold,
    /// For how long, if a thread had come to it.
    held: Option<Duration>,
    is_lost: bool,
    /// Closed with it.
    span: Option<HoldSpan>,
}

impl Drop for EndNotice<'_> {
    fn drop(&mut self) {
        let Hold {
            client,
            class,
            name,
            ..
        } = self.hold;
        if let (Some(class), Some(held)) = (class, self.held) {
            client.ended(*class, name, held, self.is_lost);
        }
        if let Some(span) = &self.span {
            span.tell(end_name(self.is_lost));
        }
    }
}

#[cfg(test)]
mod tests;
