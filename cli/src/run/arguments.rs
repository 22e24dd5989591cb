//! The arguments of `redlatch run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::Signal;

use crate::connect::parse_duration;
use crate::errors::Failure;

/// The slack that is left out of a period, so that a timer that is early by a little finds it over.
const MOST_SLACK: Duration = Duration::from_secs(300);

/// A period is a lease, and those of the library are not longer.
const LONGEST_PERIOD: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// The arguments of `redlatch run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// The name of the lock; several are taken all or none
    #[arg(required = true, value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Do not wait for the lock
    #[arg(long = "try", conflicts_with = "wait")]
    pub(super) only_tries: bool,
    /// Wait for the lock so long at most, such as 30s; without it for ever, or with --once-per not at all
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) wait: Option<Duration>,
    /// End the command after this time, as timeout(1) does
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) max_run: Option<Duration>,
    /// What the command gets when its lock is in danger or lost
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(super) on_lost: OnLost,
    /// How long before the end of its validity the command is told; a third of the lease at most, which is the default
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) grace: Option<Duration>,
    /// From TERM to KILL where there is no validity to wait for
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub(super) kill_after: Duration,
    /// Run the command once in this time (24h), over all machines, counted from its last start
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) once_per: Option<Duration>,
    /// With --once-per: whether the start counts, or only an end with 0
    #[arg(long, value_enum, default_value_t = MarkWhen::Start, requires = "once_per")]
    pub(super) mark: MarkWhen,
    /// With --once-per: a period of its own, such as "$(date +%F)"
    #[arg(long, value_name = "KEY", requires = "once_per")]
    pub(super) once_key: Option<String>,
    /// With --once-per: how much earlier it may run again; a tenth, at most 5m, by default
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "once_per")]
    pub(super) slack: Option<Duration>,
    /// The exit code if the command was not started, because somebody else has the lock or it has run already
    #[arg(
        short = 'E',
        long = "refused-exit-code",
        value_name = "N",
        default_value_t = 120
    )]
    pub(super) refused_code: u8,
    /// The exit code if the lock was lost before the command had ended
    #[arg(long = "lost-exit-code", value_name = "N", default_value_t = 121)]
    pub(super) lost_code: u8,
    /// What the command gets if redlatch itself is killed
    #[arg(long, value_enum, default_value_t = Orphan::Kill)]
    pub(super) orphan: Orphan,
    /// Leave the command in this process group, as on a terminal
    #[arg(long)]
    pub(super) foreground: bool,
    /// Leave the variables with secrets to the command
    #[arg(long)]
    pub(super) keep_credentials: bool,
    /// Write a JSON object about the run to this file
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Say nothing while it waits, nor when it is not started
    #[arg(long, short)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) connection: crate::connect::ConnectArgs,
}

/// What a command gets whose lock is in danger.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    Term,
    Kill,
    Warn,
}

/// When a run counts.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MarkWhen {
    Start,
    Success,
}

/// What an orphan gets.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Orphan {
    Kill,
    Term,
    Keep,
}

impl RunArgs {
    /// Refuses what does not go together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.once_per.is_some() && self.names.len() > 1 {
            return Err(Failure::usage("--once-per goes with one name"));
        }
        self.period()?;
        if self.once_per.is_some() && self.connection.is_quorum()? {
            return Err(Failure::usage(
                "--once-per does not go with --redlock: a lease of hours would take restarted nodes out of the vote for \
                 hours",
            ));
        }
        if self
            .command
            .first()
            .is_none_or(|command| command.is_empty())
        {
            return Err(Failure::usage(
                "the command is empty; name a program behind --",
            ));
        }
        Ok(())
    }

    /// How long one run keeps others away, if it does: `--once-per` without the slack.
    pub(super) fn period(&self) -> Result<Option<Duration>, Failure> {
        let Some(period) = self.once_per else {
            return Ok(None);
        };
        let slack = self.slack.unwrap_or((period / 10).min(MOST_SLACK));
        let period = period.saturating_sub(slack);
        if period < SHORTEST_PERIOD {
            return Err(Failure::usage(format!(
                "--once-per has to be longer than --slack, by {SHORTEST_PERIOD:?} at least"
            )));
        }
        if period > LONGEST_PERIOD {
            return Err(Failure::usage(
                "--once-per is longer than 365d, which is the longest time that the server keeps a lock for",
            ));
        }
        Ok(Some(period))
    }

    /// The names, for messages.
    pub(super) fn title(&self) -> String {
        self.names.join(" + ")
    }

    /// How long it waits for the lock; `None` for ever.
    pub(super) fn wait_timeout(&self) -> Option<Duration> {
        match self.only_tries || (self.once_per.is_some() && self.wait.is_none()) {
            true => Some(Duration::ZERO),
            false => self.wait,
        }
    }

    pub(super) fn orphan_signal(&self) -> Option<Signal> {
        match self.orphan {
            Orphan::Kill => Some(Signal::KILL),
            Orphan::Term => Some(Signal::TERM),
            Orphan::Keep => None,
        }
    }
}
