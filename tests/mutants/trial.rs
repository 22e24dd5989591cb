//! Tries the changes of a folder: which tests reach it, and whether one of them fails with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::find::Change;
use crate::run::{self, End, Run, Runner};

/// The least time that a run may take.
const LEAST: Duration = Duration::from_secs(30);

/// The tests of one change take this many seconds at most, one by one and without it, unless `BUDGET` says otherwise: those
/// that are likely to see it come first.
const BUDGET: usize = 120;

/// A test, as it was without a change.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) program: PathBuf,
    pub(crate) name: String,
    pub(crate) took: Duration,
    pub(crate) reached: BTreeSet<u32>,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// By this test.
    Caught(String),
    /// A test did not end, or the program died.
    Ended(String),
    Missed,
    /// No test gets there.
    Unreached,
}

/// The tests, of all programs, with what each of them reaches.
pub(crate) struct Tests {
    pub(crate) all: Vec<Test>,
    /// Names of those that fail without a change.
    pub(crate) failing: Vec<String>,
}

/// Does `work` with each item, several at a time.
fn at_once<T: Send>(workers: usize, items: Vec<T>, work: impl Fn(T) + Sync) {
    let queue = Mutex::new(VecDeque::from(items));
    let next = || {
        queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

/// Runs each test once by itself.
pub(crate) fn record(
    runner: &Runner,
    workers: usize,
    folder: &Path,
    tests: Vec<(PathBuf, String)>,
) -> Tests {
    let found = Mutex::new(Tests {
        all: Vec::new(),
        failing: Vec::new(),
    });
    let numbered = tests.into_iter().enumerate().collect();
    at_once(workers, numbered, |(index, (program, name))| {
        let file = folder.join(format!("reached-{index}"));
        let run = Run {
            program: &program,
            tests: &[&name],
            change: 0,
            limit: 8 * LEAST,
        };
        // One that is not sure of itself says nothing about a change, so none gets a second try.
        let recorded = runner.record(&run, &file);
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        match recorded {
            Some((reached, took)) => found.all.push(Test {
                program,
                name,
                took,
                reached,
            }),
            None => found.failing.push(name),
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.all.sort_by_key(|test| test.took);
    found
}

impl Tests {
    pub(crate) fn to_json(&self) -> Value {
        let of = |test: &Test| {
            json!([
                test.program,
                test.name,
                test.took.as_millis() as u64,
                test.reached
            ])
        };
        json!({ "all": self.all.iter().map(of).collect::<Vec<_>>(), "failing": self.failing })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Tests> {
        let test = |value: &Value| {
            let numbers = value[3].as_array()?.iter().filter_map(Value::as_u64);
            Some(Test {
                program: value[0].as_str()?.into(),
                name: value[1].as_str()?.to_owned(),
                took: Duration::from_millis(value[2].as_u64()?),
                reached: numbers
                    .filter_map(|number| u32::try_from(number).ok())
                    .collect(),
            })
        };
        let names = value["failing"]
            .as_array()?
            .iter()
            .filter_map(Value::as_str);
        Some(Tests {
            all: value["all"]
                .as_array()?
                .iter()
                .map(test)
                .collect::<Option<_>>()?,
            failing: names.map(str::to_owned).collect(),
        })
    }
}

/// Tries these changes, and calls `tell` with each verdict.
pub(crate) fn all(
    runner: &Runner,
    workers: usize,
    tests: &Tests,
    changes: Vec<Change>,
    tell: impl Fn(&Change, Verdict) + Sync,
) {
    // Tests that have caught something are likely to do so again, and come first among those that are as quick.
    let catches: Mutex<BTreeMap<String, u32>> = Mutex::default();
    at_once(workers, changes, |change| {
        let verdict = one(runner, tests, &catches, change.number);
        if let Verdict::Caught(test) = &verdict {
            *catches
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(test.clone())
                .or_default() += 1;
        }
        tell(&change, verdict);
    });
}

fn one(
    runner: &Runner,
    tests: &Tests,
    catches: &Mutex<BTreeMap<String, u32>>,
    change: u32,
) -> Verdict {
    let mut reaching: Vec<&Test> = tests
        .all
        .iter()
        .filter(|test| test.reached.contains(&change))
        .collect();
    if reaching.is_empty() {
        return Verdict::Unreached;
    }
    {
        let catches = catches.lock().unwrap_or_else(PoisonError::into_inner);
        // A second is worth as much as three catches.
        let rank = |test: &&Test| {
            test.took.as_millis()
                / (1 + u128::from(catches.get(&test.name).copied().unwrap_or(0)) / 3)
        };
        reaching.sort_by_key(rank);
    }
    let mut left = Duration::from_secs(run::number("BUDGET").unwrap_or(BUDGET) as u64);
    let mut fits = |test: &&Test| {
        let before = left;
        left = left.saturating_sub(test.took);
        before > Duration::ZERO
    };
    let within = reaching.iter().take_while(|test| fits(test)).count();
    reaching.truncate(within);
    let mut size = 16;
    while !reaching.is_empty() {
        let (program, before) = (reaching[0].program.clone(), reaching.len());
        // A group is of one program, and each is larger than the one before.
        let group: Vec<_> = reaching
            .iter()
            .filter(|test| test.program == program)
            .take(size)
            .copied()
            .collect();
        reaching.retain(|test| {
            !group
                .iter()
                .any(|it| it.program == test.program && it.name == test.name)
        });
        debug_assert!(reaching.len() < before, "a group has tests");
        size *= 4;
        if let Some(verdict) = group_of(runner, &group, change) {
            return verdict;
        }
    }
    Verdict::Missed
}

/// Runs tests together with a change, again without those whose failure proves nothing.
fn group_of(runner: &Runner, group: &[&Test], change: u32) -> Option<Verdict> {
    let mut group = group.to_vec();
    while let Some(first) = group.first() {
        let program = &first.program;
        let names: Vec<_> = group.iter().map(|test| &*test.name).collect();
        let limit = limit(&group);
        let doubtful = match runner.run(&Run {
            program,
            tests: &names,
            change,
            limit,
        }) {
            End::Passed => return None,
            End::Failed(test) => {
                let alone = |change| {
                    let limit = LEAST
                        + 10 * group
                            .iter()
                            .find(|it| it.name == test)
                            .map_or(LEAST, |it| it.took);
                    runner.run(&Run {
                        program,
                        tests: &[&test],
                        change,
                        limit,
                    })
                };
                // Only one that fails alone, and passes alone without the change, is a proof.
                match alone(change) {
                    End::Passed => vec![test],
                    _ if alone(0) != End::Passed => vec![test],
                    _ => return Some(Verdict::Caught(test)),
                }
            }
            End::Died(open) | End::Endless(open) => {
                let mut open: Vec<_> = names
                    .iter()
                    .copied()
                    .filter(|name| open.iter().any(|it| it == name))
                    .collect();
                // It may have died behind its last test.
                if open.is_empty() {
                    open.clone_from(&names);
                }
                let run = Run {
                    program,
                    tests: &open,
                    change: 0,
                    limit,
                };
                if runner.run(&run) == End::Passed {
                    return Some(Verdict::Ended(
                        open.first().copied().unwrap_or_default().to_owned(),
                    ));
                }
                open.into_iter().map(str::to_owned).collect()
            }
        };
        let before = group.len();
        group.retain(|test| !doubtful.contains(&test.name));
        if group.len() == before {
            return None;
        }
    }
    None
}

/// Three times what the tests take one by one, and half a minute at least.
fn limit(group: &[&Test]) -> Duration {
    LEAST.max(3 * group.iter().map(|test| test.took).sum::<Duration>())
}

/// The verdicts of this and earlier runs, each written at once.
pub(crate) struct Results {
    file: Mutex<File>,
    known: BTreeMap<String, Verdict>,
}

impl Results {
    /// Reads the results that still hold: a catch as long as its file is the same, a miss as long as everything is.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn open(
        path: &Path,
        of_file: &BTreeMap<String, u64>,
        of_all: u64,
    ) -> std::io::Result<Results> {
        let mut known = BTreeMap::new();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_default();
            let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
            let is_same = of_file
                .get(&text("file"))
                .is_some_and(|it| value["of_file"] == *it);
            let holds_all = value["of_all"] == of_all;
            let verdict = match &*text("verdict") {
                "caught" if is_same => Verdict::Caught(text("by")),
                "ended" if is_same => Verdict::Ended(text("by")),
                "missed" if holds_all => Verdict::Missed,
                "unreached" if holds_all => Verdict::Unreached,
                _ => continue,
            };
            known.insert(text("change"), verdict);
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Results {
            file: Mutex::new(file),
            known,
        })
    }

    pub(crate) fn of(&self, change: &Change) -> Option<&Verdict> {
        self.known.get(&change.name())
    }

    pub(crate) fn add(&self, change: &Change, verdict: &Verdict, of_file: u64, of_all: u64) {
        let (verdict, by) = match verdict {
            Verdict::Caught(by) => ("caught", &**by),
            Verdict::Ended(by) => ("ended", &**by),
            Verdict::Missed => ("missed", ""),
            Verdict::Unreached => ("unreached", ""),
        };
        let line = json!({ "change": change.name(), "file": change.file, "verdict": verdict, "by": by,
            "of_file": of_file, "of_all": of_all });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Without it the change is tried again by the next run.
        let _ = writeln!(file, "{line}");
    }
}

/// How long something took, in minutes.
pub(crate) fn minutes(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() / 60.0
}
