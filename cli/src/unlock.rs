//! `redlatch unlock --force`: the end of one hold.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use redlatch::LockInfo;
use serde::Serialize;

use crate::errors::{Failure, NO};
use crate::escape::{SCHEMA, escape};
use crate::inspect::lines;
use crate::output::{holder, json, text};

/// The arguments of `redlatch unlock`.
#[derive(clap::Args)]
pub(crate) struct UnlockArgs {
    /// The name of the lock
    name: String,
    /// Really end the hold of somebody else, who may be working under it
    #[arg(long, required = true)]
    force: bool,
    /// End the present hold without a question
    #[arg(long, conflicts_with = "holder")]
    yes: bool,
    /// End the hold of this visitor, as `redlatch inspect` shows it
    #[arg(long, value_name = "VISITOR")]
    holder: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

/// The outcome as JSON; `cli/schema/unlock.json` describes it.
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
            "{visitor:?} is not the id of a visitor; copy it from `redlatch inspect {}`, which shows those that hold it",
            args.name
        )));
    }
    let Some(visitor) = chosen(args, &info)? else {
        return answer(args, None, false, "nobody holds it");
    };
    if args.holder.is_none() && !args.yes && !is_confirmed(args, &info)? {
        return answer(args, Some(&visitor), false, "nothing was done");
    }
    match lock.force_unlock_of(&visitor)? {
        true => answer(args, Some(&visitor), true, "the hold was ended"),
        false => answer(args, Some(&visitor), false, &why_not(&visitor, &info)),
    }
}

/// Whether an id has the form of those that holds have: `uuid:thread`, and mostly more behind it.
fn could_be_a_visitor(id: &str) -> bool {
    let mut parts = id.split(':');
    let is_client = parts.next().is_some_and(|client| {
        let groups = client.split('-').map(str::len);
        let is_hex = client.chars().all(|it| it.is_ascii_hexdigit() || it == '-');
        is_hex && groups.eq([8, 4, 4, 4, 12])
    });
    is_client && parts.next().is_some_and(|it| it.parse::<u64>().is_ok())
}

/// Why the hold of this visitor could not be ended, by what was seen of the lock before.
fn why_not(visitor: &str, info: &LockInfo) -> String {
    if info.holders.iter().any(|it| it.is_visitor(visitor)) {
        return "that hold had ended already, and nothing was done".to_owned();
    }
    let holders: Vec<String> = info
        .holders
        .iter()
        .map(|it| format!("{} ({})", holder(it), escape(&it.visitor)))
        .collect();
    match holders.is_empty() {
        true => "nobody holds it".to_owned(),
        false => format!(
            "that visitor does not hold it, and nothing was done; it is held by {}",
            holders.join(", ")
        ),
    }
}

/// The hold that is to end; `None` if nobody holds the lock.
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
                "{}: several hold it; choose one with --holder: {}",
                args.name,
                visitors.join(", ")
            )))
        }
    }
}

/// Shows the holder, and asks for the name to be typed.
fn is_confirmed(args: &UnlockArgs, info: &LockInfo) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "there is no terminal to ask at; say --yes to end the present hold, or --holder VISITOR to end that one",
        ));
    }
    let mut shown = io::stderr().lock();
    let told = lines(&args.name, info)
        .into_iter()
        .try_for_each(|line| writeln!(shown, "{line}"));
    told.and_then(|()| {
        write!(
            shown,
            "Its holder may be working. Type the name of the lock to end this hold: "
        )?;
        shown.flush()
    })
    .map_err(|error| Failure::usage(format!("the question could not be asked: {error}")))?;
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.map_err(|error| Failure::usage(format!("the answer could not be read: {error}")))?;
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
