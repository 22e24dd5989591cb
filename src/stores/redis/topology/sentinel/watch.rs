//! The thread that detects failovers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::Shared;
use super::acceptance::lone_report;
use super::report::{Report, Sentinel};
use crate::ground::backoff::Backoff;
use crate::ground::events;
use crate::ground::time;
use crate::stores::redis::replies::{item_at, text_of};
use crate::stores::redis::transport::{CallError, Connection, encode, share};

const CHANNEL: &str = "+switch-master";

/// The mean of the first pause, and of the longest pause, after a `check` that returned false.
const TRIES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

impl Shared {
    /// Returns false if the check has to be repeated soon: the accepted master is unreachable, or a later failover was
    /// reported, but by too few sentinels.
    fn check(&self) -> bool {
        let deadline = time::now() + self.command_timeout;
        let began = self.known_master.generation();
        let before = self.accepted.lock().clone();
        let known = self.known_master.master();
        if known.is_none() && self.replaced().is_none() {
            // No master is known, so the next connection searches for the master.
            return true;
        }
        let order = self.order();
        let half = share(deadline, 2);
        let ask = |(tried, sentinel): (usize, &Arc<Sentinel>)| {
            self.ask(sentinel, share(half, order.len() - tried)).ok()
        };
        let reports: Vec<Report> = order.iter().enumerate().filter_map(ask).collect();
        let Some(report) = self.accept(&reports, before.as_ref()).into_iter().next() else {
            return true;
        };
        let lone = lone_report(&report, &reports);
        let failure = if lone.is_none() && known.is_some_and(|known| *known == *report.node()) {
            None
        } else {
            let by = share(deadline, 1 + usize::from(lone.is_some()));
            self.connect_to(&report, None, began, by).err()
        };
        let outcome = match (lone, failure) {
            (Some(lone), Some(failure)) => {
                let reached =
                    self.connect_to_lone(&report, &failure, &lone, &reports, began, deadline);
                reached.map(drop).map_err(|fault| (lone, fault))
            }
            (None, Some(failure)) => Err((report, failure.fault)),
            (_, None) => Ok(()),
        };
        if let Err((report, fault)) = outcome {
            events::sentinel_failed(&report.node(), &fault.reason());
        }
        if self.leave_replaced(began) {
            return false;
        }
        let accepted = self.accepted.lock();
        let epoch = accepted.as_ref().map_or(0, |it| it.epoch);
        reports.iter().all(|answer| answer.epoch <= epoch)
    }

    /// If the accepted master is not this client's last master, returns this client's last master.
    fn replaced(&self) -> Option<Arc<str>> {
        let accepted = self.accepted.lock().as_ref().map(Report::node)?;
        self.known_master.last().filter(|last| **last != *accepted)
    }

    /// Other clients may acquire the same locks on the accepted master, so this client stops using the former master.
    /// Returns true until this client has connected to the accepted master.
    pub(super) fn leave_replaced(&self, began: u64) -> bool {
        let Some(replaced) = self.replaced() else {
            return false;
        };
        if self.known_master.master() == Some(replaced) {
            self.known_master.suspect(began);
        }
        true
    }

    pub(super) fn run(&self) {
        let mut backoff = Backoff::default();
        while let Some(sentinel) = self.order().into_iter().next() {
            let heard = self.listen(&sentinel);
            let mut state = self.state.lock();
            state.writer = None;
            let (false, Err(fault)) = (state.is_closed, heard) else {
                return;
            };
            drop(state);
            events::sentinel_failed(&sentinel.address.node, &fault.reason());
            self.put_last(&sentinel);
            let state = self.state.lock();
            if !state.is_closed {
                let again_at = time::now() + backoff.next();
                drop(self.wanted.wait(state, Some(again_at)));
            }
        }
    }

    fn listen(&self, sentinel: &Sentinel) -> Result<(), CallError> {
        let deadline = time::now() + self.command_timeout;
        let mut connection = Connection::connect(&sentinel.address, deadline)?;
        let mut writer = connection.writer().map_err(CallError::not_sent)?;
        let subscribe = encode(&["SUBSCRIBE", CHANNEL]);
        writer.send(&subscribe).map_err(CallError::not_sent)?;
        {
            let mut state = self.state.lock();
            if state.is_closed {
                return Ok(());
            }
            state.writer = Some(writer);
        }
        // A check sends a PING unless the last one is unanswered. A PING unanswered for `check_every` is a failure.
        let mut pinged_at: Option<Instant> = None;
        let mut check_at = time::now();
        let mut tries = Backoff::between(TRIES.0, TRIES.1);
        loop {
            match connection.receive(check_at) {
                Ok(message) => {
                    pinged_at = None;
                    if self.concerns_us(&message) {
                        check_at = time::now();
                        tries = Backoff::between(TRIES.0, TRIES.1);
                    }
                }
                Err(fault) if fault.is_timeout() => {
                    match pinged_at {
                        Some(at) if time::since(at) >= self.check_every => {
                            return Err(CallError::NotSent("no answer to PING".into()));
                        }
                        Some(_) => {}
                        None => {
                            let mut state = self.state.lock();
                            let Some(writer) = &mut state.writer else {
                                return Ok(());
                            };
                            let sent = writer.send(&encode(&["PING"]));
                            sent.map_err(CallError::not_sent)?;
                            pinged_at = Some(time::now());
                        }
                    }
                    let pause = if self.check() {
                        tries = Backoff::between(TRIES.0, TRIES.1);
                        self.check_every
                    } else {
                        tries.next().min(self.check_every)
                    };
                    check_at = time::now() + pause;
                }
                Err(fault) => return Err(fault.of_query()),
            }
        }
    }

    /// Whether a message reports a failover of this master. The text is `name old-host old-port new-host new-port`.
    pub(super) fn concerns_us(&self, message: &Value) -> bool {
        let [kind, text] = [0, 2].map(|at| item_at(message, at).map(text_of).unwrap_or_default());
        kind == "message" && text.split(' ').next() == Some(&*self.name)
    }
}
