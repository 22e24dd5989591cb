//! `redlatch list`: lists the held locks.

use std::process::ExitCode;

use redlatch::LockInfo;

use crate::connect::Backend;
use crate::errors::Failure;
use crate::escape::escape;
use crate::output::{LockObject, holder, json, mark, marked_job, note, span, table, text};

/// The arguments of `redlatch list`.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// Prefix of the lock names; without it all locks are listed
    #[arg(value_name = "PREFIX")]
    beginning: Option<String>,
    /// Also list semaphores and latches, whether or not they are held
    #[arg(long)]
    all_kinds: bool,
    /// List at most N locks
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

pub(crate) fn run(args: &ListArgs) -> Result<ExitCode, Failure> {
    let backend = args.connection.open()?;
    let mut locks = backend.locks(args.beginning.as_deref().unwrap_or_default());
    if args.all_kinds {
        locks = locks.with_counters();
    }
    let (mut found, mut failure, mut is_cut) = (Vec::new(), None, false);
    for info in locks {
        match info {
            Ok(_) if found.len() >= args.limit => {
                is_cut = true;
                break;
            }
            Ok(info) if args.json => {
                json(&LockObject::of(backend.short_name(&info.name), &info))?;
                found.push(info);
            }
            Ok(info) => found.push(info),
            // In a quorum, other nodes may reply.
            Err(error) => failure = Some(Failure::without_lock(error)),
        }
    }
    let has_nothing = found.is_empty() && failure.is_some();
    if !args.json && !has_nothing {
        print(&backend, &mut found)?;
    }
    if is_cut {
        let limit = args.limit;
        note(&format!(
            "more than {limit} locks match; raise --limit or give a longer prefix"
        ));
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn print(backend: &Backend, found: &mut [LockInfo]) -> Result<(), Failure> {
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let titles = [
        "NAME",
        "KIND",
        "HOLDER",
        "COUNT",
        "EXPIRES",
        "LISTENING",
        "NODES",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for info in found.iter() {
        rows.extend(rows_of(backend.short_name(&info.name), info));
    }
    for line in table(&rows) {
        text(&line)?;
    }
    Ok(())
}

/// Returns one row for each holder.
fn rows_of(name: &str, info: &LockInfo) -> Vec<Vec<String>> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |holder: String, count: String| {
        vec![
            escape(name),
            info.kind.to_string(),
            holder,
            count,
            or_none(info.expires.map(span)),
            or_none(info.listening.map(|number| number.to_string())),
            or_none(info.nodes.map(|(held, of)| format!("{held}/{of}"))),
        ]
    };
    if let Some(number) = info.available {
        return vec![row("-".to_owned(), number.to_string())];
    }
    if marked_job(name, info).is_some() {
        return vec![row(mark(info.expires), "1".to_owned())];
    }
    let holders = info.holders.iter();
    holders
        .map(|it| row(holder(it), it.count.to_string()))
        .collect()
}
