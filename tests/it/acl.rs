//! The documented rights are exactly the rights that the library needs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use redlatch::{Client, Error, Redlock};

use kinds::{ROWS, Row};

use crate::invariants::{Class, RIGHTS, SLACK, connections, ends_within, fails, quick, sha, teach};
use crate::support::scripts::spliced;
use crate::support::{End, Fault, Proxy, RedisServer, eventually, ms, timed};
use crate::tidy;

/// A lease for tests of a loss.
const LEASE: Duration = ms(900);

const PASSWORD: &str = "canary-7f3a";

/// Commands of scripts that need no right, and why.
const SPARE: [(&str, &str, &str); 2] = [
    (
        "acquire.lua",
        "del",
        "undoes a grant for a user who has PEXPIRE and HDEL no more",
    ),
    (
        "acquire.lua",
        "info",
        "is called only on a node of a Redlock, which was asked who it is before",
    ),
];

/// Commands that need no right.
const FREE: [&str; 1] = ["auth"];

/// The first column of the tables of rights, and the rules in the row.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = read("docs/rights.md");
    let rows = text.lines().filter_map(|line| {
        let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
        // An escaped bar does not end a cell.
        let row = row.replace("\\|", "\u{1}");
        let (first, second) = row.split_once(" | ")?;
        Some((first.replace('\u{1}', "|"), second.replace('\u{1}', "|")))
    });
    rows.filter_map(|(first, second)| {
        let in_first = rules(&first);
        let found = if in_first.is_empty() {
            rules(&second)
        } else {
            in_first
        };
        (!found.is_empty()).then_some((first, found))
    })
    .collect()
}

/// The commands in a text of rules, without the plus.
fn rules(text: &str) -> BTreeSet<String> {
    text.split([' ', '`', '\n'])
        .filter_map(|word| word.strip_prefix('+'))
        .map(str::to_owned)
        .collect()
}

fn row(rows: &[&str]) -> BTreeSet<String> {
    let table = table();
    rows.iter()
        .flat_map(|row| {
            let found = table.iter().find(|(first, _)| first.contains(row));
            found.unwrap_or_else(|| panic!("no row {row:?}")).1.clone()
        })
        .collect()
}

/// The rights of a client that uses only `Client::lock`.
fn for_locks() -> BTreeSet<String> {
    row(&["every lock", "Client::lock"])
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// The commands that the scripts of a folder call, as rules.
fn called_in(folder: &str, names: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut spare: BTreeSet<_> = BTreeSet::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    for entry in fs::read_dir(path).expect(folder) {
        let path = entry.expect(folder).path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".lua") || !names(&name) {
            continue;
        }
        let text = spliced(&fs::read_to_string(&path).expect("a script"));
        for (at, _) in text.match_indices("call('") {
            let words: Vec<_> = text[at..].split('\'').skip(1).step_by(2).take(2).collect();
            let command = rule(words[0], words.get(1).copied());
            match SPARE
                .iter()
                .find(|(file, spare, _)| *file == name && *spare == command)
            {
                Some((file, ..)) => {
                    spare.insert(*file);
                }
                None => {
                    found.insert(command);
                }
            }
        }
    }
    assert!(!found.is_empty(), "scripts in {folder}");
    found
}

/// The commands that the client itself sends, as rules.
fn sent() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stores/redis");
    let sources = tidy::sources().into_iter();
    for path in sources.filter(|path| path.starts_with(&folder)) {
        let text = fs::read_to_string(&path).expect("a source file");
        let code: Vec<_> = tidy::code(&text).map(|(_, line)| line).collect();
        let code = code.join("\n");
        for call in [
            "cmd(\"",
            "command.arg(\"",
            "ask(&[\"",
            "text(&[\"",
            "encode(&[\"",
            "auth = vec![\"",
            "=> (\"",
        ] {
            for (at, _) in code.match_indices(call) {
                let words: Vec<_> = code[at..].split('"').skip(1).step_by(2).take(2).collect();
                if words[0].chars().all(|sign| sign.is_ascii_uppercase()) {
                    found.insert(rule(words[0], words.get(1).copied()));
                }
            }
        }
    }
    for free in FREE {
        assert!(found.remove(free), "{free} is sent");
    }
    found
}

/// The rule for a command; some commands have a rule for each subcommand.
fn rule(command: &str, next: Option<&str>) -> String {
    let command = command.to_ascii_lowercase();
    match (&*command, next) {
        ("client" | "cluster" | "config" | "pubsub" | "sentinel", Some(form)) => {
            format!("{command}|{}", form.to_ascii_lowercase())
        }
        _ => command,
    }
}

fn union(sets: &[&BTreeSet<String>]) -> BTreeSet<String> {
    sets.iter().copied().flatten().cloned().collect()
}

fn set(rules: &[&str]) -> BTreeSet<String> {
    rules.iter().map(ToString::to_string).collect()
}

#[test]
fn the_rights_tables_match_scripts_and_source() {
    let scripts = "src/stores/redis/kinds";
    let called = |kind: &str| called_in(&format!("{scripts}/{kind}"), |_| true);
    let locks = called("plain");
    let sent = sent();
    let calls = set(&["eval", "evalsha"]);
    let listens = set(&["subscribe", "unsubscribe"]);
    assert!(sent.is_superset(&union(&[&calls, &listens])), "{sent:?}");
    let alone = union(&[&calls, &listens]);
    let mut all = union(&[&sent, &set(&["spublish"])]);
    // The additional rights of each row, and the additional commands of its scripts.
    for (words, kind, beside, not_here) in [
        (
            &["every lock", "Client::lock"][..],
            "plain",
            &alone,
            &row(&["`+pubsub"]),
        ),
        (
            &["every lock", "Client::token_lock"],
            "token",
            &calls,
            &set(&[]),
        ),
        (&["Client::fenced_lock"], "fenced", &set(&[]), &locks),
        (&["`Client::latch`, alone"], "latch", &alone, &set(&[])),
        (
            &["`Client::semaphore`, alone"],
            "permits",
            &alone,
            &set(&[]),
        ),
        (
            &["`Client::permit_semaphore`, alone"],
            "permit_ids",
            &alone,
            &set(&[]),
        ),
        (
            &["`Client::read_write_lock`, alone"],
            "read_write",
            &alone,
            &set(&[]),
        ),
        (&["`Lock::condition`"], "condition", &set(&[]), &locks),
        (
            &["`Client::fair_lock`, alone"],
            "fair",
            &alone,
            &set(&["pubsub|numsub"]),
        ),
    ] {
        let commands = called(kind);
        let expected = union(&[&commands, beside]);
        let expected: BTreeSet<_> = expected.difference(not_here).cloned().collect();
        assert_eq!(row(words), expected, "for {kind}");
        all.extend(commands);
    }
    let guarded = called_in(scripts, |name| name == "guarded.lua");
    let writes = row(&["Client::write_fenced"]);
    let own = set(&["time", "get", "set"]);
    assert!(guarded.is_superset(&own), "for write_fenced");
    assert_eq!(writes, union(&[&own, &calls]), "for write_fenced");
    let known = union(&[&for_locks(), &row(&["Client::token_lock"]), &writes]);
    assert!(known.is_superset(&guarded), "for guarded writes");
    let rows: BTreeSet<_> = table().into_values().flatten().collect();
    assert_eq!(rows, all, "all tables");
}

#[test]
fn the_user_in_the_documentation_has_these_rights() {
    let text = read("docs/rights.md");
    let user = text.split("ACL SETUSER locks").nth(1).expect("a user");
    let user = user.split("```").next().unwrap();
    assert_eq!(rules(user), for_locks());
    for part in ["~orders:*", "resetchannels", "&redisson_lock__channel:*"] {
        assert!(user.contains(part), "{part}");
    }
}

/// A server with a user who has exactly these rights, on names of this prefix.
fn server_for(rules: &BTreeSet<String>) -> (RedisServer, String) {
    let server = RedisServer::start();
    let url = user(&server, rules);
    (server, url)
}

pub(crate) const PREFIX: &str = "orders:";

pub(crate) fn user(server: &RedisServer, rules: &BTreeSet<String>) -> String {
    let password = format!(">{PASSWORD}");
    // Before Redis 7 a new user may use every channel.
    let start = ["ACL", "SETUSER", "locks", "reset", "resetchannels"];
    let mut words: Vec<String> = start.map(str::to_owned).into();
    words.extend(["on".to_owned(), password]);
    words.push(format!("~{PREFIX}*"));
    words.push(format!("~redisson_lock_token:{{{PREFIX}*"));
    words.push(format!("~redlatch_once:{{{PREFIX}*"));
    words.push(format!("~redlatch_sc:{{{PREFIX}*"));
    words.push(format!("~{{{PREFIX}*"));
    words.push(format!("~redlatch_rw:{{{PREFIX}*"));
    words.push(format!("~redlatch_condition:{{{PREFIX}*"));
    words.push(format!("&redlatch_condition:{{{PREFIX}*"));
    words.push(format!("~redisson_lock_queue:{{{PREFIX}*"));
    words.push(format!("~redisson_lock_timeout:{{{PREFIX}*"));
    words.push("&redisson_lock__channel:*".to_owned());
    words.push("&redisson_sc:*".to_owned());
    words.push("&redisson_rwlock:*".to_owned());
    words.push("&redisson_countdownlatch__channel__*".to_owned());
    words.extend(rules.iter().map(|rule| format!("+{rule}")));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    server.cmd(&words);
    server
        .url()
        .replace("redis://", &format!("redis://locks:{PASSWORD}@"))
}

/// A server and a URL for a user with only the rights for `Client::lock`.
pub(crate) fn least() -> (RedisServer, String) {
    server_for(&for_locks())
}

/// A client with timeouts for a busy machine.
fn open(url: &str) -> Client {
    let builder = Client::builder().command_timeout(ms(10_000));
    let builder = builder.watchdog_timeout(LEASE).outage_timeout(ms(800));
    builder.key_prefix(PREFIX).open(url).unwrap()
}

/// The errors caused by a missing right.
fn failures(row: &Row, server: &RedisServer, client: &Client) -> Vec<Error> {
    let mut errors = (row.work)(server, client);
    errors.retain(|error| {
        let is_expected = matches!(
            error,
            Error::NotHeld { .. } | Error::NoTtl { .. } | Error::NotReentrant { .. }
        );
        !is_expected && !error.is_lost()
    });
    errors
}

#[test]
fn the_rights_of_each_kind_are_enough() {
    thread::scope(|scope| {
        for row in &ROWS {
            scope.spawn(|| {
                let (server, url) = server_for(&row.rules());
                let client = open(&url);
                let errors = failures(row, &server, &client);
                assert!(errors.is_empty(), "{}: {errors:?}", row.name);
                server.cmd(&["FLUSHALL"]);
                let is_held = (row.holds)(&client);
                thread::sleep(LEASE * 2);
                assert!(is_held(), "{}: it is renewed", row.name);
            });
        }
    });
}

#[test]
fn each_right_of_each_kind_is_needed_and_named() {
    let rights = ROWS.iter().rev();
    let rights = rights.flat_map(|row| row.own().into_iter().map(move |right| (row, right)));
    let left = Mutex::new(rights.collect::<Vec<_>>());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let server = RedisServer::start();
                let next = || left.lock().unwrap().pop();
                while let Some((row, lacking)) = next() {
                    is_needed_and_named(&server, row, &lacking);
                }
            });
        }
    });
}

fn is_needed_and_named(server: &RedisServer, row: &Row, lacking: &str) {
    let what = format!("{} without {lacking}", row.name);
    server.cmd(&["FLUSHALL"]);
    server.cmd(&["SCRIPT", "FLUSH"]);
    let mut rules = row.rules();
    rules.remove(lacking);
    let client = open(&user(server, &rules));
    if row.name == "plain" {
        let said = match client.check() {
            Ok(warnings) => format!("{warnings:?}"),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(&format!("+{lacking}")), "{what}: {said}");
    }
    let errors = failures(row, server, &client);
    let is_spare = ["evalsha", "publish", "subscribe", "unsubscribe"].contains(&lacking)
        || row.spare.contains(&lacking);
    if row.renews.contains(&lacking) {
        assert!(errors.is_empty(), "{what}: {errors:?}");
        let is_held = (row.holds)(&client);
        eventually(LEASE + SLACK, &what, || !is_held());
        return;
    }
    assert_eq!(errors.is_empty(), is_spare, "{what}: {errors:?}");
    for error in errors {
        let Error::Permission { missing, .. } = &error else {
            panic!("{what}: {error}");
        };
        assert_eq!(*missing, [format!("+{lacking}")], "{what}: {error}");
    }
}

#[test]
fn errors_name_secondary_keys_without_access() {
    let server = RedisServer::start();
    let rules = ROWS.iter().flat_map(Row::rules).collect();
    let url = user(&server, &rules);
    server.cmd(&["ACL", "SETUSER", "locks", "resetkeys", "~orders:*"]);
    let client = open(&url);
    let lock = client.lock("a");
    lock.lock().unwrap();
    for (outcome, keys) in [
        (
            client.latch("import").try_set(2).map(drop),
            &["~redlatch_once:{orders:import}:*"][..],
        ),
        (
            client.fenced_lock("b").lock(),
            &["~redisson_lock_token:{orders:b}"],
        ),
        (
            lock.condition("filled").wait(),
            &[
                "~redlatch_condition:{orders:a}:*:due",
                "~redlatch_condition:{orders:a}:*:waiting",
            ],
        ),
    ] {
        let error = fails(outcome, Class::Permission);
        let Error::Permission { missing, .. } = &error else {
            unreachable!();
        };
        assert_eq!(*missing, keys, "{error}");
    }
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn the_rights_for_fenced_writes_are_enough_and_each_is_needed() {
    let needed = row(&["Client::write_fenced"]);
    let (server, _) = least();
    let write = |rules: &BTreeSet<String>| {
        let url = user(&server, rules);
        server.cmd(&["ACL", "SETUSER", "locks", "~redlatch_fence:{orders*"]);
        // Data keys may be accessed, too.
        open(&url).write_fenced("orders", 2, |batch| {
            batch.set("orders:data", "1");
        })
    };
    write(&needed).unwrap();
    for lacking in &needed {
        server.cmd(&["SCRIPT", "FLUSH"]);
        server.cmd(&["SET", "redlatch_fence:{orders}", "1"]);
        let mut rules = needed.clone();
        rules.remove(lacking);
        match &**lacking {
            "evalsha" => drop(write(&rules).unwrap()),
            _ => {
                let error = fails(write(&rules), Class::Permission);
                let Error::Permission {
                    missing, reason, ..
                } = error
                else {
                    panic!("without {lacking}");
                };
                // For commands within a script, servers do not name the command.
                let is_named = missing == [format!("+{lacking}")];
                assert!(is_named || reason.contains("script"), "{lacking}: {reason}");
            }
        }
    }
}

#[test]
fn a_revoked_key_loses_no_other_hold() {
    const HOLDS: usize = 60;
    let (server, url) = least();
    let client = open(&url);
    let locks: Vec<_> = (0..HOLDS)
        .map(|number| client.lock(&number.to_string()))
        .collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.guard().unwrap()).collect();
    let withdrawn = [7, 40];
    let kept = (0..HOLDS).filter(|number| !withdrawn.contains(number));
    let kept: Vec<_> = kept.map(|number| format!("~{PREFIX}{number}")).collect();
    let kept = kept.iter().map(String::as_str);
    let rules = ["ACL", "SETUSER", "locks", "resetkeys"].into_iter();
    server.cmd(&rules.chain(kept).collect::<Vec<_>>());
    thread::sleep(LEASE * 2);
    let lost = (0..HOLDS).filter(|at| !guards[*at].is_valid());
    assert_eq!(lost.collect::<Vec<_>>(), withdrawn);
}

#[test]
fn the_page_lists_the_optional_rights() {
    let (server, url) = least();
    let client = open(&url);
    client.lock("a").run(|_| ()).unwrap();
    assert!(connections(&server).is_empty(), "they have no names");
    let said = format!("{:?}", client.check().unwrap());
    assert!(said.contains("+info") && !said.contains("lacks"), "{said}");
    let all = row(&["`+client|setname", "`+info", "`+ping", "`+pubsub"]);
    let client = open(&user(&server, &union(&[&for_locks(), &all])));
    let said = format!("{:?}", client.check().unwrap());
    assert!(!said.contains("+info"), "{said}");
    assert!(!connections(&server).is_empty(), "they have names");
}

#[test]
fn the_right_to_another_database_is_needed_for_it_alone() {
    let (server, url) = least();
    let lock = open(&format!("{url}/3")).lock("a");
    let error = ends_within(ms(0), || fails(lock.try_lock(), Class::Permission));
    assert!(error.to_string().contains("+select"), "{error}");
    let rules = union(&[&for_locks(), &row(&["a database other than 0"])]);
    user(&server, &rules);
    lock.lock().unwrap();
    lock.unlock().unwrap();
}

#[test]
fn a_quorum_node_needs_the_right_to_info() {
    let nodes: Vec<_> = (0..3).map(|_| least()).collect();
    let redlock = || {
        Redlock::builder()
            .nodes(nodes.iter().map(|(_, url)| open(url)))
            .trust_new_nodes()
            .outage_timeout(ms(500))
            .build()
    };
    let refused = redlock().and_then(|redlock| redlock.lock("a").try_lock());
    let error = refused.expect_err("nobody may vote");
    assert!(error.to_string().contains("info"), "{error}");

    let rules = union(&[&for_locks(), &row(&["each node of a"])]);
    for (server, _) in &nodes {
        user(server, &rules);
    }
    let lock = redlock().unwrap().lock("a");
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
}

#[test]
fn checking_rights_changes_nothing_and_wakes_no_waiter() {
    let server = RedisServer::start();
    let heard = |name: &str| format!("redisson_lock__channel:{{{name}}}");
    for name in ["orders:a", "redlatch:preflight"] {
        server.cmd(&["HSET", name, "", "kept", "other", "kept"]);
    }
    let names = ["orders:a", "redlatch:preflight"].map(heard);
    let mut listener = server.admin();
    let mut listener = listener.as_pubsub();
    listener.subscribe(&names[..]).unwrap();
    listener.set_read_timeout(Some(ms(300))).unwrap();
    let rules = union(&[&for_locks(), &row(&["`+info"])]);
    for url in [server.url(), user(&server, &rules)] {
        open(&url).check().unwrap();
    }
    // The query for the missing right needs rights too.
    let mut rules = for_locks();
    rules.remove("exists");
    let client = open(&user(&server, &rules));
    fails(client.lock("a").try_lock(), Class::Permission);
    fails(client.token_lock("a").try_lock(), Class::Permission);
    for name in ["orders:a", "redlatch:preflight"] {
        assert_eq!(server.int(&["HLEN", name]), 2, "{name}");
    }
    assert!(listener.get_message().is_err(), "somebody was woken");
    assert_eq!(server.int(&["DBSIZE"]), 2);
}

/// The server refuses the request, and does not reply to the query of the missing right.
#[test]
fn the_query_for_the_missing_right_ends_with_the_wait() {
    let server = RedisServer::start();
    teach(&server);
    let mut rules = for_locks();
    rules.remove("hset");
    rules.remove("hincrby");
    let proxy = Proxy::to(server.addr());
    let few = user(&server, &rules).replace(&server.addr().to_string(), &proxy.addr().to_string());
    let lock = quick()
        .command_timeout(ms(3000))
        .key_prefix(PREFIX)
        .open(&few)
        .unwrap()
        .lock("mail");
    fails(lock.try_lock(), Class::Permission);
    let question = proxy.next(
        usize::MAX,
        Some(sha(RIGHTS).as_bytes()),
        Fault::SwallowReply(End::Silent),
    );
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let (took, outcome) = timed(|| lock.try_lock_for(ms(10)));
        fails(outcome, Class::Permission);
        quickest = quickest.min(took);
    }
    assert!(question.hits() > 0, "it was asked");
    assert!(quickest < ms(10 + 250 + 100), "{quickest:?}");
}
