//! `redlatch watch`: shows the held locks and their events.
//!
//! Queries the locks periodically, as `redlatch list` does, and compares the snapshots. A hold that begins and ends
//! between two snapshots is not shown. After a snapshot, one more request measures the round trip.

mod columns;
mod draw;
mod event;
mod keys;
mod lines;
mod paint;
mod rows;
mod screen;
mod snapshot;
mod state;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use crate::color::{ColorChoice, is_dumb};
use crate::errors::Failure;
use snapshot::Snapshot;
use state::State;

/// The arguments of `redlatch watch`.
#[derive(clap::Args)]
pub(crate) struct WatchArgs {
    /// Prefix of the lock names; without it all locks are shown
    #[arg(value_name = "PREFIX")]
    beginning: Option<String>,
    /// Time between two queries; at least as long as a query takes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::connect::parse_duration)]
    interval: Duration,
    /// Print each event as a JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

pub(super) struct Settings {
    beginning: String,
    interval: Duration,
    is_json: bool,
    has_colour: bool,
}

/// A shorter interval would only add load on the server.
const SHORTEST: Duration = Duration::from_millis(100);

impl Settings {
    fn pause_after(&self, snapshot: &Snapshot) -> Duration {
        self.interval
            .saturating_sub(snapshot.took)
            .max(snapshot.took)
    }
}

pub(crate) fn run(args: &WatchArgs) -> Result<ExitCode, Failure> {
    if args.interval < SHORTEST {
        return Err(Failure::usage(format!(
            "--interval must be at least {SHORTEST:?}"
        )));
    }
    let backend = args.connection.open()?;
    let settings = Settings {
        beginning: args.beginning.clone().unwrap_or_default(),
        interval: args.interval,
        is_json: args.json,
        has_colour: args.color.is_on(),
    };
    let mut state = State::new(
        backend.title(),
        &settings.beginning,
        settings.interval,
        backend.lease(),
    );
    state.has_colour = settings.has_colour;
    let has_screen = io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb();
    // If no server replies to the first query, redlatch fails at once.
    let first = snapshot::take(&backend, &settings.beginning)?.useful()?;
    if args.json || !has_screen {
        lines::run(&backend, state, first, &settings)?;
        return Ok(ExitCode::SUCCESS);
    }
    screen::run(backend, state, first, &settings)
}

#[cfg(test)]
mod tests;
