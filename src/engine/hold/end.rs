//! The end of a hold, and who is told of it.

use std::sync::Arc;

use crate::engine::hold::Hold;
use crate::engine::hold::state::{Phase, State};
use crate::engine::loss_notice::LossNotice;
use crate::ground::error::Error;
use crate::ground::loss::{Loss, LossCause};
use crate::store::InDoubt;

impl Hold {
    /// Turns the hold lost for good. Returns the event the first time, `None` if it had ended before.
    pub(crate) fn lose(&self, cause: LossCause) -> Option<Loss> {
        // It is told behind the mutex: a subscriber's code runs then, and an observer's.
        let (loss, _ended) = {
            let mut state = self.state.lock();
            let is_held = matches!(state.phase, Phase::Held);
            let ended = is_held.then(|| self.end_notice(&mut state, true));
            let loss = is_held.then(|| self.lose_now(&mut state, cause));
            (loss, ended)
        };
        loss
    }

    /// Turns the hold lost although its release is under way, for the release itself, which found it gone.
    ///
    /// A renewal that finds the same at that time has only come behind the release.
    pub(crate) fn lose_in_release(&self, cause: LossCause) -> Option<Loss> {
        let mut state = self.state.lock();
        matches!(state.phase, Phase::Released).then(|| self.lose_now(&mut state, cause))
    }

    fn lose_now(&self, state: &mut State, cause: LossCause) -> Loss {
        state.phase = Phase::Lost(Box::new(cause.clone()));
        let loss = self.loss(cause);
        if let Some(news) = &state.news {
            news.tell(loss.clone());
        }
        loss
    }

    /// The cause if the validity has ended by the clock alone.
    pub(crate) fn lapse(&self) -> Option<LossCause> {
        let owner_lives = self.owner.strong_count() > 0;
        self.state.lock().lapse(self.timeline.read(), owner_lives)
    }

    /// The doubt whether the store still has this hold, which has ended here.
    pub(crate) fn in_doubt(&self) -> InDoubt {
        let lease = self.state.lock().may_stand(&self.timeline);
        InDoubt::of(self.kind, &self.name, &self.visitor, lease)
    }

    /// Tells those who listen, and those who will, that nobody looks after it any more.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Held) {
            let loss = self.loss(LossCause::Closed);
            state.is_abandoned = true;
            state.news.get_or_insert_default().tell(loss);
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

    /// Where a loss is told, and that the hold ended well.
    pub(crate) fn news(&self) -> Arc<LossNotice> {
        let mut state = self.state.lock();
        if let Some(news) = &state.news {
            return Arc::clone(news);
        }
        let news: Arc<LossNotice> = Arc::default();
        match &state.phase {
            Phase::Held => {}
            Phase::Lost(cause) => news.tell(self.loss(LossCause::clone(cause))),
            Phase::Released => news.end(),
        }
        state.news = Some(Arc::clone(&news));
        news
    }

    pub(crate) fn lost_error(&self, cause: LossCause) -> Error {
        Error::Lost {
            lock: Arc::clone(&self.name),
            visitor: self.visitor.clone(),
            cause,
        }
    }

    /// Tells those who listen to a released hold that it ended well, unless the release found it lost.
    pub(crate) fn close_listeners(&self) {
        if let Some(news) = &self.state.lock().news {
            news.end();
        }
    }
}
