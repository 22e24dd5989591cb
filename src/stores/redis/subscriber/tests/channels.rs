//! Which channels a subscriber asks for, keeps and gives up.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

#[test]
fn a_channel_is_asked_for_once_and_is_live_when_that_is_confirmed() {
    let scene = Scene::still(false);
    let mut connection = scene.connect();
    let (first, is_live) = scene.subscriber.listen(&channel("a"), true);
    assert!(!is_live && !scene.is_live("a"));
    let (second, is_live) = scene.subscriber.listen(&channel("a"), true);
    assert!(!is_live);
    assert_eq!(scene.change("a", |entry| entry.waiters), 2);
    scene.read(&mut connection);
    let (third, is_live) = scene.subscriber.listen(&channel("a"), true);
    assert!(is_live && scene.is_live("a"));
    assert_eq!(scene.change("a", |entry| entry.waiters), 3);
    let asked = format!("SUBSCRIBE {}", channel("a"));
    assert_eq!(scene.asked_until_now(), [words(&asked)]);
    drop((first, second, third));
}

#[test]
fn what_was_asked_on_no_connection_is_not_live() {
    let scene = Scene::still(false);
    let (_interest, is_live) = scene.subscriber.listen(&channel("a"), true);
    assert!(!is_live && !scene.is_live("a"));
    assert!(!scene.is_live("unknown"));
}

#[test]
fn what_is_wanted_is_asked_for_in_a_command_each() {
    for (is_sharded, command) in [(false, "SUBSCRIBE"), (true, "SSUBSCRIBE")] {
        let scene = Scene::still(is_sharded);
        let _interests = [scene.listen("a"), scene.listen("b")];
        let mut connection = scene.connect();
        let asked = ["a", "b"].map(|name| words(&format!("{command} {}", channel(name))));
        assert_eq!(scene.asked_until_now(), asked);
        scene.read(&mut connection);
        assert!(scene.is_live("a") && !scene.is_live("b"));
    }
}

#[test]
fn nothing_is_asked_where_nothing_is_wanted() {
    let scene = Scene::still(false);
    let _connection = scene.connect();
    assert_eq!(scene.asked_until_now(), []);
}

#[test]
fn a_refused_channel_is_asked_for_again() {
    let scene = Scene::still(true);
    let _connection = scene.connect();
    let _interest = scene.listen("a");
    scene.subscriber.ask_again(&channel("a"));
    scene.subscriber.ask_again(&channel("unknown"));
    scene.change("a", |entry| entry.asked = 0);
    scene.subscriber.ask_again(&channel("a"));
    let asked = words(&format!("SSUBSCRIBE {}", channel("a")));
    assert_eq!(scene.asked_until_now(), [asked.clone(), asked]);
    assert_eq!(scene.change("a", |entry| entry.asked), 1);
}

#[test]
fn a_connection_that_takes_no_subscription_is_ended() {
    let scene = Scene::still(false);
    let mut connection = scene.connect();
    // The writing end alone is closed, so that its reader learns of it from the subscriber.
    scene.subscriber.shared.hang_up();
    let _interest = scene.listen("a");
    assert_eq!(scene.change("a", |entry| entry.asked), 0);
    assert!(connection.receive(soon()).is_err());
}

#[test]
fn it_is_down_where_somebody_waits_without_a_connection() {
    let scene = Scene::still(false);
    assert!(!scene.subscriber.is_down(), "nobody waits");
    let interest = scene.listen("a");
    assert!(scene.subscriber.is_down());
    let connection = scene.connect();
    assert!(!scene.subscriber.is_down());
    drop(connection);
    scene.subscriber.shared.disconnect();
    assert!(scene.subscriber.is_down());
    drop(interest);
    assert!(scene.is_known("a") && !scene.subscriber.is_down());
}

#[test]
fn a_channel_is_idle_from_its_last_waiter_on() {
    let scene = Scene::still(false);
    let (first, second) = (scene.listen("a"), scene.listen("a"));
    drop(first);
    let state = || scene.change("a", |entry| (entry.waiters, entry.idle_since.is_some()));
    assert_eq!(state(), (1, false));
    drop(second);
    assert_eq!(state(), (0, true));
    let _third = scene.listen("a");
    assert_eq!(state(), (1, false));
}

#[test]
fn a_channel_for_one_waiter_is_given_up_with_it() {
    let scene = Scene::still(false);
    let mut connection = scene.connect();
    let own = |name| scene.subscriber.listen(&channel(name), false).0;
    let (unanswered, answered) = (own("b"), own("a"));
    scene.change("b", |entry| entry.asked = 2);
    scene.read(&mut connection);
    scene.read(&mut connection);
    assert!(scene.is_live("a") && !scene.is_live("b"));
    drop(unanswered);
    drop(answered);
    // Its confirmation would be taken for that of the next one.
    assert!(scene.is_known("b") && !scene.is_known("a"));
    // The end of that comes first.
    scene.read(&mut connection);
    let lingering = scene.hear(&mut connection, "c");
    drop(lingering);
    assert!(scene.is_live("c"));
    let asked = scene.asked_until_now();
    let left = words(&format!("UNSUBSCRIBE {}", channel("a")));
    let is_end = |request: &&Request| request.is("UNSUBSCRIBE");
    assert_eq!(asked.iter().filter(is_end).collect::<Vec<_>>(), [&left]);
}

#[test]
fn a_sharded_channel_that_is_given_up_is_left_if_it_was_asked_for() {
    let scene = Scene::still(true);
    let mut connection = scene.connect();
    scene.idle(&mut connection, "a", Duration::ZERO);
    scene.idle(&mut connection, "b", Duration::ZERO);
    scene.change("b", |entry| entry.asked = 0);
    scene.leave("c", 3);
    let shared = &scene.subscriber.shared;
    let names = ["a", "b"].map(channel);
    shared.give_up(&mut shared.state.lock(), &names);
    assert!(!scene.is_known("a") && !scene.is_known("b"));
    assert_eq!(scene.leaving("a"), Some(1));
    assert_eq!(scene.leaving("b"), None);
    let asked = scene.asked_until_now();
    let left = words(&format!("SUNSUBSCRIBE {}", channel("a")));
    assert_eq!(asked[2..], [left]);
    // The end of one that is left again is awaited twice.
    drop(scene.listen("a"));
    shared.give_up(&mut shared.state.lock(), &names);
    assert_eq!(scene.leaving("a"), Some(2));
}

#[test]
fn long_names_are_left_in_several_commands() {
    let name = |sign: &str| -> Arc<str> { sign.repeat(MOST_OF_A_COMMAND / 2).into() };
    let names = ["a", "b", "c", "d", "e"].map(name);
    let mut packed = Vec::new();
    pack_together(|| redis::cmd("UNSUBSCRIBE"), &names, &mut packed);
    let of = |names: &[Arc<str>]| {
        let mut command = redis::cmd("UNSUBSCRIBE");
        names.iter().for_each(|name| {
            command.arg(&**name);
        });
        command.get_packed_command()
    };
    assert_eq!(
        packed,
        [of(&names[..2]), of(&names[2..4]), of(&names[4..])].concat()
    );
}

/// Sweeps, and returns whether any channel is left.
fn sweep(scene: &Scene) -> bool {
    let shared = &scene.subscriber.shared;
    shared.sweep(&mut shared.state.lock())
}

#[test]
fn an_idle_channel_lingers_for_a_while() {
    let pace = Pace {
        linger: Duration::from_secs(100),
        ..endless()
    };
    let scene = Scene::still_with(StubServer::start(|_| None), pace, false);
    let mut connection = scene.connect();
    assert!(!sweep(&scene), "there is none");
    let seconds = Duration::from_secs;
    for (name, since) in [
        ("short", 50),
        ("long", 150),
        ("unsettled", 150),
        ("lost", 1050),
    ] {
        scene.idle(&mut connection, name, seconds(since));
    }
    let waited_on = scene.hear(&mut connection, "waited on");
    scene.change("unsettled", |entry| entry.asked = 2);
    scene.change("lost", |entry| entry.asked = 2);
    assert!(sweep(&scene));
    let names = ["short", "long", "unsettled", "lost", "waited on"];
    let known = names.map(|name| scene.is_known(name));
    assert_eq!(known, [true, false, true, false, true]);
    assert!(sweep(&scene), "nothing is due, and some are left");
    drop(waited_on);
    for name in ["short", "unsettled", "waited on"] {
        scene.change(name, |entry| entry.idle_since = None);
    }
    assert!(!sweep(&scene), "all have left");
    let is_end = |request: &Request| request.is("UNSUBSCRIBE");
    scene.server.until_asked(is_end);
}
