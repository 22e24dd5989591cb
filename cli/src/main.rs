//! The command `redlatch`: distributed locks for shells, cron jobs and containers, and tools for operators.

mod bench;
mod child;
mod color;
mod connect;
mod doctor;
mod errors;
mod escape;
mod exit_codes;
mod gate;
mod inspect;
mod list;
mod output;
mod run;
mod signals;
mod stderr;
mod unlock;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use errors::{Failure, Format};
use run::dead_man;

/// Distributed locks on Redis, MySQL and MariaDB for shell scripts and operators.
#[derive(Parser)]
#[command(name = "redlatch", version, max_term_width = 100, after_help = HELP_FOOTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP_FOOTER: &str = concat!(
    "Servers are given by --url or --node, or by the variables REDLATCH_URL or REDLATCH_NODES. ",
    "Passwords are read from REDLATCH_PASSWORD or a file, never from an argument.\n",
    "Exit codes: 0 success, 1 the lock is free, nothing was released or a danger was found, 2 invalid usage or settings, ",
    "3 no usable reply or outcome unknown, 4 permission denied or TLS not trusted, ",
    "5 output not written.",
);

const RUN_HELP_FOOTER: &str = concat!(
    "A TIME is 500ms, 30s, 5m, 2h or 1d.\n\n",
    "In the crontab of every machine; one machine runs the job:\n",
    "  redlatch run --once-per 24h nightly -- ./backup.sh\n",
    "To let the job run again before the period ends:\n",
    "  redlatch unlock nightly:once --force\n\n",
    "Exit codes: the command's own, 128+n if signal n ended the command or the wait; 120 not started, 121 lock lost, ",
    "122 lock held by an outer run, 124 --max-run exceeded, 125 redlatch failed, ",
    "126 command not executable, 127 command not found.",
);

#[derive(Subcommand)]
enum Command {
    /// Run a command while holding a lock, and end the command if the lock is about to be lost
    #[command(after_help = RUN_HELP_FOOTER)]
    Run(Box<run::RunArgs>),
    /// List the locks that are held
    #[command(alias = "status")]
    List(list::ListArgs),
    /// Show the holders of a lock; exits with 1 if it is free
    Inspect(inspect::InspectArgs),
    /// Release one hold by force; a later hold is not touched
    Unlock(unlock::UnlockArgs),
    /// Show the held locks and their events live
    Watch(watch::WatchArgs),
    /// Measure the latency and throughput of locks on this server
    Bench(bench::BenchArgs),
    /// Check the server for dangers to locks; exits with 1 if it finds one
    Doctor(doctor::DoctorArgs),
    /// Create the tables for locks in a database if they are missing
    #[cfg(feature = "mysql")]
    CreateTables(connect::ConnectArgs),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page, such as `redlatch man run | man -l -`
    Man {
        /// The subcommand that the page describes; without it the page of redlatch
        command: Option<String>,
    },
}

impl Command {
    fn format(&self) -> Format {
        let is_json = match self {
            Command::List(args) => args.json,
            Command::Inspect(args) => args.json,
            Command::Unlock(args) => args.json,
            Command::Watch(args) => args.json,
            Command::Bench(args) => args.json,
            Command::Doctor(args) => args.json,
            _ => false,
        };
        match is_json {
            true => Format::Json,
            false => Format::Text,
        }
    }

    fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Command::Run(args) => Ok(run::run(&args)),
            Command::List(args) => list::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Unlock(args) => unlock::run(&args),
            Command::Watch(args) => watch::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            #[cfg(feature = "mysql")]
            Command::CreateTables(connection) => {
                connection.open()?.create_tables()?;
                let printed = output::text("the tables redlatch and redlatch_rows exist");
                Failure::exit_with(printed, 0)
            }
            Command::Completions { shell } => {
                let mut command = Cli::command();
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut command, "redlatch", &mut script);
                print(&script)
            }
            Command::Man { command } => print(&manual_page(command.as_deref())?),
        }
    }
}

fn manual_page(name: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    if let Some(name) = name {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| {
            Failure::usage(format!(
                "{name:?} is not a command; `redlatch --help` lists the commands"
            ))
        })?;
    }
    let mut manual_page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut manual_page);
    rendered.map_err(|error| Failure::output(&error))?;
    Ok(manual_page)
}

fn print(bytes: &[u8]) -> Result<ExitCode, Failure> {
    let mut stdout = io::stdout();
    let printed = stdout.write_all(bytes).and_then(|()| stdout.flush());
    printed.map_err(|error| Failure::output(&error))?;
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let [_, argument, rest @ ..] = &arguments[..] {
        match argument.to_str() {
            Some(child::CHILD) => return child::run(rest),
            Some(dead_man::SWITCH) => return dead_man::run(rest),
            _ => {}
        }
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return argument_error(&arguments, &error),
    };
    let format = cli.command.format();
    match cli.command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(format),
    }
}

/// clap reports requested help as an error, too.
fn argument_error(arguments: &[OsString], error: &clap::Error) -> ExitCode {
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if is_help {
        let printed = error.print();
        return match printed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => Failure::output(&error).report(Format::Text),
        };
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let message: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .collect();
    let message = message.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let command = arguments.get(1).and_then(|name| name.to_str());
    let known = Cli::command();
    let help = match command.filter(|name| known.find_subcommand(name).is_some()) {
        Some(name) => format!("see `redlatch {name} --help`"),
        None => "see `redlatch --help` for the commands".to_owned(),
    };
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no command given",
        _ => message,
    };
    let mut failure = Failure::usage(format!("{message}; {help}"));
    if command == Some("run") {
        if !arguments.iter().any(|argument| argument == "--") {
            // The tip of clap suggests `--` for a single argument only, so it is removed.
            let message = message.split(" tip:").next().unwrap_or_default();
            failure = Failure::usage(format!(
                "{message}; the command needs -- before it: redlatch run NAME -- COMMAND"
            ));
        }
        failure.print();
        return ExitCode::from(exit_codes::FAILED);
    }
    let is_json = arguments.iter().any(|argument| argument == "--json");
    let format = if is_json { Format::Json } else { Format::Text };
    failure.report(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_argument_definitions() {
        Cli::command().debug_assert();
    }
}
