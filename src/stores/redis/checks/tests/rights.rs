#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::looks::{Answers, bad, codes, refusing, server, soon, well};
use super::*;
use crate::stores::redis::tests::stub::{Request, Says, bulk};

#[test]
fn missing_rights_are_found_and_named() {
    let named = |rather: Answers| {
        let found = bad(rather);
        let [(code, message)] = &*found else {
            panic!("{found:?}");
        };
        assert_eq!(code, "rights danger");
        let words = "the user lacks rights that locks need: ";
        message.strip_prefix(words).unwrap().to_owned()
    };
    // Missing rights to keys and channels are not reported.
    let refused = Value::Array(["hset", "~x", "&", "pexpire"].map(bulk).to_vec());
    let by_script =
        move |request: &Request| request.is_script().then(|| Says::answer(refused.clone()));
    assert_eq!(named(Box::new(by_script)), "+hset +pexpire");
    let eval = "NOPERM this user has no permissions to run the 'evalsha' command";
    let again = "NOPERM this user has no permissions to run the 'eval' command";
    let without = move |request: &Request| request.is_script().then(|| Says::error(again));
    assert_eq!(named(Box::new(without)), "+eval");
    // A missing right that locks do not need is reported with its effect.
    let spared = |rather: Answers| match &*bad(rather) {
        [(code, message)] if code == "rights note" => message.clone(),
        found => panic!("{found:?}"),
    };
    // Redis 6.2 and 7.0 reply with these errors to a renamed command.
    for renamed in [
        "ERR unknown command `EVAL`, with args beginning with: `return 1`, ",
        "ERR unknown command 'EVAL', with args beginning with: 'return 1' ",
    ] {
        let scripts = move |request: &Request| match request.is("EVALSHA") {
            true => Some(Says::error("NOSCRIPT No matching script")),
            false => request.is("EVAL").then(|| Says::error(renamed)),
        };
        let found = bad(scripts);
        let [(code, message)] = &*found else {
            panic!("{found:?}");
        };
        assert_eq!(code, "state danger");
        assert!(message.contains("scripting is off"), "{message}");
        let listening = renamed.replace("EVAL", "SUBSCRIBE");
        let listens =
            move |request: &Request| request.is("SUBSCRIBE").then(|| Says::error(&listening));
        let effect = spared(Box::new(listens));
        assert!(effect.contains("+subscribe: no message"), "{effect}");
    }
    // EVALSHA runs the script that tests rights, because the server has cached it. The user has no right to EVAL.
    assert_eq!(named(Box::new(refusing("EVAL", again))), "+eval");
    let found = bad(refusing("EVALSHA", eval));
    let [(code, message)] = &*found else {
        panic!("{found:?}");
    };
    assert_eq!(code, "rights note");
    assert!(message.contains("EVALSHA is refused"));
    let denied = "NOPERM no permissions to run the 'subscribe' command";
    let effect = spared(Box::new(refusing("SUBSCRIBE", denied)));
    assert!(effect.contains("+subscribe: no message"), "{effect}");
    let denied = "NOPERM no permissions to run the 'unsubscribe' command";
    let effect = spared(Box::new(refusing("UNSUBSCRIBE", denied)));
    assert!(effect.contains("+unsubscribe: "), "{effect}");
    let refused = Value::Array(["publish", "hkeys", "hset"].map(bulk).to_vec());
    let found = bad(move |request| request.is_script().then(|| Says::answer(refused.clone())));
    let codes: Vec<_> = found.iter().map(|(code, _)| &**code).collect();
    assert_eq!(codes, ["rights danger", "rights note", "rights note"]);
    assert!(found[0].1.ends_with(": +hset"), "{found:?}");
    // A missing right to a channel is not a missing right to the command.
    assert!(
        bad(refusing(
            "SUBSCRIBE",
            "NOPERM no permissions to access a channel"
        ))
        .is_empty()
    );
}

#[test]
fn a_right_granted_since_is_not_missing() {
    let denied = "NOPERM this user has no permissions to run the 'evalsha' command";
    let server = server(refusing("EVALSHA", denied));
    let store = server.store();
    let found = codes(&check(&store, soon()).unwrap());
    assert!(found.contains(&"rights note".to_owned()), "{found:?}");
    server.answer(
        |request| match request.is("EVALSHA") && request[1].starts_with("ffff") {
            true => Some(Says::error("NOSCRIPT No matching script")),
            false => well(request),
        },
    );
    let found = codes(&check(&store, soon()).unwrap());
    assert_eq!(found.last().unwrap(), "rights ok");
    let Topology::One(node) = &store.topology else {
        panic!("one server");
    };
    assert!(!node.pool.uses_text());
}

#[test]
fn untested_rights_are_not_reported_as_present() {
    let found = |error: &'static str| {
        let scripts = move |request: &Request| request.is_script().then(|| Says::error(error));
        let [(code, message)] = &bad(scripts)[..] else {
            panic!("{error}");
        };
        (code.clone(), message.clone())
    };
    for error in ["LOADING it is", "MASTERDOWN it is"] {
        let (code, message) = found(error);
        assert_eq!(code, "state danger");
        assert!(message.contains(error), "{message}");
    }
    let (code, message) = found("ERR no such thing");
    assert_eq!(code, "rights note");
    assert!(message.contains("could not be tested"), "{message}");
}
