//! The sleep of one waiting thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::wait_loop::{WaitContext, WaitLimit, ended_by};
use crate::ground::backoff::jitter;
use crate::ground::error::Result;
use crate::ground::notify::{Parker, Registration, Wake};
use crate::store::{Delivery, Subscription};

/// Forged or useless messages wake a waiter at most this often in [`BURST_SPAN`].
const BURST: u32 = 100;
const BURST_SPAN: Duration = Duration::from_millis(100);

/// Where one waiting thread sleeps, and how often it was woken for nothing.
pub(super) struct Sleeper {
    pub(super) parker: Arc<Parker>,
    pub(super) registration: Option<Registration>,
    keep: Option<Box<dyn Send>>,
    pub(super) delivery: Delivery,
    jitter: Duration,
    burst_began: Instant,
    burst: u32,
}

impl Sleeper {
    pub(super) fn new(context: &WaitContext<'_>, limit: WaitLimit<'_>) -> Sleeper {
        let parker = context.notifier.parker();
        if let Some(interrupt) = limit.interrupt {
            interrupt.attach(&parker);
        }
        Sleeper {
            parker,
            registration: None,
            keep: None,
            delivery: Delivery::Pending,
            jitter: Duration::ZERO,
            burst_began: Instant::now(),
            burst: 0,
        }
    }

    /// Joins those who listen. Returns whether messages arrive from this moment on, so that it is worth asking again.
    pub(super) fn listen(&mut self, subscribe: &impl Fn(&Arc<Parker>) -> Subscription) -> bool {
        if self.registration.is_some() {
            return false;
        }
        let subscription = subscribe(&self.parker);
        self.keep = subscription.keep;
        self.registration = Some(subscription.registration);
        self.delivery = subscription.delivery;
        self.jitter = subscription.jitter;
        self.delivery == Delivery::Live
    }

    /// Sleeps until it is woken, which is true, or until `deadline`. An interrupt and the client's end are errors.
    pub(super) fn sleep(&mut self, context: &WaitContext<'_>, deadline: Instant) -> Result<bool> {
        let wake = match &mut self.registration {
            Some(registration) => registration.park(Some(deadline)),
            None => self.parker.park(Some(deadline)),
        };
        if wake == Wake::Permit && self.is_in_a_burst() {
            // A message is only a hint. A sender of thousands causes no more attempts than this.
            self.rest(context, deadline.min(self.burst_began + BURST_SPAN))?;
        } else if wake == Wake::Permit && !self.jitter.is_zero() {
            self.rest(context, deadline.min(Instant::now() + jitter(self.jitter)))?;
        }
        match wake {
            Wake::Permit => Ok(true),
            Wake::TimedOut => Ok(false),
            ended => Err(ended_by(ended, context)),
        }
    }

    /// Sleeps until `deadline`, whatever messages come. An interrupt and the client's end are errors.
    pub(super) fn rest(&self, context: &WaitContext<'_>, deadline: Instant) -> Result<()> {
        loop {
            match self.parker.park(Some(deadline)) {
                Wake::Permit => {}
                Wake::TimedOut => return Ok(()),
                ended => return Err(ended_by(ended, context)),
            }
        }
    }

    pub(super) fn is_in_a_burst(&mut self) -> bool {
        if self.burst_began.elapsed() > BURST_SPAN {
            self.burst_began = Instant::now();
            self.burst = 0;
        }
        self.burst += 1;
        self.burst > BURST
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // The place in the queue goes before the subscription that feeds it.
        self.registration = None;
        self.keep = None;
    }
}
