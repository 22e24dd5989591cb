//! `redlatch unlock --force`: releases one hold.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use redlatch::LockInfo;
use serde::Serialize;

use crate::errors::Failure;
use crate::escape::escape;
use crate::exit_codes::NO;
use crate::inspect::lines;
use crate::output::{SCHEMA, holder, json, text};

/// The arguments of `redlatch unlock`.
#[derive(clap::Args)]
pub(crate) struct UnlockArgs {
    /// The name of the lock
    name: String,
    /// Confirm the release of a hold whose holder may still be working
    #[arg(long, required = true)]
    force: bool,
    /// Release the current hold without asking
    #[arg(long, conflicts_with = "holder")]
    yes: bool,
    /// Release the hold of this visitor, as `redlatch inspect` shows it
    #[arg(long, value_name = "VISITOR")]
    holder: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

/// The format is `cli/schema/unlock.json`.
#[derive(Serialize)]
struct Unlocked<'a> {
    schema: u32,
    name: &'a str,
    visitor: Option<&'a str>,
    freed: bool,
}

pub(crate) fn run(args: &UnlockArgs) -> Result<ExitCode, Failure> {
    let backend = args.connection.open()?;
    let (lock, info) = backend.describe(&args.name)?;
    if info.available.is_some() {
        return Err(Failure::not_a_lock(&args.name, &info));
    }
    if let Some(visitor) = &args.holder
        && !backend.uses_token_locks()
        && !could_be_a_visitor(visitor)
        && !info.holders.iter().any(|it| it.is_visitor(visitor))
    {
        return Err(Failure::usage(format!(
            "{visitor:?} is not a visitor id; copy the id from `redlatch inspect {}`",
            args.name
        )));
    }
    let Some(visitor) = chosen(args, &info)? else {
        return answer(args, None, false, "the lock is not held");
    };
    if args.holder.is_none() && !args.yes && !is_confirmed(args, &info)? {
        return answer(args, Some(&visitor), false, "nothing was released");
    }
    match lock.force_unlock_of(&visitor)? {
        true => answer(args, Some(&visitor), true, "the hold was released"),
        false => answer(args, Some(&visitor), false, &why_not(&visitor, &info)),
    }
}

/// Whether an id may be a visitor, which is `uuid:thread`, usually with more parts.
fn could_be_a_visitor(id: &str) -> bool {
    let mut parts = id.split(':');
    let is_client = parts.next().is_some_and(|client| {
        let groups = client.split('-').map(str::len);
        let is_hex = client.chars().all(|it| it.is_ascii_hexdigit() || it == '-');
        is_hex && groups.eq([8, 4, 4, 4, 12])
    });
    is_client && parts.next().is_some_and(|it| it.parse::<u64>().is_ok())
}

/// `info` was read before the attempt.
fn why_not(visitor: &str, info: &LockInfo) -> String {
    if info.holders.iter().any(|it| it.is_visitor(visitor)) {
        return "this hold had already ended; nothing was released".to_owned();
    }
    let holders: Vec<String> = info
        .holders
        .iter()
        .map(|it| format!("{} ({})", holder(it), escape(&it.visitor)))
        .collect();
    match holders.is_empty() {
        true => "the lock is not held".to_owned(),
        false => format!(
            "this visitor does not hold the lock; nothing was released; held by {}",
            holders.join(", ")
        ),
    }
}

/// `None` if the lock is free.
fn chosen(args: &UnlockArgs, info: &LockInfo) -> Result<Option<String>, Failure> {
    if let Some(visitor) = &args.holder {
        return Ok(Some(visitor.clone()));
    }
    match &info.holders[..] {
        [] => Ok(None),
        [holder] => Ok(Some(holder.visitor.clone())),
        several => {
            let visitors: Vec<&str> = several.iter().map(|it| &*it.visitor).collect();
            Err(Failure::usage(format!(
                "{} has several holders; choose one with --holder: {}",
                args.name,
                visitors.join(", ")
            )))
        }
    }
}

fn is_confirmed(args: &UnlockArgs, info: &LockInfo) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "stdin is not a terminal, so redlatch cannot ask; use --yes to release the current hold or --holder VISITOR \
             to release that one",
        ));
    }
    let mut shown = io::stderr().lock();
    let written = lines(&args.name, info)
        .into_iter()
        .try_for_each(|line| writeln!(shown, "{line}"));
    written
        .and_then(|()| {
            write!(
                shown,
                "The holder may still be working. Type the lock name to release this hold: "
            )?;
            shown.flush()
        })
        .map_err(|error| Failure::usage(format!("cannot write the question to stderr: {error}")))?;
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.map_err(|error| Failure::usage(format!("cannot read the answer from stdin: {error}")))?;
    Ok(typed.trim_end_matches(['\r', '\n']) == args.name)
}

fn answer(
    args: &UnlockArgs,
    visitor: Option<&str>,
    freed: bool,
    words: &str,
) -> Result<ExitCode, Failure> {
    let printed = match args.json {
        true => json(&Unlocked {
            schema: SCHEMA,
            name: &args.name,
            visitor,
            freed,
        }),
        false => text(&format!("{}: {words}", escape(&args.name))),
    };
    Failure::exit_with(printed, if freed { 0 } else { NO })
}
