//! What befalls both servers besides the requests of the library.

use redis::Value;
use redlatch_spec::{Entry, Keyspace, Value as Content};

use super::{Both, Given, MARGIN, PASS, channel};
use crate::spec::operations::{KEYS, PATIENCE, Thing, Trouble};
use crate::spec::wire::request;

impl Both {
    pub(super) fn trouble(&mut self, trouble: &Trouble) {
        let (mut memory, mut replicas) = ("0", "0");
        let mut rights = vec!["ACL", "SETUSER", "visitor", "+@all"];
        let denied: Vec<String>;
        self.spec.set_full(false);
        self.spec.refuse_writes(None);
        self.spec.deny(&[]);
        match trouble {
            Trouble::Nothing => {}
            Trouble::Full => {
                memory = "1";
                self.spec.set_full(true);
            }
            Trouble::Alone => {
                replicas = "1";
                let refusal = "NOREPLICAS Not enough good replicas to write.";
                self.spec.refuse_writes(Some(refusal));
            }
            Trouble::Denied(commands) => {
                denied = commands.iter().map(|it| format!("-{it}")).collect();
                rights.extend(denied.iter().map(String::as_str));
                self.spec.deny(commands);
            }
        }
        if self.has_trouble != (*trouble != Trouble::Nothing) || *trouble != Trouble::Nothing {
            self.admin.say(&rights);
            self.admin.say(&["CONFIG", "SET", "maxmemory", memory]);
            self.admin
                .say(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
        }
        self.has_trouble = *trouble != Trouble::Nothing;
    }

    pub(super) fn put(&mut self, name: &'static str, thing: &Thing) {
        self.admin.say(&["DEL", name]);
        let now = self.now() / 1000;
        let (value, end) = match thing {
            Thing::Text(text) => {
                self.admin.say(&["SET", name, text]);
                (Content::String(text.clone().into_bytes()), None)
            }
            Thing::Time(left) => {
                let end = now + left;
                self.admin
                    .say(&["SET", name, "1", "PXAT", &end.to_string()]);
                (Content::String(b"1".to_vec()), Some(end))
            }
            Thing::List => {
                self.admin.say(&["RPUSH", name, "1"]);
                (Content::List(vec![b"1".to_vec()]), None)
            }
            Thing::Line(waiters) => {
                for waiter in waiters {
                    self.admin.say(&["RPUSH", name, waiter]);
                }
                let waiters = waiters.iter().map(|it| it.as_bytes().to_vec());
                (Content::List(waiters.collect()), None)
            }
            Thing::Times(members) => {
                let members = members.iter().map(|(member, left)| (*member, now + left));
                for (member, at) in members.clone() {
                    self.admin.say(&["ZADD", name, &at.to_string(), member]);
                }
                let members = members.map(|(member, at)| (member.as_bytes().to_vec(), at));
                let mut members: Vec<_> = members.collect();
                members.sort_by(|(name, score), (other, than)| (score, name).cmp(&(than, other)));
                (Content::Sorted(members), None)
            }
            Thing::Hash(fields, end) => {
                for (field, text) in fields {
                    self.admin.say(&["HSET", name, field, text]);
                }
                let end = end.map(|end| now + end);
                if let Some(end) = end {
                    self.admin.say(&["PEXPIREAT", name, &end.to_string()]);
                }
                let fields = fields.iter().cloned();
                let fields = fields.map(|(field, text)| (field.into_bytes(), text.into_bytes()));
                (Content::Hash(fields.collect()), end)
            }
        };
        self.set(
            name,
            Some(Entry {
                value,
                expires: end,
            }),
        );
    }

    pub(super) fn pass(&mut self, ms: i64) {
        let now = self.now;
        let mut ms = ms;
        let is_near = |keys: &Keyspace, ms: i64| {
            let mut ends = keys.ends().chain(lifted(keys));
            ends.any(|end| (end - ms - now).abs() < MARGIN)
        };
        while is_near(self.spec.keys(), ms) {
            ms += 2 * MARGIN;
        }
        if ms == 0 {
            return;
        }
        let (text, count) = (ms.to_string(), KEYS.len().to_string());
        let words = [&["EVAL", PASS, &*count], &KEYS[..], &[&*text]].concat();
        assert_eq!(self.admin.say(&words), Value::Int(1));
        self.spec.keys().shift(-ms);
        for given in self.sent.iter_mut().flat_map(|sent| &mut sent.args) {
            if let Given::Expiry(at) = given {
                *at -= ms;
            }
        }
    }

    pub(super) fn listen(&mut self, name: &str, waiter: &str, on: bool) {
        let word = if on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let channel = match waiter {
            "" => channel(name),
            waiter => format!("{}:{waiter}", channel(name)),
        };
        let words = request(&[word, &channel]);
        self.spec.command(0, 2, &words);
        // What was heard before comes before the confirmation.
        let mut next = self.listener.ask(&[words]).remove(0);
        while !format!("{next:?}").contains("subscribe") {
            self.heard[0].push(format!("{next:?}"));
            next = self.listener.next();
        }
    }
}

/// The times at which one that waits for a fair lock lifts its time.
fn lifted(keys: &Keyspace) -> impl Iterator<Item = i64> {
    let sets = keys.iter().filter_map(|(_, entry)| match &entry.value {
        Content::Sorted(members) => Some(members),
        _ => None,
    });
    let scores = sets.flatten().map(|(_, score)| *score);
    let lifted = scores.flat_map(|score| {
        // The end of a holder may stand between them.
        let of_one =
            move |patience: i64| (1..8).map(move |place| score - patience * place + patience / 2);
        PATIENCE.iter().flat_map(move |it| of_one(*it))
    });
    lifted.collect::<Vec<_>>().into_iter()
}
