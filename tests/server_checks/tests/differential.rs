//! The in-process server and a real one reply alike: random sequences of commands and of calls of the library's
//! scripts, and small scripts about conversions, errors, the sandbox and the libraries.
//!
//! The clock of the real server is fixed, so that replies and TTLs are equal, not just close.
#![cfg(target_os = "linux")]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

mod calls;
#[path = "differential/real.rs"]
mod real;
#[path = "differential/versions.rs"]
mod versions;

use std::time::{Duration, Instant};

use calls::{Kind, NAMES, Refusal, Step, channel, decoded, kinds, listed, locks, one};
use fastrand::Rng;
use real::{Real, Wire};
use redlatch_server::{Config, Server};
use redlatch_server_checks::{Engine, Reply, shrunk};

/// 2026-11-22, in microseconds since 1970.
const NOW: i64 = 1_795_305_600_000_000;

/// The commands that may be forbidden.
const DENIED: [&str; 12] = [
    "hset", "hdel", "del", "pexpire", "set", "publish", "zadd", "zrem", "incrby", "lpop", "time",
    "hlen",
];

struct Both {
    real: Real,
    admin: Wire,
    user: Wire,
    engine: Engine,
    /// How many replies were compared.
    compared: u64,
}

fn words(line: &[&str]) -> Vec<Vec<u8>> {
    line.iter().map(|word| word.as_bytes().to_vec()).collect()
}

impl Both {
    fn start() -> Option<Both> {
        let real = Real::start()?;
        let (mut admin, mut user) = (real.wire(), real.wire());
        admin.ask(&[words(&[
            "ACL", "SETUSER", "visitor", "on", "nopass", "~*", "&*", "+@all",
        ])]);
        user.ask(&[words(&["AUTH", "visitor", "x"])]);
        Some(Both {
            real,
            admin,
            user,
            engine: Engine::new(),
            compared: 0,
        })
    }

    /// Runs a sequence on both, and returns the first difference.
    fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        let dump = words(&["EVAL", include_str!("differential/dump.lua"), "0"]);
        let mut now = NOW;
        self.real.set_clock(now);
        self.admin
            .ask(&[words(&["FLUSHALL"]), words(&["SCRIPT", "FLUSH"])]);
        let mut listener = self.real.wire();
        let mut here = Server::with_engine(Config::default(), now, self.engine.clone());
        (1..4).for_each(|connection| here.connect(connection));
        self.trouble(&Refusal::None, &mut here);
        let there_id = id_of(&self.admin.ask(&[words(&["INFO", "replication"])])[0]);
        let here_id = id_of(&ask(
            &mut here,
            now,
            1,
            &words(&["INFO", "replication"]),
            &mut Vec::new(),
        ));
        let mut heard = Vec::new();
        let mut sent: Vec<[[Vec<Vec<u8>>; 2]; 2]> = Vec::new();
        for step in steps {
            let (requests, trouble) = match step {
                Step::Call(call, _)
                    if call.script.is_empty() && self.real.version.differs_in(&call.args) =>
                {
                    continue;
                }
                Step::Call(call, trouble) => {
                    let number = sent.len() as i64 + 1;
                    let of = |id: &str| {
                        [false, true].map(|by_text| call.words(now, id, number, by_text))
                    };
                    sent.push([of(&there_id), of(&here_id)]);
                    (sent.last().cloned(), trouble)
                }
                Step::Again(back) => {
                    let before = sent.len().checked_sub(*back);
                    (before.map(|at| sent[at].clone()), &Refusal::None)
                }
                Step::Pass(ms) => {
                    now += ms * 1000;
                    let ends_at = |ms: i64| {
                        let mut keys = here.all_keys().iter();
                        keys.any(|(_, entry)| entry.expires == Some(ms))
                    };
                    // No key has exactly 0 ms left.
                    while self.real.version.ends_early() && ends_at(now / 1000) {
                        now += 1000;
                    }
                    self.real.set_clock(now);
                    continue;
                }
                Step::Listen(channel, on) => {
                    let line = words(&[if *on { "SUBSCRIBE" } else { "UNSUBSCRIBE" }, channel]);
                    heard.push(listener.ask(std::slice::from_ref(&line)));
                    ask(&mut here, now, 2, &line, &mut Vec::new());
                    continue;
                }
                Step::Forget | Step::Leaving(_) => {
                    self.admin.ask(&[words(&["SCRIPT", "FLUSH"])]);
                    here.forget_scripts();
                    continue;
                }
            };
            let Some([there, own]) = requests else {
                continue;
            };
            let is_script = matches!(&*there[0][0], b"EVAL" | b"EVALSHA");
            let trouble = match trouble {
                Refusal::Alone if is_script && !self.real.version.refuses_scripts() => {
                    &Refusal::None
                }
                trouble => trouble,
            };
            if *trouble != Refusal::None {
                self.trouble(trouble, &mut here);
            }
            let mut messages = Vec::new();
            for by in 0..2 {
                let found = self.user.ask(std::slice::from_ref(&there[by])).remove(0);
                let told = ask(&mut here, now, 1, &own[by], &mut messages);
                self.compared += 1;
                if !self.is_alike(&own[by][0], &found, &told) {
                    return Err(format!("{step:?}\n  redis {found:?}\n  here  {told:?}"));
                }
                if !format!("{found:?}").starts_with("-NOSCRIPT") {
                    break;
                }
            }
            if *trouble != Refusal::None {
                self.trouble(&Refusal::None, &mut here);
            }
            let found = self.admin.ask(std::slice::from_ref(&dump)).remove(0);
            let told = ask(&mut here, now, 3, &dump, &mut Vec::new());
            if !self.real.version.is_alike(&found, &told) {
                return Err(format!(
                    "the keys behind {step:?}\n  redis {found:?}\n  here  {told:?}"
                ));
            }
            let found = listener.ask(&[]);
            if found != messages {
                return Err(format!(
                    "the messages of {step:?}\n  redis {found:?}\n  here  {messages:?}"
                ));
            }
        }
        Ok(())
    }

    /// Makes both servers refuse something, or nothing.
    fn trouble(&mut self, trouble: &Refusal, here: &mut Server) {
        let memory = if *trouble == Refusal::Full { "1" } else { "0" };
        let replicas = if *trouble == Refusal::Alone { "1" } else { "0" };
        let mut rights = words(&["ACL", "SETUSER", "visitor", "+@all"]);
        here.deny(&[]);
        if let Refusal::Denied(command) = trouble {
            rights.push(format!("-{command}").into_bytes());
            here.deny(&[command]);
        }
        self.admin.ask(&[
            words(&["CONFIG", "SET", "maxmemory", memory]),
            words(&["CONFIG", "SET", "min-replicas-to-write", replicas]),
            rights,
        ]);
        here.set_full(*trouble == Refusal::Full);
        here.refuse_writes(
            (replicas == "1").then_some("NOREPLICAS Not enough good replicas to write."),
        );
    }

    /// Whether replies are equal, except for the order of sets and known differences.
    fn is_alike(&self, command: &[u8], there: &Reply, here: &Reply) -> bool {
        match (there, here) {
            (Reply::Array(there), Reply::Array(here)) if is_of_set(command) => {
                let sorted = |items: &[Reply]| {
                    let mut items: Vec<_> = items.iter().map(|it| format!("{it:?}")).collect();
                    items.sort();
                    items
                };
                sorted(there) == sorted(here)
            }
            (there, here) => self.real.version.is_alike(there, here),
        }
    }

    /// Runs a sequence, and panics with the fewest steps that still differ.
    fn check(&mut self, seed: u64, steps: Vec<Step>) {
        let Err(first) = self.run(&steps) else {
            return;
        };
        let before = steps.len();
        let steps = shrunk(steps, &mut |fewer| self.run(fewer).is_err());
        let flaw = self.run(&steps).err().unwrap_or(first);
        panic!(
            "seed {seed}, {} of {before} steps:\n{}{flaw}",
            steps.len(),
            listed(&steps)
        );
    }
}

fn is_of_set(command: &[u8]) -> bool {
    matches!(command, b"SMEMBERS" | b"SUNION" | b"SINTER" | b"SDIFF")
}

/// The reply of the in-process server; messages to other connections are added to `messages`.
fn ask(
    here: &mut Server,
    now: i64,
    connection: u64,
    request: &[Vec<u8>],
    messages: &mut Vec<Reply>,
) -> Reply {
    let mut reply = Reply::Nil;
    for delivery in here.command(now, connection, request) {
        let found = decoded(&delivery.bytes, &mut 0);
        match delivery.connection == connection {
            true => reply = found,
            false => messages.push(found),
        }
    }
    reply
}

fn id_of(info: &Reply) -> String {
    let text = format!("{info:?}");
    let id = text
        .split_once("master_replid:")
        .map_or("", |(_, rest)| rest);
    id.chars().take(40).collect()
}

/// Draws calls of a kind, and changes of its keys by other programs.
fn drawn(seed: u64, kind: &Kind, foreign: &Kind) -> Vec<Step> {
    let rng = &mut Rng::with_seed(seed);
    let (name, is_troubled) = (one(rng, &NAMES), rng.u8(..3) == 0);
    let step = |_| match rng.u8(..100) {
        0..70 => Step::Call(
            kind.odd_call(rng, name),
            match rng.u8(..12) {
                0 if is_troubled => Refusal::Full,
                1 if is_troubled => Refusal::Alone,
                2 | 3 if is_troubled => Refusal::Denied(one(rng, &DENIED)),
                _ => Refusal::None,
            },
        ),
        70..78 => Step::Call(foreign.call(rng, name), Refusal::None),
        78..84 => Step::Again(rng.usize(1..5)),
        84..94 => Step::Pass(one(rng, &[1, 700, 1600, 3000, 10_300, 31_000])),
        94 => Step::Forget,
        _ => {
            let own = format!("{}:{}", channel(name), one(rng, &kind.visitors));
            Step::Listen(one(rng, &[channel(name), own]), rng.u8(..4) > 0)
        }
    };
    (0..30).map(step).collect()
}

#[test]
fn commands_and_scripts_answer_as_redis_does() {
    let is_long = std::env::var_os("REDLATCH_LONG").is_some();
    let variable = |name: &str| std::env::var(name).ok()?.parse().ok();
    // SECONDS names another time, FIRST the first seed.
    let limit = variable("SECONDS").unwrap_or(if is_long { 600 } else { 12 });
    let limit = Duration::from_secs(limit);
    let Some(mut both) = Both::start() else {
        return;
    };
    let start = Instant::now();
    let others = kinds(include_str!("differential/commands.txt"));
    let [foreign, commands] = &others[..] else {
        panic!("two groups of commands");
    };
    let all: Vec<Kind> = locks();
    let first = variable("FIRST").unwrap_or(1);
    let mut seed = first;
    while start.elapsed() < limit {
        for kind in all.iter().chain([commands, commands]) {
            let steps = drawn(
                seed,
                kind,
                if kind.name == "commands" {
                    commands
                } else {
                    foreign
                },
            );
            both.check(seed, steps);
            seed += 1;
        }
    }
    let (sequences, version) = (seed - first, &both.real.version);
    println!(
        "{version}: {sequences} sequences from seed {first} on, {} replies",
        both.compared
    );
}

#[test]
fn small_scripts_answer_as_redis_does() {
    let Some(mut both) = Both::start() else {
        return;
    };
    let values = [
        "0",
        "-1.5",
        "2^63",
        "'x'",
        "true",
        "{1, 2}",
        "{ok = 'x'}",
        "{err = 'x'}",
        "nil",
        "-0.0",
        "0/0",
        "1/0",
    ];
    let wrappers = [
        "return V",
        "return {V, 1}",
        "return tostring(V)",
        "return type(V)",
        "return redis.pcall('SET', KEYS[1], V)",
        "return redis.call('ECHO', V)",
        "return redis.call('ZADD', KEYS[1], V, 'm')",
        "return {pcall(redis.call, 'INCRBY', KEYS[1], V)}",
        "error(tostring(V))",
        "return struct.pack('>i8', V)",
        "return bit.tobit(V)",
        "return redis.sha1hex(V)",
        "return redis.error_reply(V)",
    ];
    let drawn = wrappers
        .iter()
        .flat_map(|it| values.map(|value| it.replace('V', value)));
    // Table addresses differ in each run, C leaves conversions of out-of-range numbers undefined, and the messages
    // about `bit` arguments are those of another interface.
    let is_apart = |text: &String| {
        let is_number = |end: &str| text.ends_with(&format!("{end})"));
        text.contains("tostring({")
            || text.contains("struct.pack('>i8', ") && (is_number("0/0") || is_number("1/0"))
            || text.contains("bit.tobit(")
                && !["(0", "-1.5", "2^63", "-0.0", "0/0"]
                    .iter()
                    .any(|it| is_number(it))
    };
    let drawn = drawn.filter(|text| !is_apart(text));
    let lines = include_str!("differential/scripts.txt")
        .lines()
        .map(str::to_owned);
    let mut differences = Vec::new();
    let all: Vec<_> = lines
        .chain(drawn)
        .filter(|it| !both.real.version.is_apart(it))
        .collect();
    for text in all {
        let script = calls::Call {
            script: "",
            keys: Vec::new(),
            args: ["EVAL", &text, "2", "k", "j", "2", "3.7", "text"]
                .map(str::to_owned)
                .to_vec(),
        };
        if let Err(flaw) = both.run(&[Step::Call(script, Refusal::None)]) {
            let flaw = flaw.split_once("\n").map_or("", |(_, flaw)| flaw);
            differences.push(format!("{text}\n{flaw}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
