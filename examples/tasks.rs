//! Reviewers in several processes pull tasks from a pool in a database, and no task goes to two of them.
//!
//!     tests/with-mariadb cargo run --release --features mysql --example tasks -- --how table
//!
//! `--how table` works under the lock table, in a transaction that commits only if the lock is still held;
//! `--how optimistic` with a version column; `--how pessimistic` with a lock on the row; `--how none` without a lock,
//! which assigns tasks twice. `--tasks`, `--processes` and `--threads` are the other options.
//!
//! `tests/with-mariadb` starts a server for it; with `MYSQL_URL` set, `cargo run …` alone does. The exit code is 0 if
//! every task was assigned exactly once, and with `--how none` if some were not.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a program for the terminal"
)]

use std::env;
use std::error::Error;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use mysql::Conn;
use mysql::prelude::Queryable;
use redlatch::mysql::{Changes, Check, RowTarget, Step, Versioned};
use redlatch::{Client, Lock};

type Failure = Box<dyn Error + Send + Sync>;

/// How long a reviewer looks at a task before taking it.
const LOOK: Duration = Duration::from_millis(2);

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tasks: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    how: String,
    tasks: u32,
    processes: usize,
    threads: usize,
    /// Set in the processes that the first one starts.
    process: Option<String>,
}

impl Options {
    fn from_command_line() -> Result<Options, Failure> {
        let mut options = Options {
            how: "table".to_owned(),
            tasks: 200,
            processes: 4,
            threads: 4,
            process: None,
        };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            match &*word {
                "--how" => options.how = value,
                "--tasks" => options.tasks = value.parse()?,
                "--processes" => options.processes = value.parse()?,
                "--threads" => options.threads = value.parse()?,
                "--process" => options.process = Some(value),
                _ => {
                    return Err(format!(
                        "{word} is not known; the head of the example tells the options"
                    )
                    .into());
                }
            }
        }
        if !["table", "optimistic", "pessimistic", "none"].contains(&&*options.how) {
            return Err("--how is table, optimistic, pessimistic or none".into());
        }
        Ok(options)
    }
}

fn run() -> Result<bool, Failure> {
    let options = Options::from_command_line()?;
    let url = env::var("MYSQL_URL").map_err(|_| {
        "MYSQL_URL is not set; try `tests/with-mariadb cargo run --features mysql --example tasks`"
    })?;
    match &options.process {
        Some(process) => review(&options, &url, process).map(|()| true),
        None => direct(&options, &url),
    }
}

/// Fills the pool, starts the processes, and looks at what was assigned.
fn direct(options: &Options, url: &str) -> Result<bool, Failure> {
    Client::open(url)?.create_tables()?;
    let mut conn = Conn::new(url)?;
    conn.query_drop("DROP TABLE IF EXISTS tasks, assignments")?;
    conn.query_drop(
        "CREATE TABLE tasks (id INT PRIMARY KEY, reviewer VARCHAR(40) NULL, version INT NOT NULL DEFAULT 0)",
    )?;
    conn.query_drop("CREATE TABLE assignments (task INT NOT NULL, reviewer VARCHAR(40) NOT NULL)")?;
    conn.exec_batch(
        "INSERT INTO tasks (id) VALUES (?)",
        (1..=options.tasks).map(|id| (id,)),
    )?;
    let start = Instant::now();
    let mut children = (0..options.processes)
        .map(|process| {
            Command::new(env::current_exe()?)
                .args(["--how", &options.how, "--process", &process.to_string()])
                .args(["--threads", &options.threads.to_string()])
                .spawn()
        })
        .collect::<Result<Vec<Child>, _>>()?;
    let mut all_went_well = true;
    for child in &mut children {
        all_went_well &= child.wait()?.success();
    }
    let count = |conn: &mut Conn, query| -> Result<u32, Failure> {
        Ok(conn.query_first(query)?.unwrap_or_default())
    };
    let open = count(
        &mut conn,
        "SELECT COUNT(*) FROM tasks WHERE reviewer IS NULL",
    )?;
    let twice = count(
        &mut conn,
        "SELECT COUNT(*) FROM (SELECT task FROM assignments GROUP BY task HAVING COUNT(*) > 1) AS t",
    )?;
    let busy = count(
        &mut conn,
        "SELECT COUNT(DISTINCT reviewer) FROM assignments",
    )?;
    println!(
        "--how {}: {} tasks, {busy} reviewers, {:.1} s: {open} left over, {twice} assigned twice",
        options.how,
        options.tasks,
        start.elapsed().as_secs_f64()
    );
    let is_right = open == 0 && twice == 0;
    Ok(all_went_well && is_right != (options.how == "none"))
}

/// Lets the reviewers of one process pull tasks until there are none.
fn review(options: &Options, url: &str, process: &str) -> Result<(), Failure> {
    let client = Client::open(url)?;
    let ways = Ways {
        pool: client.lock("tasks"),
        tasks: client.versioned(
            "tasks",
            "id",
            &["reviewer"],
            Check::Version("version".into()),
        )?,
        target: RowTarget::table("tasks", "id")?,
        client,
    };
    thread::scope(|scope| {
        let reviewers: Vec<_> = (0..options.threads)
            .map(|thread| {
                let ways = &ways;
                scope.spawn(move || -> Result<(), Failure> {
                    let me = format!("{process}.{thread}");
                    let mut conn = Conn::new(url)?;
                    loop {
                        let goes_on = match &*options.how {
                            "table" => ways.under_the_lock(&me)?,
                            "optimistic" => ways.by_version(&mut conn, &me)?,
                            "pessimistic" => ways.by_row(&mut conn, &me)?,
                            _ => naively(&mut conn, &me)?,
                        };
                        if !goes_on {
                            return Ok(());
                        }
                    }
                })
            })
            .collect();
        for reviewer in reviewers {
            reviewer.join().map_err(|_| "a reviewer panicked")??;
        }
        Ok(())
    })
}

const NEXT: &str = "SELECT id FROM tasks WHERE reviewer IS NULL ORDER BY id LIMIT 1";
const ASSIGN: &str = "UPDATE tasks SET reviewer = ? WHERE id = ?";
const NOTE: &str = "INSERT INTO assignments (task, reviewer) VALUES (?, ?)";

struct Ways {
    client: Client,
    pool: Lock,
    tasks: Versioned,
    target: RowTarget,
}

impl Ways {
    /// One reviewer at a time looks for a task. What it writes is committed only if it still has the lock.
    fn under_the_lock(&self, me: &str) -> Result<bool, Failure> {
        let guard = self.pool.guard()?;
        let goes_on = guard.transaction(|tx| -> Result<bool, Failure> {
            let Some(id) = tx.query_first::<u32>(NEXT, ())? else {
                return Ok(false);
            };
            thread::sleep(LOOK);
            tx.exec(ASSIGN, (me, id))?;
            tx.exec(NOTE, (id, me))?;
            Ok(true)
        })?;
        guard.unlock()?;
        Ok(goes_on)
    }

    /// Nobody waits for anybody; who comes second sees it and looks for another task.
    fn by_version(&self, conn: &mut Conn, me: &str) -> Result<bool, Failure> {
        let Some(id) = conn.query_first::<u32, _>(NEXT)? else {
            return Ok(false);
        };
        let taken = self.tasks.update_with(id, |row| {
            thread::sleep(LOOK);
            let reviewer: Option<String> = row.get("reviewer")?;
            Ok::<_, redlatch::Error>(match reviewer {
                Some(_) => Step::Stop(false),
                None => Step::Set(Changes::new().set("reviewer", me), true),
            })
        })?;
        if taken.value {
            conn.exec_drop(NOTE, (id, me))?;
        }
        Ok(true)
    }

    /// The row of the task is locked while the reviewer looks at it.
    fn by_row(&self, conn: &mut Conn, me: &str) -> Result<bool, Failure> {
        let Some(id) = conn.query_first::<u32, _>(NEXT)? else {
            return Ok(false);
        };
        let Some(mut row) = self.client.row_lock(&self.target, id).try_lock()? else {
            // Somebody else is looking at it.
            thread::sleep(LOOK);
            return Ok(true);
        };
        let mut tx = row.tx();
        let reviewer =
            tx.query_first::<Option<String>>("SELECT reviewer FROM tasks WHERE id = ?", (id,))?;
        if reviewer == Some(None) {
            thread::sleep(LOOK);
            tx.exec(ASSIGN, (me, id))?;
            tx.exec(NOTE, (id, me))?;
        }
        row.commit()?;
        Ok(true)
    }
}

/// What goes wrong without a lock: between looking and taking, others look at the same task.
fn naively(conn: &mut Conn, me: &str) -> Result<bool, Failure> {
    let Some(id) = conn.query_first::<u32, _>(NEXT)? else {
        return Ok(false);
    };
    thread::sleep(LOOK);
    conn.exec_drop(ASSIGN, (me, id))?;
    conn.exec_drop(NOTE, (id, me))?;
    Ok(true)
}
