//! A server without scripting: token locks use plain commands, where the server has them.

use super::routed::{route, unknown};
use super::*;
use crate::support::End;

fn without_scripts() -> RedisServer {
    let options = RedisServer::options();
    let options = options.args(&["--rename-command", "EVALSHA", ""]);
    options.args(&["--rename-command", "EVAL", ""]).start()
}

/// Whether the server can delete a key by its value: Valkey 9.0 and later.
fn has_commands(server: &RedisServer) -> bool {
    server.try_cmd(&["DELIFEQ", "nothing", "here"]).is_ok()
}

fn open(url: &str) -> Client {
    quick().watchdog_timeout(LEASE).open(url).unwrap()
}

#[test]
fn a_server_without_scripts_is_refused_with_the_reason() {
    let server = without_scripts();
    let client = client(&server);
    let mut refused = vec![client.lock("orders"), client.fair_lock("orders")];
    if !has_commands(&server) {
        refused.push(client.token_lock("orders"));
    }
    for lock in refused {
        let error = ends_within(TIMEOUT, || lock.lock().unwrap_err());
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let text = error.to_string();
        for word in ["EVAL", "DELIFEQ", "DELEX", "Client::token_lock"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    is_empty(&server);
    let said = format!("{:?}", client.check().unwrap());
    let what = match has_commands(&server) {
        true => "only token locks can be acquired",
        false => "no lock can be acquired",
    };
    assert!(said.contains(what), "{said}");
}

/// Tests the life of token locks on this server, at `url`.
fn token_locks_work(server: &RedisServer, url: &str) {
    let (client, other) = (open(url), open(url));
    let [lock, theirs] = [&client, &other].map(|client| client.token_lock("t1"));
    assert!(!lock.is_locked().unwrap());
    let guard = lock.guard().unwrap();
    assert_eq!(
        server.text(&["GET", "t1"]).as_deref(),
        Some(guard.visitor().as_str())
    );
    assert!((1..=1500).contains(&server.int(&["PTTL", "t1"])));
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(!theirs.try_lock().unwrap());
    assert!(theirs.is_locked().unwrap());
    assert!(!theirs.is_held_by_current_thread().unwrap());
    // Several token locks are renewed.
    let more: Vec<_> = (2..6)
        .map(|n| client.token_lock(&format!("t{n}")))
        .collect();
    let more: Vec<_> = more.iter().map(|lock| lock.guard().unwrap()).collect();
    client.check().unwrap();
    thread::sleep(LEASE * 2);
    assert!(guard.is_valid() && more.iter().all(Guard::is_valid));
    // One key is deleted, the other one belongs to another client.
    let lost = [more[0].lost(), more[1].lost()];
    server.cmd(&["DEL", "t2"]);
    server.cmd(&["SET", "t3", "theirs"]);
    assert!(matches!(next_loss(&lost[0], LEASE).cause, LossCause::Gone));
    let cause = next_loss(&lost[1], LEASE).cause;
    assert!(cause.to_string().contains("theirs"), "{cause}");
    assert_eq!(server.text(&["GET", "t3"]).as_deref(), Some("theirs"));
    server.cmd(&["DEL", "t3"]);
    drop(more);
    // A waiter in another process, and one in another thread, acquires.
    let taken = |lock: &Lock| {
        assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
        lock.unlock().unwrap();
    };
    thread::scope(|scope| {
        let waiting = [scope.spawn(|| taken(&theirs)), scope.spawn(|| taken(&lock))];
        thread::sleep(ms(300));
        guard.unlock().unwrap();
        waiting.into_iter().for_each(|it| it.join().unwrap());
    });
    // A hold that was overwritten, and a hold that is force-unlocked.
    assert!(lock.try_lock().unwrap());
    assert!(theirs.force_unlock().unwrap());
    assert!(!theirs.force_unlock().unwrap());
    assert!(lock.unlock().unwrap_err().is_lost());
    let guard = lock.guard().unwrap();
    let written = guard.write(|batch| {
        batch.get("data");
    });
    // Guarded work needs scripts.
    assert!(matches!(
        written.unwrap_err(),
        Error::Unsupported { .. } | Error::Permission { .. }
    ));
    guard.unlock().unwrap();
    // Keys that are not tokens stay.
    server.cmd(&["HSET", "t1", "field", "value"]);
    fails(lock.try_lock(), Class::WrongType);
    fails(lock.force_unlock(), Class::WrongType);
    assert_eq!(server.int(&["HLEN", "t1"]), 1);
    server.cmd(&["DEL", "t1"]);
    eventually(ms(5000), "nothing is left", || keys(server).is_empty());
}

#[test]
fn token_locks_go_by_commands() {
    let server = without_scripts();
    if has_commands(&server) {
        token_locks_work(&server, &server.url());
    }
}

/// Renames `DELIFEQ` to `DELEX … IFEQ`, as on Redis 8.4.
fn as_redis(words: &[String]) -> Result<Vec<String>, String> {
    match words {
        [name, key, word, token] if name == "DELEX" && word == "IFEQ" => {
            Ok(vec!["DELIFEQ".to_owned(), key.clone(), token.clone()])
        }
        [name, ..] if name == "DELIFEQ" => Err(unknown(name)),
        words => Ok(words.to_vec()),
    }
}

#[test]
fn token_locks_go_by_the_commands_of_redis() {
    let server = without_scripts();
    if has_commands(&server) {
        let addr = route([server.addr(), server.addr()], as_redis);
        token_locks_work(&server, &format!("redis://{addr}"));
    }
}

#[test]
fn a_lost_answer_to_commands_leaves_nothing() {
    let server = without_scripts();
    if !has_commands(&server) {
        return;
    }
    let proxy = Proxy::to(server.addr());
    let client = open(&proxy.url());
    let lock = client.token_lock("orders");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    // A first acquisition is not repeated, and what it left is released.
    let rule = proxy.next(1, Some(b"NX"), Fault::SwallowReply(End::Reset));
    fails(lock.try_lock(), Class::Unknown);
    assert_eq!(rule.hits(), 1);
    eventually(ms(5000), "it is freed", || keys(&server).is_empty());
    lock.lock().unwrap();
    let rule = proxy.next(1, Some(b"DELIFEQ"), Fault::SwallowReply(End::Reset));
    lock.unlock().unwrap();
    assert_eq!(rule.hits(), 1);
    eventually(ms(5000), "nothing is left", || keys(&server).is_empty());
    // The outcome is unknown if all replies are lost, and the key is freed before its lease ends.
    let rule = proxy.next(8, Some(b"NX"), Fault::SwallowReply(End::Silent));
    let long = lock.with_lease_time(Duration::from_secs(60));
    assert!(long.try_lock().is_err());
    assert!(server.int(&["EXISTS", "orders"]) == 1 || rule.hits() > 0);
    rule.lift();
    eventually(ms(10_000), "it is freed", || keys(&server).is_empty());
}
