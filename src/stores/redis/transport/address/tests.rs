#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::stores::redis::random_replies::{changed, draws};

const URLS: [&[u8]; 9] = [
    b"redis://localhost",
    b"redis://127.0.0.1:6379/0",
    b"redis://:secret@redis.example:6380/15",
    b"redis://user:secret@[::1]:6379",
    b"rediss://user:secret@redis.example/1",
    b"valkeys://redis.example:6379#insecure",
    b"redis+unix:///run/redis.sock?db=2&user=user&pass=secret",
    b"unix:/run/redis.sock?pass=secret",
    b"redis://user:se%63ret@h:1/2?protocol=resp3",
];

#[test]
fn random_urls_are_parsed_without_leaking_the_password() {
    let timeout = Duration::from_secs(1);
    draws("url", |draw| {
        let url = changed(draw, &URLS);
        let url = String::from_utf8_lossy(&url);
        let password = redis::parse_redis_url(&url)
            .and_then(|url| url.password().map(str::to_owned))
            .filter(|password| password.contains("secret"));
        let said = match Address::parse(&url, timeout, &TlsConfig::default()) {
            Ok(address) => {
                assert!(address.database() >= 0, "{url}");
                assert!(address.at_host("h", 1).node.starts_with("h:1"), "{url}");
                address.node.to_string()
            }
            Err(error) => error.to_string(),
        };
        // If `secret` occurs twice, it may be a part of the host or of the path. Messages may contain the host and the path.
        let is_secret = url.matches("secret").count() == 1;
        let tells = password.is_some_and(|password| said.contains(&password));
        assert!(!(is_secret && tells), "{url}: {said}");
    });
}

fn parsed(url: &str) -> Result<Address> {
    Address::parse(url, Duration::from_secs(1), &TlsConfig::default())
}

fn address(url: &str) -> Address {
    parsed(url).unwrap()
}

#[test]
fn urls_name_host_port_and_database() {
    for (url, node, host, database) in [
        ("redis://localhost", "localhost:6379", Some("localhost"), 0),
        ("redis://h:1/15", "h:1", Some("h"), 15),
        ("redis://[::1]:7/", "[::1]:7", Some("::1"), 0),
        ("unix:/run/r?db=2", "unix:/run/r", None, 2),
        ("redis+unix:///run/r", "unix:/run/r", None, 0),
        ("unix:/run/r?user=u&pass=p&db=1", "unix:/run/r", None, 1),
        ("unix:/run/r?pass=p", "unix:/run/r", None, 0),
    ] {
        let address = address(url);
        assert_eq!(&*address.node, node);
        assert_eq!(address.host(), host, "{url}");
        assert_eq!(address.database(), database, "{url}");
        assert!(!address.is_encrypted() && !address.is_sentinel);
        assert_eq!(&*address.connection_name, "redlatch");
        assert_eq!(address.connect_timeout, Duration::from_secs(1));
    }
}

#[test]
fn errors_about_urls_say_what_to_write() {
    let fragment = "nothing may follow a #";
    let beside = "for a Unix socket the user follows the path";
    let twice = "only db, user and pass are allowed, each once";
    let options = "no options are allowed after a ?";
    let alone = "it names a user without a password";
    let unix_database = "the database is a number, 0 or higher";
    let database = "after the host: redis://host/1";
    for (url, flaw) in [
        ("unix:/run/r#x", fragment),
        ("redis+unix://user@localhost/run/r", beside),
        ("redis+unix://:p@localhost/run/r", beside),
        ("unix:/run/r?host=h", twice),
        ("unix:/run/r?pass=p&pass=q", twice),
        ("unix:/run/r?db=1&user=u&db=2&pass=p", twice),
        ("unix:/run/r?user=u", alone),
        ("unix:/run/r?db=-1", unix_database),
        ("redis://h/1?protocol=resp3", options),
        ("redis://h?x=1&db=2", options),
        ("redis://h:1?secret@h", options),
        ("redis://h#x", fragment),
        ("redis://user@h", alone),
        ("redis://user:@h", alone),
        ("redis://h/-1", database),
        ("redis://h/+1", database),
        ("redis://h:0", "port 0 does not exist"),
        (
            "nonsense",
            "expected redis://[user:password@]host[:port][/database]",
        ),
        (
            "http://h",
            "expected redis://[user:password@]host[:port][/database]",
        ),
    ] {
        let error = parsed(url).err().unwrap().to_string();
        assert!(error.contains(flaw), "{url}: {error}");
    }
    let error = parsed("redis://h:1?secret@h").err().unwrap().to_string();
    assert!(!error.contains("secret"), "{error}");
    for url in ["redis://:p@h", "redis://user:p@h"] {
        assert!(parsed(url).is_ok(), "{url}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn tls_schemes_always_verify_certificates() {
    for scheme in ["rediss", "valkeys", "REDISS"] {
        let address = address(&format!("{scheme}://h/1"));
        assert!(address.is_encrypted(), "{scheme}");
        assert_eq!((&*address.node, address.database()), ("h:6379", 1));
        let elsewhere = address.at_host("other", 2);
        assert!(elsewhere.is_encrypted());
        let error = parsed(&format!("{scheme}://h#insecure")).err().unwrap();
        let words = "the server's certificate is always checked";
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = parsed("rediss://h_/?x").err().unwrap().to_string();
    assert!(error.contains("the Redis URL"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn certificates_without_a_tls_url_are_refused() {
    use crate::stores::redis::transport::tls::Pem;
    let mut unused = TlsConfig::default();
    unused.authorities = Some(Pem::text(b"x"));
    let error = Address::parse("redis://h", Duration::from_secs(1), &unused).err();
    assert!(error.unwrap().to_string().contains("ca_certificate"));
}

#[test]
fn addresses_keep_connection_name_and_counters() {
    let (name, traffic): (Arc<str>, Arc<ConnectionCounter>) = ("worker".into(), Arc::default());
    let of_client = address("redis://h:1/2").for_client(&name, &traffic);
    assert_eq!(&*of_client.connection_name, "worker");
    assert!(Arc::ptr_eq(&of_client.traffic, &traffic));
    assert_eq!((&*of_client.node, of_client.database()), ("h:1", 2));
    let elsewhere = of_client.at_host("::2", 3);
    assert_eq!(
        (&*elsewhere.node, elsewhere.host()),
        ("[::2]:3", Some("::2"))
    );
    assert_eq!(
        (&*elsewhere.connection_name, elsewhere.database()),
        ("worker", 2)
    );
    assert!(Arc::ptr_eq(&elsewhere.traffic, &traffic));
}

#[test]
fn masters_and_sentinels_have_separate_users() {
    let sentinel = address("redis://watcher:w@h:1").for_sentinel();
    assert!(sentinel.is_sentinel);
    let settings = |address: &Address| {
        let settings = &address.settings;
        let text = |text: Option<&str>| text.map(str::to_owned);
        (text(settings.username()), text(settings.password()))
    };
    let owned = |text: &str| Some(text.to_owned());
    assert_eq!(settings(&sentinel), (owned("watcher"), owned("w")));
    let plain = sentinel.clone().for_master(None, 3);
    assert_eq!(settings(&plain), (None, None));
    assert!(!plain.is_sentinel);
    assert_eq!((plain.database(), plain.host()), (3, Some("h")));
    for (user, expected) in [("", None), ("user", owned("user"))] {
        let credentials = Credentials {
            user: user.to_owned(),
            password: "p".to_owned(),
        };
        let data = sentinel.clone().for_master(Some(&credentials), 0);
        assert_eq!(settings(&data), (expected, owned("p")));
    }
}
