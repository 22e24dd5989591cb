//! The same for fair locks.

use fastrand::Rng;

use super::{Arg, Call, KEYS, LEASES, NAMES, Op, PATIENCE, QUEUES_AT, Thing, Trouble, one};

/// Those who wait, two of them Redisson's.
const WAITERS: [&str; 6] = [
    "4b0b8e3c-0000-4000-8000-000000000001:1:1",
    "4b0b8e3c-0000-4000-8000-000000000001:1:2",
    "c:2:1",
    "c:3:7",
    "0b6f7a52-0000-4000-8000-000000000002:41",
    "0b6f7a52-0000-4000-8000-000000000002:42",
];

/// The commands that the scripts call.
const COMMANDS: [&str; 26] = [
    "del", "exists", "hdel", "hexists", "hget", "hkeys", "hlen", "hset", "lindex", "llen", "lpop",
    "lpush", "lrange", "lrem", "pexpire", "pttl", "publish", "pubsub", "rpush", "time", "zadd",
    "zcard", "zincrby", "zrange", "zrem", "zscore",
];

/// The sequence of this seed: one lock, and few who want it.
pub(super) fn draw(seed: u64) -> Vec<Op> {
    let mut rng = Rng::with_seed(seed);
    let name = one(&mut rng, &NAMES);
    let waiters = match rng.u8(0..3) {
        0 => &WAITERS[..3],
        1 => &WAITERS[2..5],
        _ => &WAITERS[..],
    };
    let patience = one(&mut rng, &PATIENCE);
    let has_trouble = rng.u8(0..4) == 0;
    // All who wait listen in some sequences, and nobody in others.
    let listens = rng.u8(0..4);
    let mut ops = Vec::new();
    if listens > 0 {
        let heard = waiters.iter().filter(|_| listens > 1 || rng.bool());
        ops.extend(heard.map(|waiter| Op::Listen(name, waiter, true)));
    }
    let line = Line {
        name,
        waiters,
        patience,
        has_trouble,
    };
    ops.extend((0..rng.usize(4..40)).map(|_| line.op(&mut rng)));
    ops
}

struct Line {
    name: &'static str,
    waiters: &'static [&'static str],
    patience: i64,
    has_trouble: bool,
}

/// The keys of a fair lock beside its own: those who wait, their times, and the notes on those who do not come.
fn keys_of(name: &str) -> [&'static str; 3] {
    let place = NAMES.iter().position(|it| *it == name).expect("a lock");
    [0, 1, 2].map(|of| KEYS[QUEUES_AT + NAMES.len() * of + place])
}

impl Line {
    fn op(&self, rng: &mut Rng) -> Op {
        let [queue, times, absent] = keys_of(self.name);
        let waiter = one(rng, self.waiters);
        match rng.u8(0..100) {
            0..70 => Op::Call(self.call(rng), self.trouble(rng)),
            70..74 => Op::Again(rng.usize(1..6)),
            74..86 => Op::Pass(one(rng, &[700, 1700, 2000, 3700, 10_300, 20_000, 90_000])),
            86..91 => Op::Listen(self.name, waiter, rng.u8(0..3) > 0),
            91 => Op::Delete(one(rng, &[queue, times])),
            92 => Op::Put(queue, Thing::Line(self.some(rng))),
            93 => {
                let lefts = [-2000, 4000, 40_000, 300_000];
                let members = self.some(rng).into_iter();
                let timed = members.map(|waiter| (waiter, one(rng, &lefts)));
                Op::Put(times, Thing::Times(timed.collect()))
            }
            94 => Op::Put(
                one(rng, &[queue, times, absent]),
                one(rng, &[Thing::List, Thing::Text("x".into())]),
            ),
            95 => Op::Delete(one(rng, &[queue, times, absent, self.name])),
            96 => {
                let count = rng.u8(1..3).to_string();
                let hash = vec![(WAITERS[4].to_owned(), count)];
                Op::Put(
                    self.name,
                    Thing::Hash(hash, one(rng, &[None, Some(1000), Some(30_000)])),
                )
            }
            97 => Op::Put(self.name, Thing::Text("no lock".to_owned())),
            98 if rng.bool() => Op::Persist(self.name),
            98 => {
                // A note of a clock that was ahead.
                let noted = vec![(waiter.to_owned(), "9999999999999".to_owned())];
                Op::Put(absent, Thing::Hash(noted, Some(90_000)))
            }
            _ => Op::Forget,
        }
    }

    /// Some of them, and at least the first.
    fn some(&self, rng: &mut Rng) -> Vec<&'static str> {
        let (first, others) = self.waiters.split_at(1);
        let others = others.iter().filter(|_| rng.bool());
        first.iter().chain(others).copied().collect()
    }

    fn call(&self, rng: &mut Rng) -> Call {
        let [queue, times, absent] = keys_of(self.name);
        let text = |text: &str| Arg::Text(text.to_owned());
        let (visitor, channel) = (text(one(rng, self.waiters)), Arg::Channel(self.name));
        let expiry = Arg::Expiry(if rng.u8(0..12) == 0 { -10_000 } else { 5000 });
        let patience = text(&self.patience.to_string());
        let mut names = vec![self.name, queue, times];
        let (script, args) = match rng.u8(0..20) {
            0..13 => {
                names.push(absent);
                let known = if rng.u8(0..6) == 0 { rng.u8(1..3) } else { 0 };
                let args = vec![
                    visitor,
                    text(one(rng, &LEASES[..4])),
                    text(&known.to_string()),
                    text(&(known + 1).to_string()),
                    channel,
                    text(one(
                        rng,
                        &["join", "join", "join", "rejoin", "rejoin", "never"],
                    )),
                    patience,
                    text(one(rng, &["1", "1", "1", "0"])),
                    expiry,
                ];
                ("fair/acquire", args)
            }
            13..17 => {
                let told = if rng.u8(0..8) == 0 { text("") } else { channel };
                ("fair/release", vec![visitor, told])
            }
            17 | 18 => {
                names.push(absent);
                ("fair/withdraw", vec![visitor, channel, patience])
            }
            _ if rng.u8(0..3) == 0 => {
                names = vec![queue];
                ("fair/waiters", vec![])
            }
            _ if rng.u8(0..3) == 0 => {
                names.truncate(1);
                ("rights", vec![channel, text("fair"), text("")])
            }
            _ => ("fair/force_release", vec![channel, expiry]),
        };
        Call {
            script,
            names,
            args,
        }
    }

    fn trouble(&self, rng: &mut Rng) -> Trouble {
        match rng.u8(0..12) {
            _ if !self.has_trouble => Trouble::Nothing,
            0 => Trouble::Full,
            1 => Trouble::Alone,
            2 | 3 => Trouble::Denied((0..rng.u8(1..4)).map(|_| one(rng, &COMMANDS)).collect()),
            _ => Trouble::Nothing,
        }
    }
}
