#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pages;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::ground::error::Error;
use crate::stores::redis::tests::stub::{Request, Says, StubServer, bulk};

const CLIENT: &str = "1f6f2c9e-0b7a-4c8e-9d53-5a1f3c2b4d6e";

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn hold(thread: u32, number: u32) -> String {
    format!("{CLIENT}:{thread}:{number}")
}

#[derive(Clone)]
enum Content {
    Hash(Vec<(String, String)>),
    Text(String),
    List,
}

/// The keys of a server, each with its TTL.
#[derive(Clone, Default)]
struct Keys(BTreeMap<String, (Content, i64)>);

impl Keys {
    fn hash(mut self, name: &str, fields: &[(&str, &str)], life: i64) -> Keys {
        let owned = |text: &str| text.to_owned();
        let fields = fields
            .iter()
            .map(|(field, value)| (owned(field), owned(value)));
        let content = Content::Hash(fields.collect());
        self.0.insert(name.to_owned(), (content, life));
        self
    }

    fn text(mut self, name: &str, text: &str, life: i64) -> Keys {
        let content = Content::Text(text.to_owned());
        self.0.insert(name.to_owned(), (content, life));
        self
    }

    fn list(mut self, name: &str) -> Keys {
        self.0.insert(name.to_owned(), (Content::List, -1));
        self
    }

    fn fields(&self, name: &str) -> &[(String, String)] {
        match self.0.get(name) {
            Some((Content::Hash(fields), _)) => fields,
            _ => &[],
        }
    }

    fn text_of(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some((Content::Text(text), _)) => Some(text),
            _ => None,
        }
    }

    fn answer(&self, request: &Request) -> Option<Says> {
        let name = request.get(1).map_or("", String::as_str);
        let array = |items: Vec<Value>| Value::Array(items);
        let pairs = |fields: &[(String, String)]| {
            let pairs = fields
                .iter()
                .flat_map(|(field, value)| [bulk(field), bulk(value)]);
            array(pairs.collect())
        };
        let fields = self.fields(name);
        let value = match &*request[0] {
            "TYPE" => Value::SimpleString(
                match self.0.get(name) {
                    Some((Content::Hash(_), _)) => "hash",
                    Some((Content::Text(_), _)) => "string",
                    Some((Content::List, _)) => "list",
                    None => "none",
                }
                .to_owned(),
            ),
            "HLEN" => Value::Int(fields.len() as i64),
            "HKEYS" => array(fields.iter().map(|(field, _)| bulk(field)).collect()),
            "HGETALL" => pairs(fields),
            "HGET" => {
                let found = fields.iter().find(|(field, _)| *field == request[2]);
                found.map_or(Value::Nil, |(_, value)| bulk(value))
            }
            "HSCAN" => array(vec![bulk("0"), pairs(fields)]),
            "STRLEN" => Value::Int(self.text_of(name).map_or(0, str::len) as i64),
            "GET" => self.text_of(name).map_or(Value::Nil, bulk),
            "PTTL" => Value::Int(self.0.get(name).map_or(-2, |(_, life)| *life)),
            "EXISTS" => Value::Int(i64::from(self.0.contains_key(name))),
            "PUBSUB" if request.len() < 3 => return None,
            "PUBSUB" => array(vec![bulk(&request[2]), Value::Int(3)]),
            "CLIENT" if request.is("CLIENT LIST") => bulk(&format!(
                "id=3 addr=10.0.0.7:5112 name=redlatch:{CLIENT}:812@web-3 age=1\nid=4 addr=a name= age=1\n"
            )),
            "SCAN" => array(vec![
                bulk("0"),
                array(self.0.keys().map(|name| bulk(name)).collect()),
            ]),
            _ => return None,
        };
        Some(Says::reply(value))
    }
}

/// A server with these keys. If `rather` returns a reply, the server sends that reply instead.
fn server(
    keys: Keys,
    mut rather: impl FnMut(&Request) -> Option<Says> + Send + 'static,
) -> StubServer {
    StubServer::start(move |request| rather(request).or_else(|| keys.answer(request)))
}

fn count(server: &StubServer, words: &str) -> usize {
    server.asked().iter().filter(|it| it.is(words)).count()
}

#[test]
fn a_prefix_is_matched_literally() {
    assert_eq!(pattern("orders:"), "orders:*");
    assert_eq!(pattern("a*b?[c]\\"), "a\\*b\\?\\[c\\]\\\\*");
    assert_eq!(pattern("^-"), "\\^\\-*");
    assert_eq!(pattern(""), "*");
}
