//! `list`, `inspect` and `unlock`.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::Value;

use crate::support::RedisServer;
use crate::{at, client_of, ends_with, pseudo_terminal, redlatch, stderr, stdout};

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn list_prints_columns_or_json() {
    let server = RedisServer::start();
    let client = client_of(&server.url());
    let lock = client.lock("orders:42");
    lock.lock().unwrap();
    lock.lock().unwrap();
    client.lock("stock:7").lock().unwrap();
    client.token_lock("token").lock().unwrap();
    client.latch("latch").try_set(3).unwrap();

    let output = at(&server, &["list"]);
    ends_with(&output, 0);
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("NAME       KIND       HOLDER"),
        "{text}"
    );
    let words: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(words[..2], ["orders:42", "reentrant"], "{text}");
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    assert_eq!(words[2], format!("{host}/{}", std::process::id()), "{text}");
    assert_eq!(words[5], "2", "{text}");

    for (args, names) in [
        (&["status", "--json", "orders:"][..], &["orders:42"][..]),
        (&["list", "--json"], &["orders:42", "stock:7"]),
        (
            &["list", "--json", "--token"],
            &["orders:42", "stock:7", "token"],
        ),
        (
            &["list", "--json", "--all-kinds"],
            &["latch", "orders:42", "stock:7"],
        ),
        (&["list", "--json", "none"], &[]),
    ] {
        let output = at(&server, args);
        ends_with(&output, 0);
        let objects = objects(&stdout(&output));
        let mut found: Vec<_> = objects
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(found, names, "{args:?}");
    }
    let output = at(&server, &["list", "--limit", "1"]);
    ends_with(&output, 0);
    assert!(
        stderr(&output).contains("more than 1 locks"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn names_are_typed_without_the_prefix() {
    let server = RedisServer::start();
    let client = crate::slow_builder()
        .key_prefix("shop:")
        .open(&server.url())
        .unwrap();
    client.lock("orders").lock().unwrap();
    let output = at(&server, &["list", "--json", "--prefix", "shop:"]);
    assert_eq!(objects(&stdout(&output))[0]["name"], "orders");
    ends_with(&at(&server, &["inspect", "orders", "--prefix", "shop:"]), 0);
    ends_with(&at(&server, &["inspect", "orders"]), 1);
    for name in ["orders", "shop:orders"] {
        let output = at(&server, &["inspect", name, "--prefix-once", "shop:"]);
        ends_with(&output, 0);
    }
    ends_with(
        &at(&server, &["inspect", "shop:orders", "--prefix", "shop:"]),
        1,
    );
}

#[test]
fn inspect_describes_a_lock_and_exits_with_1_if_free() {
    let server = RedisServer::start();
    let client = client_of(&server.url());
    let free = at(&server, &["inspect", "orders"]);
    ends_with(&free, 1);
    assert!(stdout(&free).contains("none"), "{}", stdout(&free));
    client.fenced_lock("orders").lock().unwrap();
    let held = at(&server, &["inspect", "orders"]);
    ends_with(&held, 0);
    for word in ["orders", "fenced", "visitor", "expires", "redlatch"] {
        assert!(stdout(&held).contains(word), "{word}: {}", stdout(&held));
    }
    let read = client.read_write_lock("prices");
    read.read().lock().unwrap();
    let output = at(&server, &["inspect", "prices", "--json"]);
    assert_eq!(objects(&stdout(&output))[0]["kind"], "read");
    server.cmd(&["HSET", "user", "name", "Ada"]);
    let output = at(&server, &["inspect", "user"]);
    ends_with(&output, 2);
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn semaphores_and_latches_are_inspected_not_unlocked() {
    let server = RedisServer::start();
    let client = crate::slow_builder()
        .key_prefix("shop:")
        .open(&server.url())
        .unwrap();
    let semaphore = client.semaphore("pool");
    semaphore.try_set(3).unwrap();
    let permits = semaphore.acquire(1).unwrap();
    client.permit_semaphore("slots").try_set(5).unwrap();
    let slot = client.permit_semaphore("slots").acquire(1).unwrap();
    client.latch("done").try_set(7).unwrap();
    client.lock("pool:lock").lock().unwrap();
    let run = |args: &[&str]| at(&server, &[args, &["--prefix", "shop:"]].concat());
    let listed = objects(&stdout(&run(&["list", "--json", "--all-kinds"])));
    assert_eq!(listed.len(), 4, "{listed:?}");
    for (name, kind, number) in [
        ("pool", "semaphore", 2),
        ("slots", "permit_semaphore", 4),
        ("done", "counter", 7),
    ] {
        let output = run(&["inspect", name, "--json"]);
        ends_with(&output, 0);
        let shown = &objects(&stdout(&output))[0];
        crate::schema::assert_matches("lock", shown);
        assert!(listed.contains(shown), "{shown} of {listed:?}");
        assert_eq!(shown["kind"], kind, "{shown}");
        assert_eq!(shown["available"], number, "{shown}");
        let output = run(&["inspect", name]);
        ends_with(&output, 0);
        let text = stdout(&output);
        assert!(text.contains(kind), "{text}");
        assert!(text.contains(&number.to_string()), "{text}");
        assert!(!text.contains("none"), "{text}");
        let output = run(&["unlock", name, "--force", "--yes", "--json"]);
        ends_with(&output, 2);
        let printed: Value = serde_json::from_str(&stderr(&output)).unwrap();
        let error = &printed["error"];
        assert_eq!(
            (&error["kind"], &error["lock"]),
            (&"wrong_type".into(), &name.into())
        );
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(kind) && !message.contains("WRONGTYPE"),
            "{message}"
        );
    }
    assert_eq!(semaphore.available().unwrap(), 2);
    drop((permits, slot));
    server.cmd(&["SET", "shop:text", "hello"]);
    ends_with(&run(&["inspect", "text"]), 2);
}

#[test]
fn unlock_releases_one_hold_and_no_later_one() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("orders");
    lock.lock().unwrap();
    let first = lock.describe().unwrap().holders[0].visitor.clone();
    let refused = at(&server, &["unlock", "orders"]);
    ends_with(&refused, 2);
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    let refused = at(&server, &["unlock", "orders", "--force"]);
    ends_with(&refused, 2);
    assert!(stderr(&refused).contains("--yes"), "{}", stderr(&refused));
    assert!(lock.is_locked().unwrap());

    let ended = at(&server, &["unlock", "orders", "--force", "--yes"]);
    ends_with(&ended, 0);
    assert!(!lock.is_locked().unwrap());
    assert!(lock.unlock().is_err());
    ends_with(&at(&server, &["unlock", "orders", "--force", "--yes"]), 1);

    lock.lock().unwrap();
    let output = at(
        &server,
        &["unlock", "orders", "--force", "--holder", &first, "--json"],
    );
    ends_with(&output, 1);
    assert_eq!(objects(&stdout(&output))[0]["freed"], false);
    assert!(lock.is_locked().unwrap());
    let present = lock.describe().unwrap().holders[0].visitor.clone();
    let end = |visitor: &str| {
        at(
            &server,
            &["unlock", "orders", "--force", "--holder", visitor],
        )
    };
    let other = end(&first);
    ends_with(&other, 1);
    let message = stdout(&other);
    assert!(
        message.contains("does not hold the lock") && message.contains(&present),
        "{message}"
    );
    ends_with(&end(&present), 0);
    assert!(!lock.is_locked().unwrap());
    let unheld = end(&first);
    ends_with(&unheld, 1);
    let message = stdout(&unheld);
    assert!(message.contains("the lock is not held"), "{message}");
}

/// After a typing mistake, the message must not say that the hold has ended.
#[test]
fn unlock_rejects_a_malformed_visitor_id() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("orders");
    lock.lock().unwrap();
    let visitor = lock.describe().unwrap().holders[0].visitor.clone();
    for wrong in [&visitor[1..], "web-3/812", "", &format!(" {visitor}")] {
        let output = at(&server, &["unlock", "orders", "--force", "--holder", wrong]);
        ends_with(&output, 2);
        let message = stderr(&output);
        assert!(message.contains("redlatch inspect orders"), "{message}");
    }
    assert!(lock.is_locked().unwrap());
    // A token may have any form, so it is not checked.
    let output = at(
        &server,
        &["unlock", "t", "--token", "--force", "--holder", "web-3/812"],
    );
    ends_with(&output, 1);
}

#[test]
fn unlock_releases_one_of_several_readers() {
    let server = RedisServer::start();
    let clients = [(); 2].map(|()| client_of(&server.url()));
    for client in &clients {
        client.read_write_lock("prices").read().lock().unwrap();
    }
    let several = at(&server, &["unlock", "prices", "--force", "--yes"]);
    ends_with(&several, 2);
    let holders = clients[0]
        .read_write_lock("prices")
        .read()
        .describe()
        .unwrap()
        .holders;
    assert!(
        stderr(&several).contains(&holders[0].visitor),
        "{}",
        stderr(&several)
    );
    let args = [
        "unlock",
        "prices",
        "--force",
        "--holder",
        &holders[0].visitor,
    ];
    ends_with(&at(&server, &args), 0);
    let left = clients[0]
        .read_write_lock("prices")
        .read()
        .describe()
        .unwrap()
        .holders;
    assert_eq!(left, holders[1..]);
}

#[test]
fn unlock_asks_for_the_name_on_a_terminal() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("orders");
    for (typed, code) in [("order\n", 1), ("orders\n", 0)] {
        lock.try_lock().unwrap();
        let (controller, path) = pseudo_terminal();
        let terminal = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let mut command = redlatch();
        command.env("REDLATCH_URL", server.url());
        command.args(["unlock", "orders", "--force"]);
        command.stdin(terminal).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut asked = String::new();
        let mut message = child.stderr.take().unwrap();
        while !asked.contains("Type the lock name") {
            let mut part = [0; 256];
            let read = message.read(&mut part).unwrap();
            assert!(read > 0, "{asked}");
            asked += &String::from_utf8_lossy(&part[..read]);
        }
        assert!(asked.contains("holder"), "{asked}");
        std::fs::File::from(controller.try_clone().unwrap())
            .write_all(typed.as_bytes())
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{asked}");
        assert_eq!(lock.is_locked().unwrap(), code == 1);
    }
}

#[test]
fn list_counts_the_nodes_of_a_quorum() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let redlock = crate::redlock_of(&urls);
    let lock = redlock
        .lock("orders")
        .with_lease_time(Duration::from_secs(25));
    lock.lock().unwrap();
    let run = |args: &[&str]| {
        let mut command = redlatch();
        command
            .env("REDLATCH_NODES", urls.join(" "))
            .env("REDLATCH_MODE", "redlock");
        command.args(args).output().unwrap()
    };
    let output = run(&["list", "--json"]);
    ends_with(&output, 0);
    let object = &objects(&stdout(&output))[0];
    assert_eq!(
        (&object["nodes"]["held"], &object["nodes"]["of"]),
        (&3.into(), &3.into())
    );
    servers[1].kill();
    let output = run(&["list", "--json"]);
    ends_with(&output, 3);
    assert_eq!(objects(&stdout(&output))[0]["nodes"]["held"], 2);
    let ended = run(&["unlock", "orders", "--force", "--yes"]);
    ends_with(&ended, 0);
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn control_characters_in_names_are_escaped() {
    let server = RedisServer::start();
    let field = "9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:31";
    server.cmd(&["HSET", "a\u{1b}[2Jb", field, "1"]);
    server.cmd(&["PEXPIRE", "a\u{1b}[2Jb", "60000"]);
    let output = at(&server, &["list"]);
    assert!(!stdout(&output).contains('\u{1b}'), "{:?}", stdout(&output));
    assert!(
        stdout(&output).contains("a\\u{1b}[2Jb"),
        "{:?}",
        stdout(&output)
    );
    assert!(stdout(&output).contains("Redisson"), "{}", stdout(&output));
}

#[cfg(feature = "mysql")]
#[test]
fn database_locks_are_listed_and_unlocked() {
    let database = crate::support::MariaDb::shared().database();
    let client = client_of(&database.url());
    client.create_tables().unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let run = |args: &[&str]| {
        let mut command = redlatch();
        command.env("REDLATCH_URL", database.url()).args(args);
        command.output().unwrap()
    };
    let listed = run(&["list", "--json"]);
    ends_with(&listed, 0);
    let object = &objects(&stdout(&listed))[0];
    assert_eq!(
        (&object["name"], &object["kind"]),
        (&"orders".into(), &"fenced".into())
    );
    assert_eq!(object["holders"][0]["client"], client.id());
    ends_with(&run(&["unlock", "orders", "--force", "--yes"]), 0);
    assert!(!lock.is_locked().unwrap());
    ends_with(&run(&["inspect", "orders"]), 1);
}

#[cfg(feature = "mysql")]
#[test]
fn create_tables_creates_missing_tables() {
    let database = crate::support::MariaDb::shared().database();
    let run = |args: &[&str]| {
        let mut command = redlatch();
        command.env("REDLATCH_URL", database.url()).args(args);
        command.output().unwrap()
    };
    for (args, code) in [
        (&["list"][..], 2),
        (&["watch"], 2),
        (&["inspect", "orders"], 2),
        (&["unlock", "orders", "--force", "--yes"], 2),
        (&["bench", "--seconds", "1"], 2),
        (&["doctor", "--read-only"], 1),
        (&["run", "--try", "orders", "--", "true"], 125),
    ] {
        let output = run(args);
        ends_with(&output, code);
        let message = stdout(&output) + &stderr(&output);
        assert!(
            message.contains("redlatch create-tables"),
            "{args:?}: {message}"
        );
    }
    let output = run(&["inspect", "orders", "--json"]);
    let printed: Value = serde_json::from_str(&stderr(&output)).unwrap();
    assert_eq!(printed["error"]["kind"], "schema", "{printed}");
    for _ in 0..2 {
        let made = run(&["create-tables"]);
        ends_with(&made, 0);
        assert_eq!(stderr(&made), "");
    }
    ends_with(&run(&["list"]), 0);
    ends_with(&run(&["run", "--try", "orders", "--", "true"]), 0);
    // `create-tables` does not change an existing table, but reports what is wrong with it.
    database.run("ALTER TABLE redlatch DROP PRIMARY KEY");
    let wrong = run(&["create-tables"]);
    ends_with(&wrong, 2);
    let message = stderr(&wrong);
    assert!(message.contains("primary key"), "{message}");

    let server = RedisServer::start();
    let output = at(&server, &["create-tables"]);
    ends_with(&output, 2);
    let message = stderr(&output);
    assert!(message.contains("mysql://"), "{message}");
}
