//! A forked child has a copy of the connection with its parent's open transaction, and does not use it.

use std::process::exit;
use std::time::Duration;

use fork::Fork;
use redlatch::mysql::{Changes, Check, RowTarget, Step, Wait};
use redlatch::{Client, Error};

use super::database;
use crate::support::child::{arg, say};
use crate::support::{Child, Database};

const CHILD: Duration = Duration::from_secs(30);

fn class<T>(result: Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "Ok",
        Err(Error::Forked { .. }) => "Forked",
        Err(_) => "another error",
    }
}

fn with_rows() -> Database<'static> {
    let database = database();
    database.run(
        "CREATE TABLE f (id INT PRIMARY KEY, n INT NOT NULL, v INT NOT NULL DEFAULT 0);\n\
         INSERT INTO f (id, n) VALUES (1, 0), (2, 0)",
    );
    database
}

fn rows(database: &Database<'_>) -> (i64, i64) {
    database.first("SELECT SUM(IF(id = 1, n, 0)) DIV 1, SUM(IF(id = 2, n, 0)) DIV 1 FROM f")
}

#[test]
fn a_forked_child_leaves_the_parents_transaction_open() {
    for role in ["forking row holder", "forking transaction"] {
        for ending in ["drop", "commit", "rollback"] {
            let database = with_rows();
            let env = [("URL", &*database.url()), ("ENDING", ending)];
            let mut child = Child::spawn(role, &env);
            let forked = child.expect_line("forked", CHILD);
            assert!(
                forked.split(' ').skip(1).all(|word| word == "Forked"),
                "{role}, {ending}: {forked}"
            );
            let parent = child.expect_line("parent", CHILD);
            assert_eq!(parent, "parent alone Ok Ok", "{role}, {ending}");
            assert!(child.wait(CHILD).success());
            assert_eq!(rows(&database), (2, 0), "{role}, {ending}");
        }
    }
}

pub(crate) fn play(role: &str) -> bool {
    match role {
        "forking row holder" => forking_row_holder(),
        "forking transaction" => forking_transaction(),
        _ => return false,
    }
    true
}

fn forking_row_holder() {
    let (url, ending) = (arg("URL"), arg("ENDING"));
    let client = Client::open(&url).unwrap();
    let target = RowTarget::table("f", "id").unwrap();
    // So that there is an idle connection, too.
    client.check_schema().unwrap();
    let mut guard = client.row_lock(&target, 1).lock(Wait::Never).unwrap();
    guard
        .tx()
        .exec("UPDATE f SET n = 1 WHERE id = 1", ())
        .unwrap();
    match fork::fork().unwrap() {
        Fork::Child => {
            let mut said = vec![
                class(guard.tx().exec("UPDATE f SET n = 100 WHERE id = 2", ())),
                class(guard.tx().query::<i64>("SELECT 1", ())),
                class(client.row_lock(&target, 2).try_lock()),
                class(client.lock_many(&target, [1, 2], Wait::Never)),
                class(client.check()),
                class(client.check_schema()),
                class(client.create_tables()),
                class(client.purge(CHILD, 1)),
            ];
            let stock = client
                .versioned("f", "id", &["n"], Check::Version("v".into()))
                .unwrap();
            said.push(class(stock.get(2)));
            said.push(class(stock.update_with(2, |_| {
                Ok::<_, Error>(Step::Set(Changes::new().set("n", 9), ()))
            })));
            match &*ending {
                "drop" => drop(guard),
                "commit" => said.push(class(guard.commit())),
                _ => said.push(class(guard.rollback())),
            }
            drop(client);
            say(&format!("forked {}", said.join(" ")));
            exit(0);
        }
        Fork::Parent(pid) => {
            fork::waitpid(pid).unwrap();
            let other = Client::open(&url).unwrap();
            let found = other.row_lock(&target, 1).try_lock().unwrap();
            let written = guard.tx().exec("UPDATE f SET n = n + 1 WHERE id = 1", ());
            say(&format!(
                "parent {} {} {}",
                if found.is_none() { "alone" } else { "robbed" },
                class(written),
                class(guard.commit())
            ));
        }
    }
}

fn forking_transaction() {
    let (url, ending) = (arg("URL"), arg("ENDING"));
    let client = Client::open(&url).unwrap();
    let guard = client.lock("forking").guard().unwrap();
    let mut said = Vec::new();
    let mut written = "nothing";
    let mut is_child = false;
    let outcome = guard.transaction(|tx| {
        tx.exec("UPDATE f SET n = 1 WHERE id = 1", ())?;
        match fork::fork().unwrap() {
            Fork::Child => {
                is_child = true;
                said.push(class(tx.exec("UPDATE f SET n = 7 WHERE id = 2", ())));
                said.push(class(guard.transaction(|_| Ok::<_, Error>(()))));
                if ending != "commit" {
                    tx.exec("UPDATE f SET n = 8 WHERE id = 2", ())?;
                }
            }
            Fork::Parent(pid) => {
                fork::waitpid(pid).unwrap();
                written = class(tx.exec("UPDATE f SET n = n + 1 WHERE id = 1", ()));
            }
        }
        Ok::<_, Error>(())
    });
    if is_child {
        said.push(class(outcome));
        drop(guard);
        say(&format!("forked {}", said.join(" ")));
        exit(0);
    }
    let other = Client::open(&url).unwrap();
    let got = other.lock("forking").try_lock().unwrap();
    say(&format!(
        "parent {} {written} {}",
        if got { "robbed" } else { "alone" },
        class(outcome)
    ));
    guard.unlock().unwrap();
}
