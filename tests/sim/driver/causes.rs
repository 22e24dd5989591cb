//! Whether the cause of a loss that is told is one that the world has given.
//!
//! | cause | it is true only if |
//! |---|---|
//! | `Gone` | the store does not have the hold, a quorum not at enough nodes |
//! | `HeldBy` | the same, and the other hold was there at some time |
//! | `Unreachable` | something keeps renewals from their server; a suspended machine and a pause are named only where there was one |
//! | `LeaseEnded` | no level is renewed |
//! | `Closed` | the client was shut down |
//! | `ThreadEnded` | the thread does not run any more, so none that is looked at |
//! | `WatchdogDied`, `Forked`, `Unheard` | never, for no thread of the watchdog ends by itself here, and the checker looks at no fork |

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use redlatch_sim::LossCause;
use redlatch_world::scheduler;

use crate::promptness::Observation;

/// All visitors that ever held a lock on some server.
static VISITORS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

pub(crate) fn note_visitors(visitors: impl Iterator<Item = String>) {
    let mut all = VISITORS.lock().unwrap_or_else(PoisonError::into_inner);
    all.extend(visitors);
}

/// The possible causes of losses in a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    /// Processes whose machines sleep at some time.
    pub(crate) suspended: Vec<usize>,
    /// When the clients of processes are shut down, each with its process.
    pub(crate) closed: Vec<(usize, scheduler::Nanos)>,
    /// Nothing blocks renewals on their way to the server.
    pub(crate) is_reached: bool,
    /// A late copy of a request may recreate a deleted key.
    pub(crate) may_come_back: bool,
}

#[derive(Default)]
pub(crate) struct ReportedLosses {
    /// The visitors whose losses were checked.
    judged: BTreeSet<String>,
}

impl ReportedLosses {
    /// Checks new losses. `stands` tells whether the store has the hold, where that is known.
    pub(crate) fn untrue(
        &mut self,
        observations: &[Observation],
        causes: &Causes,
        stands: impl Fn(&Observation) -> Option<bool>,
    ) -> Option<String> {
        for observation in observations {
            let Some(cause) = &observation.hold.cause else {
                continue;
            };
            if !self.judged.insert(observation.hold.visitor.clone()) {
                continue;
            }
            if let Some(why) = causes.untrue(observation, cause, &stands) {
                let (name, visitor) = (&observation.hold.name, &observation.hold.visitor);
                return Some(format!(
                    "I6: the hold {visitor} of {name} is said to be lost: {cause}; but {why}"
                ));
            }
        }
        None
    }
}

impl Causes {
    fn untrue(
        &self,
        observation: &Observation,
        cause: &LossCause,
        stands: impl Fn(&Observation) -> Option<bool>,
    ) -> Option<&'static str> {
        let process = observation.process;
        let is_closed = || {
            let mut closed = self.closed.iter();
            closed.any(|(it, at)| *it == process && *at <= scheduler::now())
        };
        let stays = || !self.may_come_back && stands(observation) == Some(true);
        let is_untrue = |is: bool, why| is.then_some(why);
        match cause {
            LossCause::Gone => is_untrue(stays(), "the store has it"),
            LossCause::HeldBy(holder) => {
                let all = VISITORS.lock().unwrap_or_else(PoisonError::into_inner);
                let is_known = all.contains(holder) && *holder != observation.hold.visitor;
                is_untrue(!is_known, "that one never had it")
                    .or_else(|| is_untrue(stays(), "the store has it"))
            }
            LossCause::Unreachable { reason, .. } => {
                let sleeps = self.suspended.contains(&process);
                let is_paused = scheduler::lag(process) > 0;
                is_untrue(self.is_reached, "nothing is in the way of its renewals")
                    .or_else(|| {
                        let says = reason.contains("this machine was suspended");
                        is_untrue(says && !sleeps, "the machine did not sleep")
                    })
                    .or_else(|| {
                        let says = reason.contains("this process may have been paused");
                        is_untrue(says && !is_paused && !sleeps, "the process was not paused")
                    })
            }
            LossCause::LeaseEnded => is_untrue(
                observation.hold.renewed.is_some(),
                "a level of it is renewed",
            ),
            LossCause::Closed => is_untrue(!is_closed(), "its client was not shut down"),
            LossCause::ThreadEnded => Some("its thread runs"),
            _ => Some("there is no such cause here"),
        }
    }
}
