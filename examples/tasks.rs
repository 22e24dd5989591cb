//! Reviewers in several processes take tasks from a database table, and no task goes to two of them.
//!
//!     tests/with-mariadb cargo run --features mysql --example tasks -- table
//!
//! `table` uses the lock table, `optimistic` a version column, `pessimistic` a row lock. `none` uses no lock, and assigns
//! some tasks twice. A second argument is the number of tasks (default 200). `tests/with-mariadb` starts a MariaDB
//! server. To use another server, set `MYSQL_URL` instead.
#![allow(clippy::print_stdout, reason = "the output is the example")]

use std::env;
use std::error::Error;
use std::process::Command;
use std::thread;
use std::time::Duration;

use mysql::Conn;
use mysql::prelude::Queryable;
use redlatch::Client;
use redlatch::mysql::{Changes, Check, RowTarget, Step, Tx};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PROCESSES: u32 = 4;
const THREADS: u32 = 4;
const REVIEW: Duration = Duration::from_millis(2);
const TASKS: &str =
    "CREATE TABLE tasks (id INT PRIMARY KEY, reviewer VARCHAR(40), version INT NOT NULL DEFAULT 0)";
const NEXT: &str = "SELECT id FROM tasks WHERE reviewer IS NULL ORDER BY id LIMIT 1";
const FREE: &str = "SELECT id FROM tasks WHERE id = ? AND reviewer IS NULL";
const ASSIGN: &str = "UPDATE tasks SET reviewer = ? WHERE id = ?";
const RECORD: &str = "INSERT INTO assignments (task, reviewer) VALUES (?, ?)";
const RESULT: &str = "SELECT (SELECT COUNT(*) FROM tasks WHERE reviewer IS NULL), (SELECT COUNT(*) FROM (SELECT 1 FROM assignments GROUP BY task HAVING COUNT(*) > 1) AS t)";

fn main() -> Outcome {
    let url = env::var("MYSQL_URL").map_err(|_| "MYSQL_URL is not set; try tests/with-mariadb")?;
    let args: Vec<String> = env::args().skip(1).collect();
    let how = args.first().map_or("table", String::as_str);
    if let Ok(process) = env::var("CHILD_PROCESS") {
        return review(&url, how, &process);
    }
    let tasks: u32 = args.get(1).map_or(Ok(200), |text| text.parse())?;
    let mut conn = Conn::new(&*url)?;
    Client::open(&url)?.create_tables()?;
    conn.query_drop("DROP TABLE IF EXISTS tasks, assignments")?;
    conn.query_drop(TASKS)?;
    conn.query_drop("CREATE TABLE assignments (task INT NOT NULL, reviewer VARCHAR(40) NOT NULL)")?;
    let ids = (1..=tasks).map(|id| (id,));
    conn.exec_batch("INSERT INTO tasks (id) VALUES (?)", ids)?;

    let start = |process: u32| {
        let mut command = Command::new(env::current_exe()?);
        command.arg(how).env("CHILD_PROCESS", process.to_string());
        command.spawn()
    };
    for mut child in (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()? {
        if !child.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    let (left, twice): (u32, u32) = conn.query_first(RESULT)?.ok_or("no result")?;
    println!("{how}: {tasks} tasks, {left} left over, {twice} assigned twice");
    if (left + twice == 0) == (how == "none") {
        return Err("with a lock each task must be assigned once, without one some twice".into());
    }
    Ok(())
}

/// Lets the reviewers of one process take tasks until none is left.
fn review(url: &str, how: &str, process: &str) -> Outcome {
    let take = match how {
        "table" => with_lock_table,
        "optimistic" => by_version,
        "pessimistic" => with_row_lock,
        "none" => without_lock,
        _ => return Err("the first argument is table, optimistic, pessimistic or none".into()),
    };
    let client = &Client::open(url)?;
    thread::scope(|scope| {
        let start = |thread| {
            scope.spawn(move || -> Outcome {
                let mut conn = Conn::new(url)?;
                while let Some(id) = conn.query_first(NEXT)? {
                    take(client, &mut conn, id, &format!("{process}.{thread}"))?;
                }
                Ok(())
            })
        };
        let reviewers: Vec<_> = (0..THREADS).map(start).collect();
        let mut ends = reviewers.into_iter().map(thread::ScopedJoinHandle::join);
        ends.try_for_each(|end| end.map_err(|_| "a reviewer panicked")?)
    })
}

/// A lock for each task. The transaction commits only if the lock is still held.
fn with_lock_table(client: &Client, _: &mut Conn, id: u32, me: &str) -> Outcome {
    match client.lock(&format!("task:{id}")).try_guard()? {
        Some(guard) => guard.transaction(|tx| assign_if_free(tx, id, me))?,
        None => thread::sleep(REVIEW), // another reviewer has it
    }
    Ok(())
}

/// The row of the task is locked during the review.
fn with_row_lock(client: &Client, _: &mut Conn, id: u32, me: &str) -> Outcome {
    match client
        .row_lock(&RowTarget::table("tasks", "id")?, id)
        .try_lock()?
    {
        Some(mut guard) => {
            assign_if_free(&mut guard.tx(), id, me)?;
            guard.commit()?;
        }
        None => thread::sleep(REVIEW),
    }
    Ok(())
}

fn assign_if_free(tx: &mut Tx<'_>, id: u32, me: &str) -> redlatch::Result<()> {
    if tx.query_first::<u32>(FREE, (id,))?.is_some() {
        thread::sleep(REVIEW);
        tx.exec(ASSIGN, (me, id))?;
        tx.exec(RECORD, (id, me))?;
    }
    Ok(())
}

/// No reviewer waits. The later of two notices that the row has changed.
fn by_version(client: &Client, conn: &mut Conn, id: u32, me: &str) -> Outcome {
    let version = Check::Version("version".into());
    let tasks = client.versioned("tasks", "id", &["reviewer"], version)?;
    let taken = tasks.update_with(id, |row| {
        thread::sleep(REVIEW);
        let reviewer: Option<String> = row.get("reviewer")?;
        Ok::<_, redlatch::Error>(match reviewer {
            Some(_) => Step::Stop(false),
            None => Step::Set(Changes::new().set("reviewer", me), true),
        })
    })?;
    if taken.value {
        conn.exec_drop(RECORD, (id, me))?;
    }
    Ok(())
}

/// Other reviewers see the same task before it is assigned.
fn without_lock(_: &Client, conn: &mut Conn, id: u32, me: &str) -> Outcome {
    thread::sleep(REVIEW);
    conn.exec_drop(ASSIGN, (me, id))?;
    Ok(conn.exec_drop(RECORD, (id, me))?)
}
