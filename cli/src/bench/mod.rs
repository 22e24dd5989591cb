//! `redlatch bench`: measures the latency of locks, in time and in round trips.

mod measure;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::errors::Failure;
use crate::exit_codes;
use crate::output::{SCHEMA, json, text};
use crate::signals::Signals;
use measure::{Bench, Samples};

/// The arguments of `redlatch bench`.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Total duration; each of the four measurements gets a quarter
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Number of threads in the last measurement
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Maximum number of rounds per second, over all threads
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_rate: u32,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    connection: crate::connect::ConnectArgs,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Measurement {
    RoundTrip,
    Pair,
    HandOff,
    Threads,
}

impl Measurement {
    const ALL: [Measurement; 4] = [
        Measurement::RoundTrip,
        Measurement::Pair,
        Measurement::HandOff,
        Measurement::Threads,
    ];
}

/// The format is `cli/schema/bench.json`.
#[derive(Serialize)]
struct MeasurementObject {
    schema: u32,
    measured: Measurement,
    threads: u32,
    count: usize,
    median_us: u64,
    p99_us: u64,
    max_us: u64,
    per_second: f64,
    round_trips: Option<f64>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    // The handlers are installed before the first lock, so that a signal leaves no lock behind.
    let signals = Signals::install()?;
    let (backend, other) = (args.connection.open()?, args.connection.open()?);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let bench = Bench {
        backend: &backend,
        other: &other,
        name: format!(
            "redlatch:bench:{}-{:x}",
            std::process::id(),
            since.unwrap_or_default().as_nanos()
        ),
        time: Duration::from_secs(args.seconds) / 4,
        max_rate: args.max_rate,
        interrupt: signals.interrupt(),
    };
    let mut round_trip = None;
    for measurement in Measurement::ALL {
        let sample = match measurement {
            Measurement::RoundTrip => bench.round_trip()?,
            Measurement::Pair => bench.pairs(1)?,
            Measurement::HandOff => bench.hand_off()?,
            Measurement::Threads => bench.pairs(args.threads)?,
        };
        if let Some(number) = signals.ending() {
            return Ok(ExitCode::from(exit_codes::of_signal(number)));
        }
        if sample.times.is_empty() {
            return Err(Failure::usage(format!(
                "no round completed in {:?}; raise --seconds or --max-rate",
                bench.time
            )));
        }
        if round_trip.is_none() && !args.json {
            text(&line(["", "MEDIAN", "P99", "PER SECOND", "ROUND TRIPS"]))?;
        }
        let base = *round_trip.get_or_insert(sample.at(50));
        let measured = MeasurementObject::of(measurement, &sample, base);
        match args.json {
            true => json(&measured)?,
            false => text(&measured.line())?,
        }
    }
    if !args.json {
        text(&format!(
            "\nA round trip is one request that asks whether a free name is locked. Rate limit: {} per second (--max-rate).",
            args.max_rate
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl MeasurementObject {
    fn of(measured: Measurement, sample: &Samples, round_trip: Duration) -> MeasurementObject {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let median = sample.at(50);
        let trips = median.as_secs_f64() / round_trip.as_secs_f64();
        MeasurementObject {
            schema: SCHEMA,
            measured,
            threads: sample.threads,
            count: sample.times.len(),
            median_us: micros(median),
            p99_us: micros(sample.at(99)),
            max_us: micros(sample.at(100)),
            per_second: hundredths(sample.times.len() as f64 / sample.took.as_secs_f64()),
            round_trips: trips.is_finite().then(|| hundredths(trips)),
        }
    }

    fn line(&self) -> String {
        let title = match self.measured {
            Measurement::RoundTrip => "round trip".to_owned(),
            Measurement::Pair => "lock and unlock".to_owned(),
            Measurement::HandOff => "hand-off to another client".to_owned(),
            Measurement::Threads if self.threads == 1 => "lock and unlock, 1 thread".to_owned(),
            Measurement::Threads => format!("lock and unlock, {} threads", self.threads),
        };
        let millis = |micros: u64| format!("{:.3} ms", micros as f64 / 1000.0);
        let trips = self.round_trips;
        line([
            &title,
            &millis(self.median_us),
            &millis(self.p99_us),
            &format!("{:.0}", self.per_second),
            &trips.map_or("-".to_owned(), |trips| format!("{trips:.1}")),
        ])
    }
}

fn line([title, median, p99, per_second, trips]: [&str; 5]) -> String {
    format!("{title:<28}{median:>12}{p99:>12}{per_second:>12}{trips:>13}")
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
