//! Checks the layouts: the headers of their scripts, the slots of their keys, their channels and rights.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::stores::redis::scripts::Arg;

/// One of the returned texts must be in the line about this argument in a script's header.
fn words(arg: Arg) -> [&'static str; 2] {
    match arg {
        Visitor | Successor => ["visitor", "token"],
        Lease => ["lease", "lease"],
        Known => ["expected count", "expected count"],
        Wanted => ["count wanted", "count wanted"],
        Counts => ["expected count and", "expected count and"],
        Channel => ["the channel of", "the channel of"],
        Rights => ["'token' for a token lock", "the mode that"],
        Inside => ["the writer inside", "the writer inside"],
        Wish => ["requested position", "requested position"],
        Patience => ["the patience", "the patience"],
        HearsAll => ["if the server knows all", "if the server knows all"],
        Floor => ["the smallest fencing token", "the smallest fencing token"],
        Counter => ["the counter", "the counter"],
        Lock => ["the lock", "the lock"],
        Step => ["the operation", "the operation"],
        Amount => ["the amount", "the amount"],
        Life => ["the life", "the life"],
        Places => ["the channels of", "the channels of"],
        Arg::Fence => ["the fence", "the fence"],
        Check => ["'fence' for a fence", "'fence' for a fence"],
        Work => ["the commands", "the commands"],
    }
}

fn lines<'a>(script: &'a Script, list: &str) -> Vec<&'a str> {
    let head = script
        .text
        .lines()
        .map_while(|line| line.strip_prefix("--"));
    let head = head.map(str::trim_start);
    head.filter(|line| line.starts_with(list)).collect()
}

#[test]
fn script_headers_list_all_keys_and_arguments() {
    let of_kinds = KINDS
        .into_iter()
        .flat_map(|kind| Layout::of(kind).scripts());
    for script in of_kinds.chain([&*GUARDED, &CONDITION.look, &CONDITION.signal]) {
        let name = script.text.lines().next().unwrap();
        let data = lines(script, "KEYS[i]  the keys of the commands").len();
        let keys = lines(script, "KEYS[").len() - data;
        assert_eq!(keys, script.keys.len(), "{name}");
        let (args, mut takes) = (lines(script, "ARGV["), script.args.iter().peekable());
        let mut args = args.into_iter();
        while takes.peek().is_some() {
            let line = args.next().unwrap();
            // One header line may describe several arguments.
            for _ in line.split_once("  ").unwrap().0.split(", ") {
                let arg = *takes.next().unwrap();
                assert!(
                    words(arg).iter().any(|it| line.contains(it)),
                    "{name} {arg:?}: {line}"
                );
            }
        }
        let rest: Vec<_> = args.collect();
        let is_limit = |line: &&&str| {
            line.contains("the server time after which") || line.contains("if the grant is a vote")
        };
        assert_eq!(
            rest.iter().any(|line| is_limit(&line)),
            script.expires,
            "{name}"
        );
        let behind: Vec<_> = rest.iter().skip_while(is_limit).collect();
        assert!(
            matches!(*behind, [it] if it.contains("the number of the request")),
            "{name}"
        );
    }
}

#[test]
fn all_keys_of_a_lock_are_in_the_slot_of_its_name() {
    for name in ["orders", "{shop}:orders", "a{b}c"] {
        let may_have = |kind: &Kind| flaw(*kind, name, name).is_none();
        for kind in KINDS.into_iter().filter(may_have) {
            let layout = Layout::of(kind);
            let keys = layout.scripts().flat_map(|script| script.keys);
            for key in keys
                .chain([&layout.channel, &PLACES])
                .chain(condition::WAITING)
            {
                assert_eq!(keys::slot(&key.of(name)), keys::slot(name), "{key:?}");
            }
        }
    }
}

#[test]
fn sharded_scripts_use_only_sharded_commands() {
    let Layout {
        release,
        transfer,
        resolve,
        force_release,
        ..
    } = Layout::of(Kind::Reentrant);
    for script in [release, resolve, force_release, &RIGHTS] {
        let text = &script.sharded().text;
        assert!(text.contains("'SPUBLISH'") && !text.contains("'PUBLISH'"));
    }
    assert!(transfer.sharded().text.contains("'SHARDNUMSUB'"));
    assert!(transfer.sharded().expires);
    assert_ne!(transfer.sharded().hash(), transfer.hash());
}

#[test]
fn all_scripts_check_that_the_hash_is_a_lock() {
    for kind in [Kind::Reentrant, Kind::Fenced] {
        for script in Layout::of(kind).scripts().chain([&*GUARDED]) {
            // The script that resolves an in-doubt request reports no holder, so it does not contain `holder_of`.
            let is_withdrawal = script.text.contains("may have left");
            let functions = script.text.matches("local function holder_of(key)").count();
            assert_eq!(functions, usize::from(!is_withdrawal), "{}", script.text);
            assert!(!script.text.contains("include"), "{}", script.text);
        }
    }
}

#[test]
fn each_kind_has_its_channel_messages_and_rights() {
    let plain = Key::Prefix("redisson_lock__channel");
    let permits = Key::Prefix("redisson_sc");
    let side = Key::Prefix("redisson_rwlock");
    let latch = Key::Braced("redisson_countdownlatch__channel__");
    // How many waiters the messages "0" and "3" wake.
    let (one, all) = (Some([1, 1]), Some([usize::MAX; 2]));
    for (kind, channel, wakes, rights) in [
        (Kind::Reentrant, plain, one, ""),
        (Kind::Token, plain, None, "token"),
        (Kind::Fenced, plain, one, "fenced"),
        (Kind::Fair, plain, one, "fair"),
        (Kind::Read, side, all, "read"),
        (Kind::Write, side, all, "write"),
        (Kind::Permits, permits, Some([0, 3]), "permits"),
        (Kind::PermitIds, permits, Some([0, 3]), "permit_ids"),
        (Kind::Latch, latch, Some([usize::MAX, 1]), "latch"),
    ] {
        let layout = Layout::of(kind);
        assert_eq!(
            (layout.channel, layout.rights),
            (channel, rights),
            "{kind:?}"
        );
        assert_eq!(layout.wakes.map(|wakes| ["0", "3"].map(wakes)), wakes);
        assert_eq!(layout.place_channel.is_some(), kind == Kind::Fair);
        assert_eq!(layout.waiters.is_some(), kind == Kind::Fair);
        let is_count = matches!(kind, Kind::Latch | Kind::Permits | Kind::PermitIds);
        assert_eq!(layout.count.is_some(), is_count, "{kind:?}");
    }
    let condition = &CONDITION.layout;
    let channel = Key::Prefix("redlatch_condition");
    assert_eq!(
        (condition.channel, condition.rights),
        (channel, "condition")
    );
}

#[test]
fn keys_beside_a_lock_are_listed_once() {
    let beside = |layout: &Layout| layout.keys_beside("a");
    assert!(beside(Layout::of(Kind::Reentrant)).is_empty());
    assert_eq!(
        beside(Layout::of(Kind::Fenced)),
        ["redisson_lock_token:{a}"]
    );
    let side = ["redlatch_rw:{a}", "{a}:*:rwlock_timeout:1"];
    assert_eq!(beside(Layout::of(Kind::Read)), side);
    assert_eq!(
        beside(Layout::of(Kind::Permits)),
        ["redlatch_once:{a}:*", "redlatch_sc:{a}"]
    );
    assert_eq!(
        beside(Layout::of(Kind::PermitIds)),
        ["redlatch_once:{a}:*", "{a}:timeout"]
    );
    let fair = ["redisson_lock_queue:{a}", "redisson_lock_timeout:{a}"];
    assert_eq!(beside(Layout::of(Kind::Fair)), fair);
    let waiting = [
        "redlatch_condition:{a}:*:due",
        "redlatch_condition:{a}:*:waiting",
    ];
    assert_eq!(beside(&CONDITION.layout), waiting);
}

#[test]
fn names_are_checked_by_the_rule_of_their_kind() {
    assert!(flaw(Kind::Reentrant, "{a}", "{a}").is_none());
    assert!(flaw(Kind::Latch, "{a}", "{a}").is_some());
    assert!(flaw(Kind::Latch, "a", "a").is_none());
}

#[test]
fn the_first_key_of_each_script_is_the_lock() {
    // Some proxies choose the server by the first key alone.
    let of_kinds = KINDS
        .into_iter()
        .flat_map(|kind| Layout::of(kind).scripts());
    for script in of_kinds.chain([&*GUARDED, &*RIGHTS, &CONDITION.look, &CONDITION.signal]) {
        let name = script.text.lines().next().unwrap();
        assert_eq!(script.keys.first(), Some(&Key::Name), "{name}");
    }
}
