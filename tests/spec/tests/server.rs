//! The simulated server as its clients see it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{NOW, acquire, script, send};
use redlatch_spec::{Config, Persistence, Server, Value, scripts};

fn server() -> Server {
    let mut server = Server::new(Config::default(), NOW);
    server.connect(1);
    server.connect(2);
    server
}

#[test]
fn a_lock_is_granted_refused_and_given_back() {
    let mut server = server();
    assert_eq!(
        acquire(&mut server, NOW, "a:1:1"),
        format!(":{}", 7 * 4_194_304 + 1000)
    );
    let now = NOW + 2_000_000;
    let refused = format!("*2 :7 *4 :0 :{} :28000 $5 a:1:1", now / 1000);
    assert_eq!(acquire(&mut server, now, "b:1:1"), refused);
    let (value, left) = server.look(now, "orders").unwrap();
    let fields = vec![(b"a:1:1".to_vec(), b"1".to_vec())];
    assert_eq!((value, left), (&Value::Hash(fields), 28000));

    send(&mut server, now, 2, "SUBSCRIBE c");
    let release = ["orders", "a:1:1", "c", "8"];
    let heard = format!(":{}", 8 * 4_194_304 + 1);
    assert_eq!(
        script(&mut server, now, 1, "reentrant/release", &release),
        heard
    );
    assert!(server.look(now, "orders").is_none());
}

#[test]
fn a_key_is_there_until_its_last_millisecond_is_over() {
    let mut server = server();
    acquire(&mut server, NOW, "a:1:1");
    assert!(server.look(NOW + 30_000_999, "orders").is_some());
    assert!(server.look(NOW + 30_001_000, "orders").is_none());
}

#[test]
fn listeners_hear_what_others_publish() {
    let mut server = server();
    let told = send(&mut server, NOW, 2, "SUBSCRIBE c d");
    assert_eq!(told[1], (2, "*3 $9 subscribe $1 d :2".to_owned()));
    assert_eq!(send(&mut server, NOW, 2, "PING")[0].1, "*2 $4 pong $0");
    assert!(
        send(&mut server, NOW, 2, "TIME")[0]
            .1
            .starts_with("-ERR Can't execute")
    );
    let told = send(&mut server, NOW, 1, "PUBLISH c 0");
    assert_eq!(told[0], (2, "*3 $7 message $1 c $1 0".to_owned()));
    assert_eq!(told[1], (1, ":1".to_owned()));
    server.disconnect(2);
    assert_eq!(send(&mut server, NOW, 1, "PUBLISH d 0")[0].1, ":0");
}

#[test]
fn it_asks_for_its_password() {
    let user = Some(("default".to_owned(), "secret".to_owned()));
    let config = Config {
        user,
        ..Config::default()
    };
    let mut server = Server::new(config, NOW);
    server.connect(1);
    assert!(
        send(&mut server, NOW, 1, "TIME")[0]
            .1
            .starts_with("-NOAUTH")
    );
    assert!(
        send(&mut server, NOW, 1, "AUTH wrong")[0]
            .1
            .starts_with("-WRONGPASS")
    );
    assert_eq!(send(&mut server, NOW, 1, "AUTH secret")[0].1, "+OK");
    let time = format!("*2 $10 {} $1 5", NOW / 1_000_000);
    assert_eq!(send(&mut server, NOW + 5, 1, "TIME")[0].1, time);
}

#[test]
fn a_restart_ends_connections_scripts_and_the_keys_that_were_not_kept() {
    for (persistence, is_kept) in [
        (Persistence::All, [true, true]),
        (Persistence::Lost(1000), [true, false]),
        (Persistence::Nothing, [false, false]),
    ] {
        let mut server = server();
        acquire(&mut server, NOW, "a:1:1");
        let run = server.run_id().to_owned();
        let now = NOW + 5_000_000;
        script(
            &mut server,
            now,
            1,
            "reentrant/withdraw",
            &["orders", "a:1:1", "c", "9"],
        );
        acquire(&mut server, now, "b:1:1");
        server.restart(now + 500_000, persistence);
        assert!(!server.is_connected(1) && server.run_id() != run);
        assert_eq!(send(&mut server, now, 1, "PING"), []);
        let holder = server
            .look(now, "orders")
            .map(|(value, _)| format!("{value:?}"));
        let visitor = |visitor: &str| format!("{:?}", visitor.as_bytes());
        let has = |name| {
            holder
                .as_ref()
                .is_some_and(|it| it.contains(&visitor(name)))
        };
        let expected = match is_kept {
            [true, true] => "b:1:1",
            [true, false] => "a:1:1",
            _ => {
                assert!(holder.is_none());
                continue;
            }
        };
        assert!(has(expected), "{persistence:?}: {holder:?}");
    }
}

#[test]
fn refusals_of_writes_name_the_script() {
    let mut server = server();
    server.set_full(true);
    let hash = scripts::hash(scripts::named("reentrant/acquire").unwrap().text.as_bytes());
    let text = format!(
        "-OOM command not allowed when used memory > 'maxmemory'. script: {hash}, on @user_script:43."
    );
    assert_eq!(acquire(&mut server, NOW, "a:1:1"), text);
    server.set_full(false);
    server.deny(&["pexpire"]);
    let refused = "-ERR The user executing the script can't run this command or subcommand";
    assert_eq!(acquire(&mut server, NOW, "a:1:1"), refused);
    assert!(server.look(NOW, "orders").is_none());
    let told = script(&mut server, NOW, 1, "rights", &["orders", "c", "", "3"]);
    assert_eq!(told, "*2 :3 *1 $7 pexpire");
}
