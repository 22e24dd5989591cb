//! The rights in the documentation are those that the library needs: no fewer, no more.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Lock, Redlock};

use crate::invariants::{
    Class, RIGHTS, SLACK, connections, ends_within, fails, quick, sha, somebody_waits,
    subscriptions, teach,
};
use crate::support::scripts::spliced;
use crate::support::{End, Fault, Monitor, Proxy, RedisServer, eventually, ms, timed};
use crate::tidy;

/// A lease that is to be lost.
const LEASE: Duration = ms(900);

const PASSWORD: &str = "canary-7f3a";

/// Commands which scripts call although no right to them is needed, and why.
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
        // A bar that stands in a rule is no end of a cell.
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

/// What a client needs for `Client::lock` alone.
pub(crate) fn for_locks() -> BTreeSet<String> {
    row(&["every lock", "Client::lock"])
}

/// What a client needs for `Client::token_lock` alone.
fn for_tokens() -> BTreeSet<String> {
    row(&["every lock", "Client::token_lock"])
}

/// What a client needs for `Client::fenced_lock` beside that.
fn for_fences() -> BTreeSet<String> {
    row(&["Client::fenced_lock"])
}

/// What a client needs for `Client::latch` alone.
pub(crate) fn for_latches() -> BTreeSet<String> {
    row(&["`Client::latch`, alone"])
}

/// What a client needs for `Client::semaphore` alone.
pub(crate) fn for_semaphores() -> BTreeSet<String> {
    row(&["`Client::semaphore`, alone"])
}

/// What a client needs for `Client::read_write_lock` alone.
pub(crate) fn for_sides() -> BTreeSet<String> {
    row(&["`Client::read_write_lock`, alone"])
}

/// What a client needs for conditions beside what their locks need.
pub(crate) fn for_conditions() -> BTreeSet<String> {
    row(&["`Lock::condition`"])
}

/// What a client needs for `Client::fair_lock` alone.
pub(crate) fn for_fair() -> BTreeSet<String> {
    row(&["`Client::fair_lock`, alone"])
}

/// What an operator needs for `Client::locks` and `Lock::describe`, with all that they tell.
pub(crate) fn for_looks() -> BTreeSet<String> {
    row(&["a look at locks", "`+client|list`", "`+pubsub|numsub`"])
}

/// Checks that a user who lacks this right is refused, and told so; or is not, where nothing needs it.
pub(crate) fn is_named(lacking: &str, errors: Vec<Error>, is_needed: bool) {
    assert_eq!(!errors.is_empty(), is_needed, "{lacking}: {errors:?}");
    for error in errors {
        let Error::Permission { missing, .. } = &error else {
            panic!("without {lacking}: {error}");
        };
        assert_eq!(*missing, [format!("+{lacking}")], "{error}");
    }
}

/// Rights without which something takes longer, or more of the server.
pub(crate) fn is_spare(right: &str) -> bool {
    ["evalsha", "publish", "subscribe", "unsubscribe"].contains(&right)
}

/// What a client needs for `Client::permit_semaphore` alone.
pub(crate) fn for_permit_semaphores() -> BTreeSet<String> {
    row(&["`Client::permit_semaphore`, alone"])
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
        for call in ["cmd(\"", "command.arg(\"", "ask(&[\"", "=> (\""] {
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

/// The rule for a command; of some commands each form has a rule of its own.
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
fn the_tables_are_what_the_scripts_and_the_source_say() {
    let scripts = "src/stores/redis/kinds";
    let locks = called_in(&format!("{scripts}/reentrant"), |_| true);
    let tokens = called_in(&format!("{scripts}/token"), |_| true);
    let sent = sent();
    let calls = set(&["eval", "evalsha"]);
    let listens = set(&["subscribe", "unsubscribe"]);
    assert!(sent.is_superset(&union(&[&calls, &listens])), "{sent:?}");

    let spare = row(&["`+pubsub"]);
    assert_eq!(
        union(&[&for_locks(), &spare]),
        union(&[&locks, &calls, &listens]),
        "for Client::lock"
    );
    assert_eq!(for_tokens(), union(&[&tokens, &calls]), "for token_lock");
    let fenced = called_in(&format!("{scripts}/fenced"), |_| true);
    let beside: BTreeSet<_> = fenced.difference(&locks).cloned().collect();
    assert_eq!(for_fences(), beside, "for fenced_lock");
    let latches = called_in(&format!("{scripts}/latch"), |_| true);
    assert_eq!(
        for_latches(),
        union(&[&latches, &calls, &listens]),
        "for latch"
    );
    let semaphores = called_in(&format!("{scripts}/permits"), |_| true);
    assert_eq!(
        for_semaphores(),
        union(&[&semaphores, &calls, &listens]),
        "for semaphore"
    );
    let sides = called_in(&format!("{scripts}/read_write"), |_| true);
    assert_eq!(
        for_sides(),
        union(&[&sides, &calls, &listens]),
        "for read_write_lock"
    );
    let conditions = called_in(&format!("{scripts}/condition"), |_| true);
    let beside: BTreeSet<_> = conditions.difference(&locks).cloned().collect();
    assert_eq!(for_conditions(), beside, "for conditions");
    let permits = called_in(&format!("{scripts}/permit_ids"), |_| true);
    assert_eq!(
        for_permit_semaphores(),
        union(&[&permits, &calls, &listens]),
        "for permit_semaphore"
    );
    let fair = called_in(&format!("{scripts}/fair"), |_| true);
    // The scripts of the holds themselves are those of every lock.
    assert_eq!(
        union(&[&for_fair(), &set(&["pubsub|numsub"])]),
        union(&[&fair, &calls, &listens]),
        "for fair_lock"
    );
    let guarded = called_in(scripts, |name| name == "guarded.lua");
    let writes = row(&["Client::write_fenced"]);
    let own = set(&["time", "get", "set"]);
    assert!(guarded.is_superset(&own), "for write_fenced");
    assert_eq!(writes, union(&[&own, &calls]), "for write_fenced");
    let known = union(&[&for_locks(), &for_tokens(), &writes]);
    assert!(known.is_superset(&guarded), "for guarded writes");
    let all: BTreeSet<_> = table().into_values().flatten().collect();
    // The scripts have it in place of PUBLISH where messages are sharded.
    let sharded = set(&["spublish"]);
    assert_eq!(
        all,
        union(&[
            &locks,
            &tokens,
            &fenced,
            &latches,
            &semaphores,
            &sides,
            &conditions,
            &permits,
            &fair,
            &sent,
            &sharded
        ]),
        "all tables"
    );
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

/// A server with a user who has these rights and no others, on names of this prefix.
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

/// A server and a URL for a user with the rights for `Client::lock` and nothing else.
pub(crate) fn least() -> (RedisServer, String) {
    server_for(&for_locks())
}

fn open(url: &str) -> Client {
    quick()
        .watchdog_timeout(LEASE)
        .key_prefix(PREFIX)
        .open(url)
        .unwrap()
}

/// Each operation, in both outcomes. Returns the errors.
fn errors_of(server: &RedisServer, lock: &Lock) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut note = |error: Option<Error>| errors.extend(error);
    let free = || server.cmd(&["DEL", lock.name()]);
    note(lock.is_locked().err());
    note(lock.try_lock().err());
    note(lock.try_lock().err());
    note(lock.is_held_by_current_thread().err());
    note(lock.remaining_lease().err());
    note(thread::scope(|scope| {
        let elsewhere = scope.spawn(|| lock.try_lock_for(ms(50)).err());
        elsewhere.join().unwrap()
    }));
    note(lock.unlock().err());
    note(lock.unlock().err());
    free();
    note(lock.try_lock().err());
    note(lock.force_unlock().err());
    note(lock.unlock().err());
    free();
    // What was taken away.
    note(lock.try_lock().err());
    free();
    note(lock.unlock().err());
    free();
    errors.retain(|error| {
        !matches!(
            error,
            Error::NotHeld { .. }
                | Error::Lost { .. }
                | Error::NoTtl { .. }
                | Error::NotReentrant { .. }
        )
    });
    errors
}

/// How long a lock that is unlocked elsewhere takes to arrive.
fn wake_up(server: &RedisServer, url: &str) -> Duration {
    let lock = open(url).lock("woken");
    let other = Client::builder().key_prefix(PREFIX).open(&server.url());
    let other = other.unwrap().lock("woken");
    other.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            let now = Instant::now();
            let _ = lock.unlock();
            now
        });
        // Long enough to subscribe, and to have had the look that follows it.
        thread::sleep(ms(300));
        let freed = Instant::now();
        other.unlock().unwrap();
        waiting.join().unwrap().saturating_duration_since(freed)
    })
}

#[test]
fn the_rights_for_locks_are_enough() {
    let (server, url) = least();
    let client = open(&url);
    let lock = client.lock("a");
    let errors = errors_of(&server, &lock);
    assert!(errors.is_empty(), "{errors:?}");
    let said = format!("{:?}", client.check().unwrap());
    assert!(!said.contains("lacks"), "{said}");
    let guard = lock.guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(guard.is_valid(), "it is renewed");
    guard.unlock().unwrap();
    // A subscription that nobody needs any more ends.
    let other = Client::builder().key_prefix(PREFIX).open(&server.url());
    let other = other.unwrap().lock("a");
    other.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(&server, other.name());
        other.unlock().unwrap();
    });
    eventually(Duration::from_secs(30), "it listens no more", || {
        subscriptions(&server, other.name()) == 0
    });
}

#[test]
fn the_rights_for_token_locks_are_enough() {
    let (server, url) = server_for(&for_tokens());
    let lock = open(&url).token_lock("a");
    let errors = errors_of(&server, &lock);
    assert!(errors.is_empty(), "{errors:?}");
    let guard = lock.guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(guard.is_valid(), "it is renewed");
    guard.unlock().unwrap();
}

/// A user who may have fenced locks and nothing else, without this right if it is named.
fn fenced_user(server: &RedisServer, lacking: &str) -> String {
    let mut rules = union(&[&for_locks(), &for_fences()]);
    rules.remove(lacking);
    let url = user(server, &rules);
    let counters = format!("~redisson_lock_token:{{{PREFIX}*");
    if lacking != counters {
        server.cmd(&["ACL", "SETUSER", "locks", &counters]);
    }
    url
}

#[test]
fn the_rights_for_fenced_locks_are_enough() {
    assert!(read("docs/rights.md").contains("| `~redisson_lock_token:*` |"));
    let server = RedisServer::start();
    let lock = open(&fenced_user(&server, "")).fenced_lock("a");
    let errors = errors_of(&server, &lock);
    assert!(errors.is_empty(), "{errors:?}");
    let guard = lock.guard().unwrap();
    thread::sleep(LEASE * 2);
    assert!(guard.is_valid(), "it is renewed");
    guard.unlock().unwrap();
}

#[test]
fn each_right_for_fenced_locks_is_needed_and_named() {
    let server = RedisServer::start();
    let counters = format!("~redisson_lock_token:{{{PREFIX}*");
    let lackings = for_fences()
        .into_iter()
        .map(|right| (right.clone(), format!("+{right}")));
    let key = format!("~redisson_lock_token:{{{PREFIX}a}}");
    for (lacking, named) in lackings.chain([(counters, key)]) {
        let client = open(&fenced_user(&server, &lacking));
        let lock = client.fenced_lock("a");
        for error in [lock.try_lock().unwrap_err(), lock.lock().unwrap_err()] {
            let Error::Permission { missing, .. } = &error else {
                panic!("without {lacking}: {error}");
            };
            assert_eq!(*missing, [&*named], "{error}");
        }
        assert_eq!(server.int(&["DBSIZE"]), 0, "without {lacking}");
        // A lock without tokens needs none of it.
        client.lock("b").run(|_| ()).unwrap();
    }
}

#[test]
fn the_rights_for_fenced_writes_are_enough_and_each_is_needed() {
    let needed = row(&["Client::write_fenced"]);
    let (server, _) = least();
    let write = |rules: &BTreeSet<String>| {
        let url = user(&server, rules);
        server.cmd(&["ACL", "SETUSER", "locks", "~redlatch_fence:{orders*"]);
        // Its data may be had as well.
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
                // Within a script, servers do not say which command it was.
                let is_named = missing == [format!("+{lacking}")];
                assert!(is_named || reason.contains("script"), "{lacking}: {reason}");
            }
        }
    }
}

#[test]
fn each_right_for_locks_is_needed_and_named() {
    let (server, _) = least();
    for lacking in for_locks() {
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = for_locks();
        rules.remove(&lacking);
        let url = user(&server, &rules);
        let client = open(&url);
        let said = match client.check() {
            Ok(warnings) => format!("{warnings:?}"),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(&format!("+{lacking}")), "{lacking}: {said}");
        let errors = errors_of(&server, &client.lock("a"));
        match &*lacking {
            // Nothing fails, but something takes longer, or more of the server.
            "evalsha" => {
                let monitor = Monitor::start(&server);
                client.lock("a").is_locked().unwrap();
                let by_text = || {
                    monitor
                        .lines_containing("\"EVAL\" \"-- Tells who holds")
                        .len()
                        == 1
                };
                eventually(SLACK, "the script goes with the request", by_text);
            }
            "subscribe" => {
                // It looks about once a second. A message would have come at once.
                let took: Vec<_> = (0..5).map(|_| wake_up(&server, &url)).collect();
                assert!(took.iter().any(|took| *took > ms(200)), "{took:?}");
            }
            // The renewal alone needs it, and a hold that is handed on.
            "hexists" => {
                assert!(errors.is_empty(), "{errors:?}");
                let guard = client.lock("a").guard().unwrap();
                let lost = guard.lost();
                lost.recv_timeout(LEASE + SLACK).expect("it is not renewed");
            }
            "publish" | "hlen" => assert!(errors.is_empty(), "{errors:?}"),
            "unsubscribe" => {
                let _ = wake_up(&server, &url);
                assert!(errors.is_empty(), "{errors:?}");
            }
            _ => {
                assert!(!errors.is_empty(), "nothing needs {lacking}");
                for error in errors {
                    let Error::Permission { missing, .. } = &error else {
                        panic!("without {lacking}: {error}");
                    };
                    assert_eq!(*missing, [format!("+{lacking}")], "{error}");
                }
            }
        }
    }
}

#[test]
fn each_right_for_token_locks_is_needed_and_named() {
    let (server, _) = least();
    for lacking in for_tokens() {
        server.cmd(&["SCRIPT", "FLUSH"]);
        let mut rules = for_tokens();
        rules.remove(&lacking);
        let client = open(&user(&server, &rules));
        let lock = client.token_lock("a");
        let errors = errors_of(&server, &lock);
        match &*lacking {
            "evalsha" => assert!(errors.is_empty(), "{errors:?}"),
            // The renewal alone needs it.
            "pexpire" => {
                assert!(errors.is_empty(), "{errors:?}");
                let guard = lock.guard().unwrap();
                let lost = guard.lost();
                lost.recv_timeout(LEASE + SLACK).expect("it is not renewed");
            }
            _ => {
                assert!(!errors.is_empty(), "nothing needs {lacking}");
                for error in errors {
                    let Error::Permission { missing, .. } = &error else {
                        panic!("without {lacking}: {error}");
                    };
                    assert_eq!(*missing, [format!("+{lacking}")], "{error}");
                }
            }
        }
        server.cmd(&["FLUSHALL"]);
    }
}

#[test]
fn a_key_whose_right_is_withdrawn_takes_no_other_hold_along() {
    // One batch, where the refusal hides that the server lacks the script, and two.
    thread::scope(|scope| {
        for holds in [60, 120] {
            scope.spawn(move || only_holds_of_withdrawn_keys_are_lost(holds));
        }
    });
}

fn only_holds_of_withdrawn_keys_are_lost(holds: usize) {
    let (server, url) = least();
    let lease = ms(1500);
    let client = quick().watchdog_timeout(lease).open(&url).unwrap();
    let locks: Vec<Lock> = (0..holds)
        .map(|number| client.lock(&format!("{PREFIX}{number}")))
        .collect();
    for lock in &locks {
        lock.lock().unwrap();
    }
    let withdrawn = [7, 40];
    let mut rules = vec!["ACL", "SETUSER", "locks", "resetkeys"];
    let kept: Vec<String> = (0..holds)
        .filter(|number| !withdrawn.contains(number))
        .map(|number| format!("~{PREFIX}{number}"))
        .collect();
    rules.extend(kept.iter().map(String::as_str));
    server.cmd(&rules);
    thread::sleep(lease * 2);
    let lost: Vec<usize> = (0..holds).filter(|at| !locks[*at].is_valid()).collect();
    assert_eq!(lost, withdrawn, "of {holds}");
    for (number, lock) in locks.iter().enumerate() {
        let is_kept = !withdrawn.contains(&number);
        assert_eq!(lock.unlock().is_ok(), is_kept, "{number}");
    }
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
fn a_node_of_a_quorum_needs_to_be_known() {
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
fn what_is_not_needed_is_what_the_page_says() {
    let (server, url) = least();
    let client = open(&url);
    let lock = client.lock("a");
    lock.lock().unwrap();
    assert!(connections(&server).is_empty(), "they have no names");
    let said = format!("{:?}", client.check().unwrap());
    assert!(said.contains("+info"), "{said}");
    let handed = |client: &Client, name: &str| {
        // Of many unlocks with a thread that waits, how many tell the server, for others to come.
        let lock = client.lock(name);
        let monitor = Monitor::start(&server);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        lock.lock().unwrap();
                        thread::sleep(ms(2));
                        lock.unlock().unwrap();
                    }
                });
            }
        });
        monitor.lines_containing("\"PUBLISH\"").len()
    };
    let without = handed(&client, "b");
    let all: Vec<_> = ["`+client|setname", "`+info", "`+ping", "`+pubsub"].into();
    let url = user(&server, &union(&[&for_locks(), &row(&all)]));
    let client = open(&url);
    let said = format!("{:?}", client.check().unwrap());
    assert!(!said.contains("+info"), "{said}");
    let with = handed(&client, "c");
    assert!(!connections(&server).is_empty(), "they have names");
    assert!(with < without, "{with} and {without} messages");
    lock.unlock().unwrap();
}

#[test]
fn a_look_for_rights_changes_nothing_and_wakes_nobody() {
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
    // An error looks for what is missing, too.
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

/// The server refuses the request, and is silent when it is asked which right is missing.
#[test]
fn the_question_which_right_is_missing_ends_with_the_wait() {
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
    let (took, outcome) = timed(|| lock.try_lock_for(ms(10)));
    fails(outcome, Class::Permission);
    assert!(question.hits() > 0, "it was asked");
    assert!(took < ms(10 + 250 + 100), "{took:?}");
}
