//! The terminal, which is restored on every exit path.

use std::io::{self, BufWriter, Stdout, Write};
use std::mem::ManuallyDrop;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::TryRecvError;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, style};
use ratatui::layout::{Position, Rect};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGTSTP};

use super::Settings;
use super::draw::draw;
use super::keys::{Action, press};
use super::snapshot::{Poller, Reply, Snapshot, Task, poller_stopped};
use super::state::State;
use crate::connect::Backend;
use crate::errors::Failure;
use crate::exit_codes;
use crate::signals::Signals;

/// The maximum delay for events other than keys. A key is handled at once.
const TICK: Duration = Duration::from_millis(100);

/// The screen is redrawn at least this often, because it shows times.
const REDRAW: Duration = Duration::from_millis(500);

/// Whether the terminal is in the alternate screen. Restoring it twice would lose the shell's cursor position.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// After a signal, the process exits within this time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The drop restores the terminal.
pub(super) struct Screen {
    /// Never dropped. The drop of `Terminal` prints errors to stderr, and panics if this fails.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    pub(super) fn enter() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print_panic = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                restore_terminal();
                print_panic(panic);
            }));
        });
        IS_TAKEN.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout()))));
        match taken {
            Ok(terminal) => Ok(Screen {
                terminal: ManuallyDrop::new(terminal),
            }),
            Err(error) => {
                restore_terminal();
                Err(error)
            }
        }
    }

    fn suspend(&mut self) -> io::Result<()> {
        restore_terminal();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        self.take_back()
    }

    /// The shell may have used the terminal.
    fn take_back(&mut self) -> io::Result<()> {
        // crossterm remembers the earlier raw mode. Without this call, it would skip `enable_raw_mode`.
        disable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        self.redraw()
    }

    /// Makes the next draw write every cell.
    fn redraw(&mut self) -> io::Result<()> {
        // `clear` would query the cursor position, and fail if the terminal did not reply.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore_terminal();
    }
}

fn restore_terminal() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // A failure can be neither reported nor repaired.
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}

pub(super) fn run(
    backend: Backend,
    mut state: State,
    first: Snapshot,
    settings: &Settings,
) -> Result<ExitCode, Failure> {
    let failed = |error: io::Error| Failure::output(&error);
    let signals = Signals::install()?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTSTP, Arc::clone(&is_stopped)).map_err(failed)?;
    exit_if_blocked(&signals).map_err(failed)?;
    style::force_color_output(settings.has_colour);
    let poller = Poller::start(backend, settings.beginning.clone())?;
    let mut due = Some(Instant::now() + settings.pause_after(&first));
    state.apply(first);
    let mut screen = Screen::enter().map_err(failed)?;
    let mut drawn: Option<Instant> = None;
    loop {
        if let Some(number) = signals.ending() {
            return Ok(ExitCode::from(exit_codes::of_signal(number)));
        }
        if is_stopped.swap(false, Ordering::SeqCst) {
            screen.suspend().map_err(failed)?;
            drawn = None;
        } else if signals
            .received()
            .try_iter()
            .any(|signal| signal == SIGCONT)
        {
            screen.take_back().map_err(failed)?;
            drawn = None;
        }
        match poller.replies.try_recv() {
            Ok(reply) => {
                let is_snapshot = matches!(reply, Reply::Snapshot(_));
                let pause = apply_reply(&mut state, reply, settings)?;
                match is_snapshot {
                    true => due = Some(Instant::now() + pause),
                    // The next query shows the effect of the release, so it is sent now.
                    false => due = due.map(|_| Instant::now()),
                }
                drawn = None;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(poller_stopped()),
        }
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) && !state.view.is_paused {
            poller.give(Task::Snapshot)?;
            due = None;
        }
        if drawn.is_none_or(|at| now.saturating_duration_since(at) >= REDRAW) {
            screen
                .terminal
                .draw(|frame| draw(frame, &state, now))
                .map_err(failed)?;
            drawn = Some(now);
        }
        wait_for_key().map_err(failed)?;
        while event::poll(Duration::ZERO).map_err(failed)? {
            drawn = None;
            let Event::Key(key) = event::read().map_err(failed)? else {
                continue;
            };
            match press(&mut state, key, Instant::now()) {
                Action::Nothing => {}
                Action::Quit => return Ok(ExitCode::SUCCESS),
                Action::Suspend => screen.suspend().map_err(failed)?,
                Action::Redraw => screen.redraw().map_err(failed)?,
                Action::Snapshot => due = due.map(|_| Instant::now()),
                Action::EndHold(chosen) => {
                    let (name, visitor) = (chosen.name, chosen.holder.visitor);
                    poller.give(Task::End { name, visitor })?;
                }
            }
        }
    }
}

/// Returns after a key, a signal or a tick. Fails if the terminal is closed.
fn wait_for_key() -> io::Result<()> {
    // If the terminal is closed, `event::poll` would loop forever.
    let input = io::stdin();
    let mut waiting = [PollFd::new(&input, PollFlags::IN)];
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(TICK.subsec_nanos()),
    };
    match rustix::event::poll(&mut waiting, Some(&tick)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match waiting.iter().any(|it| it.revents().intersects(gone)) {
        true => Err(io::Error::other("the terminal was closed")),
        false => Ok(()),
    }
}

/// After a signal, the event loop may block on a terminal that is closed or accepts no output. The process then exits.
fn exit_if_blocked(signals: &Signals) -> io::Result<()> {
    let (interrupt, ending) = (signals.interrupt().clone(), signals.ending_number());
    let wait = move || {
        interrupt.wait();
        thread::sleep(EXIT_TIMEOUT);
        // Restoring the whole terminal might block.
        let _ = disable_raw_mode();
        let number = u8::try_from(ending.load(Ordering::SeqCst)).unwrap_or_default();
        std::process::exit(exit_codes::of_signal(number).into());
    };
    let thread = thread::Builder::new().name("redlatch-end".to_owned());
    thread.spawn(wait).map(drop)
}

/// Returns the pause until the next query.
fn apply_reply(state: &mut State, reply: Reply, settings: &Settings) -> Result<Duration, Failure> {
    match reply {
        Reply::Snapshot(snapshot) => {
            let snapshot = snapshot?;
            let pause = settings.pause_after(&snapshot);
            state.apply(snapshot);
            Ok(pause)
        }
        Reply::Ended {
            name,
            visitor,
            freed,
        } => {
            let notice = match freed {
                Ok(true) => {
                    state.record_forced(visitor);
                    format!("{name}: the hold was released")
                }
                Ok(false) => format!("{name}: this hold had already ended; nothing was released"),
                Err(failure) => failure.to_string(),
            };
            state.view.notice = Some((notice, Instant::now()));
            Ok(Duration::ZERO)
        }
    }
}
