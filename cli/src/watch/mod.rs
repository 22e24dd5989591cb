//! `redlatch watch`: the locks that somebody holds, and what happens to them.
//!
//! It looks again and again as `redlatch list` does, and compares: nothing is asked of the server that a list would not ask,
//! and what begins and ends between two looks is not seen.

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
    /// The beginning of the names; all locks without it
    #[arg(value_name = "PREFIX")]
    beginning: Option<String>,
    /// How long from one look to the next; at least as long as a look takes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::connect::parse_duration)]
    interval: Duration,
    /// Print each event as a JSON object on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

/// How to watch.
pub(super) struct Settings {
    beginning: String,
    interval: Duration,
    is_json: bool,
    has_colour: bool,
}

/// Looks that follow each other faster are no use to people, and a burden to the server.
const SHORTEST: Duration = Duration::from_millis(100);

impl Settings {
    /// How long to wait after a look: the server rests for as long as a look has lasted.
    fn pause_after(&self, snapshot: &Snapshot) -> Duration {
        self.interval
            .saturating_sub(snapshot.took)
            .max(snapshot.took)
    }
}

pub(crate) fn run(args: &WatchArgs) -> Result<ExitCode, Failure> {
    if args.interval < SHORTEST {
        return Err(Failure::usage(format!(
            "--interval is shorter than {SHORTEST:?}, faster than anybody reads"
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
    // A place that does not answer at all is better told of at once.
    let first = snapshot::take(&backend, &settings.beginning)?.useful()?;
    if args.json || !has_screen {
        lines::run(&backend, state, first, &settings)?;
        return Ok(ExitCode::SUCCESS);
    }
    screen::run(backend, state, first, &settings)
}

#[cfg(test)]
mod tests;
