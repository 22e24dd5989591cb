use std::thread;

use super::*;
use crate::ground::error::Error;
use crate::store::{CountOp, CountStep, RedisOperations};
use crate::stores::redis::errors::may_be_for_one_key;

fn words(items: &[&str]) -> Option<Says> {
    let items = items.iter().map(|item| bulk(item)).collect();
    Some(Says::answer(Value::Array(items)))
}

/// Replies `words` to an inspection, and `rights` to the query of missing rights. Returns the rights in the error.
fn missing(words: &str, rights: Option<Says>) -> Vec<String> {
    let server = answering(vec![Some(Says::error(words)), rights]);
    let told = server.store().inspect(&id_of(&claim(0)), None, soon());
    match told.unwrap_err() {
        Error::Permission { missing, .. } => missing,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_error_reply_maps_to_its_error() {
    let cases = [
        ("WRONGTYPE Operation against a key", "wrong type"),
        ("LOADING Redis is loading", "passing"),
        ("BUSY Redis is busy", "passing"),
        ("READONLY You can't write", "passing"),
        ("MASTERDOWN Link is down", "passing"),
        ("NOREPLICAS Not enough", "passing"),
        ("MISCONF Redis is configured", "passing"),
        ("OOM command not allowed", "passing"),
        ("TRYAGAIN Multiple keys", "passing"),
        ("CLUSTERDOWN The cluster is down", "passing"),
        ("ERR Script attempted to access a non local key", "passing"),
        ("ERR max number of clients reached", "passing"),
        ("UNBLOCKED force unblock", "passing"),
        ("NOAUTH Authentication required.", "right"),
        ("WRONGPASS invalid username-password pair", "right"),
        ("NOPERM no", "right"),
        ("DENIED Redis is running in protected mode", "right"),
        ("ERR unknown command 'EVALX'", "right"),
        ("ERR Unknown Redis command called from script", "right"),
        ("ERR invalid password", "right"),
        ("ERR AUTH called without any password configured", "right"),
        ("ERR something", "unknown"),
    ];
    let inspected = |text| {
        let server = answering(vec![Some(Says::error(text))]);
        let by = Instant::now() + ms(3000);
        match server.store().inspect(&id_of(&claim(0)), None, by) {
            Err(Error::WrongType { .. }) => "wrong type",
            Err(Error::Unavailable { .. }) => "passing",
            Err(Error::Permission { .. }) => "right",
            Err(Error::Unexpected { .. }) => "unknown",
            other => panic!("{text}: {other:?}"),
        }
    };
    // An error that may pass is retried until the deadline, so all cases run at once.
    thread::scope(|scope| {
        for (text, kind) in cases {
            scope.spawn(move || assert_eq!(inspected(text), kind, "{text}"));
        }
    });
}

#[test]
fn missing_rights_are_queried() {
    let refused = "NOPERM this user has no permissions";
    let rights = missing(refused, words(&["hset", "&", "~lock", "hset", "hset"]));
    let channel = "&redisson_lock__channel:{lock}";
    assert_eq!(rights, ["+hset", channel, "~lock", "+hset"]);
}

#[test]
fn without_eval_the_refusal_names_the_right() {
    let of_command = "NOPERM User x has no permissions to run the 'hget' command";
    let of_key = "NOPERM No permissions to access a key";
    assert_eq!(missing(of_command, Some(Says::error("ERR no"))), ["+hget"]);
    // The inspection and the query of missing rights use the same key, so the server refuses both.
    assert_eq!(missing(of_key, Some(Says::error(of_key))), ["~lock"]);
    assert_eq!(
        missing("NOPERM no", Some(Says::error(of_command))),
        ["+hget"]
    );
    assert!(missing("NOPERM no", Some(Says::error("ERR no"))).is_empty());
    // Both errors contain `a key`, but neither has the code `NOPERM`.
    assert!(missing("NOAUTH a key", Some(Says::error("ERR a key"))).is_empty());
}

#[test]
fn a_missing_right_to_a_key_beside_the_lock_names_its_pattern() {
    let of_key = "NOPERM No permissions to access a key";
    let server = answering(vec![Some(Says::error(of_key)), words(&[])]);
    let fair = id_of(&claim_of(Kind::Fair, 0));
    let op = CountOp {
        counter: &fair,
        request: claim(0).visitor,
        permit: None,
        step: CountStep::Waiters,
    };
    let error = server.store().count(&op, soon()).unwrap_err();
    let Error::Permission { missing, .. } = error else {
        panic!("{error:?}");
    };
    let names = |key: &str| missing.iter().any(|it| it == key);
    assert!(names("~redisson_lock_queue:{lock}"), "{missing:?}");
    assert!(!names("~lock"), "{missing:?}");
}

#[test]
fn the_query_for_rights_delays_the_error_briefly() {
    let server = answering(vec![Some(Says::error("NOPERM no")), nothing()]);
    let store = server.store_with(|settings| settings.command_timeout = ms(60_000));
    let began = Instant::now();
    let told = store.inspect(&id_of(&claim(0)), None, began + ms(60_000));
    assert!(matches!(told, Err(Error::Permission { .. })), "{told:?}");
    assert!(began.elapsed() < ms(20_000));
}

#[test]
fn errors_do_not_contain_the_script() {
    let text = "ERR Error running script (call to f_6b1b): @user_script:12: TRYAGAIN soon";
    let server = answering(vec![Some(Says::error(text))]);
    let by = Instant::now() + ms(3000);
    match server.store().inspect(&id_of(&claim(0)), None, by) {
        Err(Error::Unavailable { reason, .. }) => assert_eq!(reason, "soon"),
        other => panic!("it passes: {other:?}"),
    }
}

#[test]
fn a_permanent_refusal_of_many_keys_may_be_for_one() {
    for (text, may_be) in [
        ("WRONGTYPE no", true),
        ("ERR no", true),
        ("LOADING a key", false),
        ("NOPERM No permissions to access a key", true),
        ("NOPERM no permissions to run the 'evalsha' command", false),
    ] {
        assert_eq!(may_be_for_one_key(text), may_be, "{text}");
    }
}

#[test]
fn connection_faults_have_their_own_errors() {
    let store = answering(Vec::new()).store();
    let lock = Arc::from("lock");
    let error = |fault| store.error_about("node".into(), &lock, &[], fault);
    let exhausted = error(CallError::Exhausted(7));
    assert!(
        matches!(exhausted, Error::Exhausted { connections: 7, .. }),
        "{exhausted:?}"
    );
    let untrusted = error(CallError::Untrusted("no".into()));
    assert!(
        matches!(untrusted, Error::Untrusted { .. }),
        "{untrusted:?}"
    );
    let abstained = error(CallError::Unfit("no".to_owned()));
    assert!(
        matches!(abstained, Error::Unavailable { .. }),
        "{abstained:?}"
    );
    let unsent = error(CallError::NotSent("no".into()));
    assert!(matches!(unsent, Error::Unreachable { .. }), "{unsent:?}");
}

#[test]
fn a_refusal_about_keys_names_them() {
    let store = answering(Vec::new()).store();
    let (lock, node) = (Arc::from("lock"), || Arc::from("node"));
    let error = |keys: &[&str], words: &str| {
        let fault = CallError::Server(words.to_owned());
        match store.error_about(node(), &lock, keys, fault) {
            Error::Permission {
                reason, missing, ..
            } => (reason, missing),
            other => panic!("{other:?}"),
        }
    };
    let of_key = "NOPERM No permissions to access a key";
    let (reason, missing) = error(&["one"], of_key);
    assert_eq!(reason, format!("{of_key} (of one)"));
    assert_eq!(missing, ["~one"]);
    let (reason, missing) = error(&["one", "two"], of_key);
    assert_eq!(reason, format!("{of_key} (of one, two)"));
    assert!(missing.is_empty());
    let (reason, missing) = error(&[], of_key);
    assert_eq!((reason.as_str(), missing.is_empty()), (of_key, true));
    let of_command = "NOPERM User x has no permissions to run the 'scan' command";
    let (reason, missing) = error(&["one"], of_command);
    assert_eq!(reason, of_command);
    assert_eq!(missing, ["+scan"]);
    let fault = CallError::Server("ERR no".to_owned());
    let other = store.error_about(node(), &lock, &["one"], fault);
    assert!(matches!(other, Error::Unexpected { .. }), "{other:?}");
}
