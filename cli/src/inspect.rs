//! `redlatch inspect`: shows the state of one lock.

use std::process::ExitCode;

use redlatch::{LockInfo, LockKind};

use crate::errors::Failure;
use crate::escape::escape;
use crate::exit_codes::NO;
use crate::output::{LockObject, holder, json, marked_job, span, text};

/// The arguments of `redlatch inspect`.
#[derive(clap::Args)]
pub(crate) struct InspectArgs {
    /// The name of the lock
    name: String,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

pub(crate) fn run(args: &InspectArgs) -> Result<ExitCode, Failure> {
    let backend = args.connection.open()?;
    let (_, info) = backend.describe(&args.name)?;
    let printed = match args.json {
        true => json(&LockObject::of(&args.name, &info)),
        false => lines(&args.name, &info).iter().try_for_each(|it| text(it)),
    };
    let is_free = info.holders.is_empty() && info.available.is_none();
    let code = if is_free { NO } else { 0 };
    Failure::exit_with(printed, code)
}

pub(crate) fn lines(name: &str, info: &LockInfo) -> Vec<String> {
    let job = marked_job(name, info).map(escape);
    let mut lines = vec![escape(name)];
    let mut line = |title: &str, value: String| lines.push(format!("  {title:<10} {value}"));
    line("kind", info.kind.to_string());
    line("server", escape(&info.node));
    match info.available {
        Some(number) if info.kind == LockKind::Counter => line("count", number.to_string()),
        Some(number) => line("free", format!("{number} permits")),
        None if info.holders.is_empty() => line("holder", "none".to_owned()),
        None => {}
    }
    for it in &info.holders {
        let count = it.count;
        line(
            "holder",
            format!("{}, count {count}, by {}", holder(it), it.by),
        );
        line("  visitor", escape(&it.visitor));
        if let Some(address) = &it.address {
            line("  from", escape(address));
        }
    }
    match info.expires {
        Some(left) if let Some(job) = job => {
            line(
                "mark of",
                format!("--once-per: {job} has already started in this period"),
            );
            line(
                "runs again",
                format!("in {}, or at once after this mark is unlocked", span(left)),
            );
        }
        Some(left) => line(
            "expires",
            format!("in {}, unless it is renewed", span(left)),
        ),
        None if info.holders.is_empty() => {}
        None => line("expires", "never".to_owned()),
    }
    if let Some(listening) = info.listening {
        line(
            "listening",
            match listening {
                1 => "1 client".to_owned(),
                number => format!("{number} clients"),
            },
        );
    }
    if let Some(fence) = info.fence {
        line("fence", fence.to_string());
    }
    if let Some((held, of)) = info.nodes {
        line("nodes", format!("{held} of {of}"));
    }
    lines
}
