//! The command `redlatch`: locks for shells, cron and containers, and a look at them for those who operate them.

mod bench;
mod child;
mod color;
mod connect;
mod doctor;
mod errors;
mod escape;
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

/// Distributed locks on Redis, MySQL and MariaDB, for shells and for those who operate them.
#[derive(Parser)]
#[command(name = "redlatch", version, max_term_width = 100, after_help = HELP_FOOTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP_FOOTER: &str = "The locks are found by --url or --node, or by the variables REDLATCH_URL or REDLATCH_NODES; passwords \
                     only by REDLATCH_PASSWORD or a file.\nExit codes: 0 done, 1 the answer is no, 2 usage, \
                     3 unreachable or outcome unknown, 4 not permitted or not trusted, 5 the output could not be written.";

const RUN_HELP_FOOTER: &str = "A TIME is 500ms, 30s, 5m, 2h or 1d.\n\nFor cron, on every machine; one of them runs it:\n  \
                   redlatch run --once-per 24h nightly -- ./backup.sh\nTo let it run again before it is due:\n  \
                   redlatch unlock nightly:once --force\n\nExit codes: that of the command, 128+n if signal n ended it; 120 it was not started, 121 the lock was lost, \
                   122 an outer run has the lock, 124 --max-run was over, 125 redlatch failed, 126 it cannot be executed, \
                   127 it was not found.";

#[derive(Subcommand)]
enum Command {
    /// Run a command under a lock, and end it before the lock can be lost
    #[command(after_help = RUN_HELP_FOOTER)]
    Run(Box<run::RunArgs>),
    /// List the locks that somebody holds
    #[command(alias = "status")]
    List(list::ListArgs),
    /// Show who holds a lock; ends with 1 if nobody does
    Inspect(inspect::InspectArgs),
    /// End one hold of a lock, and no later one
    Unlock(unlock::UnlockArgs),
    /// Show the locks that somebody holds, and what happens to them
    Watch(watch::WatchArgs),
    /// Measure what a lock costs here
    Bench(bench::BenchArgs),
    /// Look for what endangers locks here; ends with 1 on a danger
    Doctor(doctor::DoctorArgs),
    /// Create the tables of the locks in a database, unless they are there
    #[cfg(feature = "mysql")]
    CreateTables(connect::ConnectArgs),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page, such as `redlatch man run | man -l -`
    Man {
        /// The command that it is about; that of redlatch itself without it
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
                let printed = output::text("the tables redlatch and redlatch_rows are there");
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

/// The manual page of redlatch, or of one of its commands.
fn manual_page(name: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    if let Some(name) = name {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| {
            Failure::usage(format!(
                "{name:?} is no command; `redlatch --help` lists them"
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

/// Prints the help that was asked for, or says in one line what is wrong with the arguments.
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
        Some(name) => format!("`redlatch {name} --help` shows how it is called"),
        None => "`redlatch --help` lists the commands".to_owned(),
    };
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no command was given",
        _ => message,
    };
    let mut failure = Failure::usage(format!("{message}; {help}"));
    if command == Some("run") {
        if !arguments.iter().any(|argument| argument == "--") {
            // The tip would put one argument behind it.
            let message = message.split(" tip:").next().unwrap_or_default();
            failure = Failure::usage(format!(
                "{message}; there is no -- before the command: redlatch run NAME -- COMMAND"
            ));
        }
        failure.print();
        return ExitCode::from(run::FAILED);
    }
    let is_json = arguments.iter().any(|argument| argument == "--json");
    let format = if is_json { Format::Json } else { Format::Text };
    failure.report(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
