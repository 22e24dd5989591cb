//! Signals to this process. Some of them end a wait. While the command runs, they are forwarded to the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, unbounded};
use redlatch::Interrupt;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator;

use crate::errors::Failure;

/// The signals that end a wait for the lock.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
const OTHERS: [i32; 4] = [SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH];

pub(crate) struct Signals {
    received: Receiver<i32>,
    interrupt: Interrupt,
    /// The first received signal of `ENDING`. 0 if there was none.
    ending: Arc<AtomicI32>,
}

impl Signals {
    /// A signal that was ignored at start, as under nohup, stays ignored.
    pub(crate) fn install() -> Result<Signals, Failure> {
        let failed = |error| Failure::usage(format!("cannot install signal handlers: {error}"));
        let ignored = ignored("self");
        let handled = ENDING.into_iter().chain(OTHERS);
        let handled = handled.filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut registered = iterator::Signals::new(handled).map_err(failed)?;
        let (sender, received) = unbounded();
        let interrupt = Interrupt::new();
        let ending = Arc::new(AtomicI32::new(0));
        let (raises, ending_number) = (interrupt.clone(), Arc::clone(&ending));
        let listen = move || {
            for signal in registered.forever() {
                if ENDING.contains(&signal) {
                    let _ = ending_number.compare_exchange(
                        0,
                        signal,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    );
                    raises.raise();
                }
                if sender.send(signal).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("redlatch-signals".to_owned())
            .spawn(listen)
            .map_err(failed)?;
        Ok(Signals {
            received,
            interrupt,
            ending,
        })
    }

    /// A signal of `ENDING` raises this interrupt.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    pub(crate) fn ending(&self) -> Option<u8> {
        let number = self.ending.load(Ordering::SeqCst);
        u8::try_from(number).ok().filter(|number| *number > 0)
    }

    pub(crate) fn ending_number(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.ending)
    }

    pub(crate) fn received(&self) -> &Receiver<i32> {
        &self.received
    }
}

/// Returns the signals that a process ignores, one bit each. Always 0 on other systems than Linux.
pub(crate) fn ignored(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
