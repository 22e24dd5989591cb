//! A real server and the simulated one, asked the same.

mod others;

use std::collections::HashMap;
use std::fmt;

use redis::Value;
use redlatch_spec::{Config, Entry, Server, Value as Content, scripts, time_in};

use super::alike::{content, described, error_of, is_alike, scores, token_near, values};
use super::operations::{Arg, Call, KEYS, Op, Trouble};
use super::wire::{Wire, request};
use crate::support::RedisServer;

/// A step that takes a real server longer than this proves nothing: it is run again.
pub(super) const LONGEST_STEP: i64 = 100;

/// No key ends, and no request expires, within this many ms of a step.
pub(super) const MARGIN: i64 = 150;

pub(super) struct Both {
    server: RedisServer,
    user: Wire,
    admin: Wire,
    listener: Wire,
    spec: Server,
    /// The calls so far, with their expiries as they were sent.
    sent: Vec<Sent>,
    /// The messages that were heard there and here.
    heard: [Vec<String>; 2],
    /// How often a sequence was run again, because the machine had stopped for a moment.
    pub(super) paused: u64,
    has_trouble: bool,
    /// Changes what the specification is asked, so that it answers otherwise.
    pub(super) planted: fn(&mut Vec<Vec<u8>>),
    /// The texts of the scripts there, and their hashes.
    texts: HashMap<&'static str, (String, String)>,
    look: String,
    /// The time there in ms, a moment ago.
    now: i64,
}

#[derive(Clone)]
struct Sent {
    script: &'static str,
    names: Vec<&'static str>,
    args: Vec<Given>,
    number: i64,
}

#[derive(Clone)]
enum Given {
    Text(String),
    Expiry(i64),
    History(bool),
}

/// The first step at which the two differ, and how.
pub(super) struct Difference {
    step: String,
    real: String,
    spec: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { step, real, spec } = self;
        write!(f, "at {step}\n  redis {real}\n  spec  {spec}")
    }
}

enum Ended {
    Differs(Difference),
    /// The machine had stopped for a moment.
    Paused,
}

/// Tells of each key its type, its content and when it ends; nothing of one that is not there.
const LOOK: &str = r"
    local found = {}
    for i, key in ipairs(KEYS) do
        local kind = redis.call('TYPE', key).ok
        local content = kind == 'hash' and redis.call('HGETALL', key) or kind == 'string' and redis.call('GET', key)
            or kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
            or kind == 'list' and redis.call('LRANGE', key, 0, -1) or ''
        found[i] = kind ~= 'none' and {kind, content, redis.call('PEXPIRETIME', key)}
    end
    return found";

/// Moves the end of each key so many ms nearer.
const PASS: &str = r"
    for _, key in ipairs(KEYS) do
        local ends = redis.call('PEXPIRETIME', key)
        if ends >= 0 then
            redis.call('PEXPIREAT', key, ends - ARGV[1])
        end
        if redis.call('TYPE', key).ok == 'hash' then
            for _, field in ipairs(redis.call('HKEYS', key)) do
                local came, mark, time = string.match(redis.call('HGET', key, field), '^(%-?%d-)(:?)(%d+)$')
                if time and #time == 13 then
                    came = mark == ':' and string.format('%.0f:', came - ARGV[1] * 1000) or came
                    redis.call('HSET', key, field, came .. string.format('%.0f', time - ARGV[1]))
                end
            end
        end
        if redis.call('TYPE', key).ok == 'zset' then
            for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
                local unit = redis.call('ZSCORE', key, member) + 0 > 1e15 and 1000 or 1
                redis.call('ZINCRBY', key, string.format('%.0f', -ARGV[1] * unit), member)
            end
        end
    end
    return 1";

impl Both {
    pub(super) fn start() -> Both {
        let server = RedisServer::start();
        let mut admin = Wire::to(server.addr());
        let loaded = admin.say(&["SCRIPT", "LOAD", LOOK]);
        admin.say(&[
            "ACL", "SETUSER", "visitor", "on", "nopass", "~*", "&*", "+@all",
        ]);
        let mut user = Wire::to(server.addr());
        user.say(&["AUTH", "visitor", "x"]);
        Both {
            user,
            admin,
            listener: Wire::to(server.addr()),
            server,
            spec: Server::new(Config::default(), 0),
            sent: Vec::new(),
            heard: Default::default(),
            paused: 0,
            has_trouble: false,
            planted: |_| (),
            texts: scripts::ALL
                .iter()
                .map(|it| (it.name, with_hash(it.text)))
                .collect(),
            now: 0,
            look: redis::from_redis_value(loaded).unwrap(),
        }
    }

    /// Plants a bug in the text of a script there.
    pub(super) fn plant(&mut self, script: &'static str, right: &str, wrong: &str) {
        let text = scripts::named(script).expect("a script").text;
        assert_eq!(text.matches(right).count(), 1, "{script}: {right}");
        let text = with_hash(&text.replace(right, wrong));
        self.texts.insert(script, text);
    }

    /// Takes the bug out.
    pub(super) fn mend(&mut self, script: &'static str) {
        let text = scripts::named(script).expect("a script").text;
        self.texts.insert(script, with_hash(text));
    }

    /// Runs the operations on both; the number of answers that were compared.
    pub(super) fn run(&mut self, ops: &[Op]) -> Result<u64, Difference> {
        loop {
            match self.try_run(ops) {
                Ok(compared) => return Ok(compared),
                Err(Ended::Differs(difference)) => return Err(difference),
                Err(Ended::Paused) => self.paused += 1,
            }
        }
    }

    fn try_run(&mut self, ops: &[Op]) -> Result<u64, Ended> {
        self.admin.say(&["FLUSHALL"]);
        self.forget_scripts();
        self.listener = Wire::to(self.server.addr());
        self.spec = Server::new(Config::default(), self.now());
        self.spec.connect(1);
        self.spec.connect(2);
        self.sent.clear();
        self.heard = Default::default();
        let mut compared = 0;
        for op in ops {
            match op {
                Op::Call(call, trouble) => {
                    let sent = self.prepare(call);
                    self.sent.push(sent.clone());
                    compared += 1;
                    self.call(&sent, trouble)?;
                }
                Op::Again(back) => {
                    let before = self.sent.len().checked_sub(*back);
                    if let Some(sent) = before.map(|at| self.sent[at].clone()) {
                        compared += 1;
                        self.call(&sent, &Trouble::Nothing)?;
                    }
                }
                Op::Put(name, thing) => self.put(name, thing),
                Op::Delete(name) => {
                    self.admin.say(&["DEL", name]);
                    self.set(name, None);
                }
                Op::Persist(name) => {
                    self.admin.say(&["PERSIST", name]);
                    let now = self.now() / 1000;
                    let entry = self.spec.keys().get(&key(name), now).cloned();
                    self.set(
                        name,
                        entry.map(|it| Entry {
                            expires: None,
                            ..it
                        }),
                    );
                }
                Op::Pass(ms) => self.pass(*ms),
                Op::Listen(name, waiter, on) => self.listen(name, waiter, *on),
                Op::Forget => {
                    self.forget_scripts();
                    self.spec.forget_scripts();
                }
            }
        }
        self.compare_messages()?;
        Ok(compared)
    }

    fn forget_scripts(&mut self) {
        self.admin.say(&["SCRIPT", "FLUSH"]);
        self.admin.say(&["SCRIPT", "LOAD", LOOK]);
    }

    fn now(&mut self) -> i64 {
        let now = micros(&self.admin.say(&["TIME"]));
        self.now = now / 1000;
        now
    }

    fn prepare(&mut self, call: &Call) -> Sent {
        let now = self.now;
        let given = |arg: &Arg| match arg {
            Arg::Text(text) => Given::Text(text.clone()),
            Arg::Channel(name) => Given::Text(channel(name)),
            Arg::Expiry(later) => Given::Expiry(now + later),
            Arg::History(is_right) => Given::History(*is_right),
        };
        Sent {
            script: call.script,
            names: call.names.clone(),
            args: call.args.iter().map(given).collect(),
            number: fastrand::i64(1..1 << 30),
        }
    }

    /// Calls a script on both sides, and compares answers and keys.
    fn call(&mut self, sent: &Sent, trouble: &Trouble) -> Result<(), Ended> {
        let last = self.now;
        let mut now = self.now() / 1000;
        // Whether a time has to be lengthened, which may be refused, is another matter a ms later.
        while *trouble != Trouble::Nothing && now <= last {
            now = self.now() / 1000;
        }
        // A key may be about to end by now.
        self.pass(0);
        let is_near =
            |given: &Given| matches!(given, Given::Expiry(at) if (at - now).abs() < MARGIN);
        if sent.args.iter().any(is_near) {
            return Ok(());
        }
        self.trouble(trouble);
        let script = scripts::named(sent.script).expect("a script");
        let (text, hash) = self.texts[sent.script].clone();
        let spec_hash = scripts::hash(script.text.as_bytes());
        let there = match sent.args.last() {
            Some(Given::History(true)) => self.replication_id(),
            _ => String::new(),
        };
        let here = self.spec.replication_id().to_owned();
        let by_hash = ("EVALSHA", &*hash, &*spec_hash);
        let by_text = ("EVAL", &*text, script.text);
        for (word, there_is, here_is) in [by_hash, by_text] {
            // The user may not be allowed to look.
            let before = self.now();
            let real = sent.request([word, there_is], &there);
            let real = self.user.ask(&[real]).remove(0);
            let count = KEYS.len().to_string();
            let look = [&["EVALSHA", &*self.look, &count], &KEYS[..]].concat();
            let mut told = self.admin.ask(&[request(&look), request(&["TIME"])]);
            let after = micros(&told.remove(1));
            let keys = told.remove(0);
            self.now = after / 1000;
            let took = (after - before) / 1000 + 1;
            if after / 1000 - now > LONGEST_STEP {
                self.trouble(&Trouble::Nothing);
                return Err(Ended::Paused);
            }
            let mut request = sent.request([word, here_is], &here);
            (self.planted)(&mut request);
            let mut spec = Vec::new();
            for delivery in self.spec.command(before, 1, &request) {
                if delivery.connection == 1 {
                    spec = delivery.bytes;
                } else {
                    let message = redis::parse_redis_value(&delivery.bytes).unwrap();
                    self.heard[1].push(format!("{message:?}"));
                }
            }
            let spec = redis::parse_redis_value(&spec).unwrap();
            let [real_text, spec_text] = [&real, &spec].map(error_of);
            let differs = |real: String, spec: String| {
                let step = format!("{word} {}", sent.describe(trouble));
                Err(Ended::Differs(Difference { step, real, spec }))
            };
            if real_text != spec_text || !is_alike(&real, &spec, sent.number, took) {
                self.trouble(&Trouble::Nothing);
                return differs(format!("{real:?}"), format!("{spec:?}"));
            }
            let (real_keys, spec_keys) = self.compare_keys(&keys, before, took);
            if real_keys != spec_keys {
                self.trouble(&Trouble::Nothing);
                return differs(real_keys, spec_keys);
            }
            if !real_text.is_some_and(|text| text.starts_with("NOSCRIPT")) {
                break;
            }
        }
        self.trouble(&Trouble::Nothing);
        Ok(())
    }

    /// The keys there and here as text. An end, and a token that is the time, that differs by less than the step took is
    /// alike, and set to that there.
    fn compare_keys(&mut self, found: &Value, before: i64, took: i64) -> (String, String) {
        let Value::Array(found) = found else {
            panic!("{found:?}");
        };
        let mut texts = (String::new(), String::new());
        for (name, found) in KEYS.iter().zip(found) {
            let (real, end) = content(found);
            self.follow_scores(name, found, before, took);
            self.follow_times(name, found, before, took);
            let mut entry = self.spec.keys().get(&key(name), before / 1000).cloned();
            if let Some(token) = token_near(&real, entry.as_ref(), took) {
                entry = Some(token);
                self.set(name, entry.clone());
            }
            // What ends while the step lasts, such as the time key of a writer whose lock has no end, may be gone there.
            let ends_now = |it: &Entry| it.expires.is_some_and(|end| end <= before / 1000 + took);
            if end == -2 && entry.as_ref().is_some_and(ends_now) {
                entry = None;
                self.set(name, None);
            }
            let spec = described(entry.as_ref());
            let spec_end = entry.as_ref().map_or(-2, |it| it.expires.unwrap_or(-1));
            let is_alike = end == spec_end || end > 0 && (end - spec_end).abs() <= took;
            let shown = if is_alike { end } else { spec_end };
            texts.0 += &format!("{name} {real} until {end}; ");
            texts.1 += &format!("{name} {spec} until {shown}; ");
            if let Some(entry) = entry.filter(|_| is_alike && end > 0) {
                let expires = Some(end);
                self.set(name, Some(Entry { expires, ..entry }));
            }
        }
        texts
    }

    /// Sets the scores of a sorted set to those there, if they differ by less than the step took.
    fn follow_scores(&mut self, name: &str, found: &Value, before: i64, took: i64) {
        let entry = self.spec.keys().get(&key(name), before / 1000).cloned();
        let Some(Entry {
            value: Content::Sorted(mut members),
            expires,
        }) = entry
        else {
            return;
        };
        for (member, score) in scores(found) {
            let mut here = members.iter_mut();
            if let Some((_, here)) = here.find(|(name, _)| *name == member.as_bytes())
                && (*here - score).abs()
                    <= if score > 1_000_000_000_000_000 {
                        took * 1000
                    } else {
                        took
                    }
            {
                *here = score;
            }
        }
        members.sort_by(|(name, score), (other, than)| (score, name).cmp(&(than, other)));
        let value = Content::Sorted(members);
        self.set(name, Some(Entry { value, expires }));
    }

    /// Sets the times in a hash to those there, if they differ by less than the step took.
    fn follow_times(&mut self, name: &str, found: &Value, before: i64, took: i64) {
        let entry = self.spec.keys().get(&key(name), before / 1000).cloned();
        let Some(Entry {
            value: Content::Hash(mut fields),
            expires,
        }) = entry
        else {
            return;
        };
        for (field, there) in values(found) {
            let mut here = fields.iter_mut();
            let Some((_, here)) = here.find(|(name, _)| *name == field.as_bytes()) else {
                continue;
            };
            let (Some(one), Some(other)) = (time_in(here), time_in(there.as_bytes())) else {
                continue;
            };
            let is_near = (one.1 - other.1).abs() <= took
                && (one.0.unwrap_or(0) - other.0.unwrap_or(0)).abs() <= took * 1000;
            if is_near {
                *here = there.into_bytes();
            }
        }
        let value = Content::Hash(fields);
        self.set(name, Some(Entry { value, expires }));
    }

    fn compare_messages(&mut self) -> Result<(), Ended> {
        // Answers come in order, so what was heard comes before this one.
        let mut next = self.listener.say(&["PING"]);
        loop {
            let text = format!("{next:?}");
            if text.to_ascii_lowercase().contains("pong") {
                break;
            }
            if text.contains("'message'") || text.contains("\"message\"") {
                self.heard[0].push(text);
            }
            next = self.listener.next();
        }
        let [real, spec] = self.heard.clone().map(|heard| heard.join(", "));
        if real == spec {
            return Ok(());
        }
        let step = "the end: messages".to_owned();
        Err(Ended::Differs(Difference { step, real, spec }))
    }

    fn set(&mut self, name: &str, entry: Option<Entry>) {
        self.spec.keys().put(key(name), entry, 0);
    }

    fn replication_id(&mut self) -> String {
        let info: String =
            redis::from_redis_value(self.admin.say(&["INFO", "replication"])).unwrap();
        let (_, rest) = info.split_once("master_replid:").expect("an id");
        rest[..40].to_owned()
    }
}

impl Sent {
    fn request(&self, words: [&str; 2], history: &str) -> Vec<Vec<u8>> {
        let mut request = request(&words);
        request.push(self.names.len().to_string().into_bytes());
        request.extend(self.names.iter().map(|name| name.as_bytes().to_vec()));
        request.extend(self.args.iter().map(|given| match given {
            Given::Text(text) => text.clone().into_bytes(),
            Given::Expiry(at) => at.to_string().into_bytes(),
            Given::History(true) => history.as_bytes().to_vec(),
            Given::History(false) => "f".repeat(40).into_bytes(),
        }));
        request.push(self.number.to_string().into_bytes());
        request
    }

    fn describe(&self, trouble: &Trouble) -> String {
        let request = self.request(["", ""], "<its id>");
        let words: Vec<_> = request[3..]
            .iter()
            .map(|it| String::from_utf8_lossy(it))
            .collect();
        format!("{} {} ({trouble:?})", self.script, words.join(" "))
    }
}

fn with_hash(text: &str) -> (String, String) {
    (text.to_owned(), scripts::hash(text.as_bytes()))
}

fn key(name: &str) -> (u32, Vec<u8>) {
    (0, name.as_bytes().to_vec())
}

/// The channel of a lock; that of one that waits on a condition goes by its own name.
fn channel(name: &str) -> String {
    match name.contains('{') {
        _ if name.starts_with("redlatch_condition:") => name.to_owned(),
        true => format!("redisson_lock__channel:{name}"),
        false => format!("redisson_lock__channel:{{{name}}}"),
    }
}

fn micros(time: &Value) -> i64 {
    let parts: (i64, i64) = redis::from_redis_value_ref(time).unwrap();
    parts.0 * 1_000_000 + parts.1
}
