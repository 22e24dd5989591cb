//! Arguments of `redlatch run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::Signal;

use crate::connect::parse_duration;
use crate::errors::Failure;

/// The maximum of the default slack. With slack, a timer that fires a little early starts the job.
const MOST_SLACK: Duration = Duration::from_secs(300);

/// The period becomes a lease, for which this is the maximum.
const LONGEST_PERIOD: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// Arguments of `redlatch run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Name of the lock; several locks are acquired all or none
    #[arg(required = true, value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Do not wait for the lock
    #[arg(long = "try", conflicts_with = "wait")]
    pub(super) only_tries: bool,
    /// Maximum wait for the lock, such as 30s; by default unlimited, with --once-per no wait
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) wait: Option<Duration>,
    /// End the command after this time, as timeout(1) does
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) max_run: Option<Duration>,
    /// Reaction if the lock is about to be lost, or is lost
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(super) on_lost: OnLost,
    /// Send TERM this long before the lock's validity ends; by default and at most a third of the lease
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) grace: Option<Duration>,
    /// Time from TERM to KILL, unless the lock's validity ends first
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub(super) kill_after: Duration,
    /// Run the command at most once in this time, such as 24h, over all machines, counted from its last start
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) once_per: Option<Duration>,
    /// With --once-per: what counts as a run, the start or only an exit with 0
    #[arg(long, value_enum, default_value_t = MarkWhen::Start, requires = "once_per")]
    pub(super) mark: MarkWhen,
    /// With --once-per: key of a separate period, such as "$(date +%F)"
    #[arg(long, value_name = "KEY", requires = "once_per")]
    pub(super) once_key: Option<String>,
    /// With --once-per: how much earlier the next run may start; by default a tenth, at most 5m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "once_per")]
    pub(super) slack: Option<Duration>,
    /// Exit code if the command was not started because the lock is held or the job has already started
    #[arg(
        short = 'E',
        long = "refused-exit-code",
        value_name = "N",
        default_value_t = 120
    )]
    pub(super) refused_code: u8,
    /// Exit code if the lock was lost before the command ended
    #[arg(long = "lost-exit-code", value_name = "N", default_value_t = 121)]
    pub(super) lost_code: u8,
    /// Signal to the command if redlatch itself is killed
    #[arg(long, value_enum, default_value_t = Orphan::Kill)]
    pub(super) orphan: Orphan,
    /// Leave the command in redlatch's process group, as on a terminal
    #[arg(long)]
    pub(super) foreground: bool,
    /// Pass variables that contain secrets to the command
    #[arg(long)]
    pub(super) keep_credentials: bool,
    /// Write a JSON object about the run to this file
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Print nothing while waiting, nor if the command is not started
    #[arg(long, short)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) connection: crate::connect::ConnectArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    Term,
    Kill,
    Warn,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MarkWhen {
    Start,
    Success,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Orphan {
    Kill,
    Term,
    Keep,
}

impl RunArgs {
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.once_per.is_some() && self.names.len() > 1 {
            return Err(Failure::usage("--once-per takes exactly one lock name"));
        }
        self.period()?;
        if self.once_per.is_some() && self.connection.is_quorum()? {
            return Err(Failure::usage(
                "--once-per cannot be used with --redlock: a lease of hours would exclude restarted nodes from voting \
                 for hours",
            ));
        }
        if self
            .command
            .first()
            .is_none_or(|command| command.is_empty())
        {
            return Err(Failure::usage(
                "the command is empty; give a program after --",
            ));
        }
        Ok(())
    }

    /// Returns the lease of the mark, which is `--once-per` minus the slack.
    pub(super) fn period(&self) -> Result<Option<Duration>, Failure> {
        let Some(period) = self.once_per else {
            return Ok(None);
        };
        let slack = self.slack.unwrap_or((period / 10).min(MOST_SLACK));
        let period = period.saturating_sub(slack);
        if period < SHORTEST_PERIOD {
            return Err(Failure::usage(format!(
                "--once-per must exceed --slack by at least {SHORTEST_PERIOD:?}"
            )));
        }
        if period > LONGEST_PERIOD {
            return Err(Failure::usage(
                "--once-per must be at most 365d, the longest lease of a lock",
            ));
        }
        Ok(Some(period))
    }

    pub(super) fn title(&self) -> String {
        self.names.join(" + ")
    }

    /// `None` for an unlimited wait.
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
