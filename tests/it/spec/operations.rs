//! Drawn sequences of operations on a few locks.

mod fair;

use fastrand::Rng;

/// The locks; one has its hash tag in its name.
pub(super) const NAMES: [&str; 3] = ["orders", "{shop}:orders", "stock"];

/// The keys that are looked at: the locks, their last fencing tokens, the answers to two requests of each
/// counter, the owners of permits, the time keys of read-write locks, those who wait on conditions, and the queues of fair locks.
pub(super) const KEYS: [&str; 54] = [
    NAMES[0],
    NAMES[1],
    NAMES[2],
    "redisson_lock_token:{orders}",
    "redisson_lock_token:{shop}:orders",
    "redisson_lock_token:{stock}",
    "redlatch_once:{orders}:c:1:1",
    "redlatch_once:{orders}:c:1:2",
    "redlatch_once:{shop}:orders:c:1:1",
    "redlatch_once:{shop}:orders:c:1:2",
    "redlatch_once:{stock}:c:1:1",
    "redlatch_once:{stock}:c:1:2",
    "{orders}:timeout",
    "{shop}:orders:timeout",
    "{stock}:timeout",
    "redlatch_sc:{orders}",
    "redlatch_sc:{shop}:orders",
    "redlatch_sc:{stock}",
    "{orders}:c:1:7:rwlock_timeout:1",
    "{orders}:c:2:8:rwlock_timeout:1",
    "{orders}:r:41:rwlock_timeout:1",
    "{orders}:r:41:rwlock_timeout:2",
    "{orders}:c:1:9:write:rwlock_timeout:1",
    "{orders}:c:2:10:write:rwlock_timeout:1",
    "{shop}:orders:c:1:7:rwlock_timeout:1",
    "{shop}:orders:c:2:8:rwlock_timeout:1",
    "{shop}:orders:r:41:rwlock_timeout:1",
    "{shop}:orders:r:41:rwlock_timeout:2",
    "{shop}:orders:c:1:9:write:rwlock_timeout:1",
    "{shop}:orders:c:2:10:write:rwlock_timeout:1",
    "{stock}:c:1:7:rwlock_timeout:1",
    "{stock}:c:2:8:rwlock_timeout:1",
    "{stock}:r:41:rwlock_timeout:1",
    "{stock}:r:41:rwlock_timeout:2",
    "{stock}:c:1:9:write:rwlock_timeout:1",
    "{stock}:c:2:10:write:rwlock_timeout:1",
    "redlatch_rw:{orders}",
    "redlatch_rw:{shop}:orders",
    "redlatch_rw:{stock}",
    "redlatch_condition:{orders}:c:waiting",
    "redlatch_condition:{orders}:c:due",
    "redlatch_condition:{shop}:orders:c:waiting",
    "redlatch_condition:{shop}:orders:c:due",
    "redlatch_condition:{stock}:c:waiting",
    "redlatch_condition:{stock}:c:due",
    "redisson_lock_queue:{orders}",
    "redisson_lock_queue:{shop}:orders",
    "redisson_lock_queue:{stock}",
    "redisson_lock_timeout:{orders}",
    "redisson_lock_timeout:{shop}:orders",
    "redisson_lock_timeout:{stock}",
    "redlatch_fair:{orders}",
    "redlatch_fair:{shop}:orders",
    "redlatch_fair:{stock}",
];

/// The first key of the ids of permits, that of the owners of permits, that of the time keys of holds of a read-write lock,
/// and that of the queues of fair locks.
const IDS_AT: usize = 12;
const OWNERS_AT: usize = 15;
const TIMES_AT: usize = 18;
const QUEUES_AT: usize = 45;

/// For how long waiters for fair locks count as alive behind one another, in ms.
pub(super) const PATIENCE: [i64; 2] = [7130, 60_370];

/// The first key of the notes on those who wait for a read-write lock, and of those who wait on a condition.
const NOTES_AT: usize = 36;
const PLACES_AT: usize = 39;

/// The holds of read-write locks, and where the time key of each stands. The third one is Redisson's, and has a second one.
const SIDES: [(&str, usize); 5] = [
    ("c:1:7", 0),
    ("c:2:8", 1),
    ("r:41", 2),
    ("c:1:9:write", 4),
    ("c:2:10:write", 5),
];

/// The time key at this place of a lock.
fn time_key(name: &str, at: usize) -> &'static str {
    let place = NAMES.iter().position(|it| *it == name);
    KEYS[TIMES_AT + 6 * place.expect("a lock") + at]
}

/// The key of the last fencing token of a lock.
fn counter_of(name: &str) -> &'static str {
    let place = NAMES.iter().position(|it| *it == name);
    KEYS[NAMES.len() + place.expect("a lock")]
}

/// Fencing tokens: none, some before this time, some after it, and the last ones.
const TOKENS: [&str; 5] = [
    "0",
    "41",
    "1795296225925757",
    "4000000000000000",
    "9007199254740990",
];

/// The owners of permits.
const OWNERS: [&str; 4] = ["1*c:1:7", "1*c:2:8", "2*c:1:9", "3*c:3:1"];

/// Permits with ids, whose bytes are letters.
const IDS: [&str; 4] = [
    "61616161616161616161616161616161",
    "62626262626262626262626262626262",
    "6161616161616161616161616161616162626262626262626262626262626262",
    "636363636363636363636363636363636161616161616161616161616161616164646464646464646464646464646464",
];

/// The visitors, the tokens at the end.
const VISITORS: [&str; 6] = [
    "4b0b8e3c-0000-4000-8000-000000000001:1:1",
    "4b0b8e3c-0000-4000-8000-000000000001:1:2",
    "c:2:1",
    // As Redisson has them.
    "0b6f7a52-0000-4000-8000-000000000002:41",
    "tokenA",
    "tokenB",
];

const LEASES: [&str; 6] = ["1000", "3000", "30000", "60000", "0", "abc"];

/// One step of a sequence.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A request of the library, in a server that has this trouble just then.
    Call(Call, Trouble),
    /// The request that was sent so many calls before comes once more.
    Again(usize),
    /// Somebody else puts this in the place of a lock.
    Put(&'static str, Thing),
    /// Somebody takes a key away.
    Delete(&'static str),
    /// Somebody takes the end of a key away.
    Persist(&'static str),
    /// So many ms pass.
    Pass(i64),
    /// Somebody listens for the messages of a lock, or for those of one that waits, or does not any more.
    Listen(&'static str, &'static str, bool),
    /// The server forgets all scripts.
    Forget,
}

/// A request: the script, its locks, and its arguments without what only the moment gives.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: &'static str,
    pub(super) names: Vec<&'static str>,
    pub(super) args: Vec<Arg>,
}

#[derive(Clone, Debug)]
pub(super) enum Arg {
    Text(String),
    /// The channel of a lock.
    Channel(&'static str),
    /// The server time after which it is refused, so many ms from now.
    Expiry(i64),
    /// The replication id of the server, or another one.
    History(bool),
}

/// What a server refuses to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Nothing,
    /// It has no memory left.
    Full,
    /// It has too few replicas to take writes.
    Alone,
    /// The user may not run these commands.
    Denied(Vec<&'static str>),
}

#[derive(Clone, Debug)]
pub(super) enum Thing {
    Text(String),
    /// The time key of a hold.
    Time(i64),
    List,
    /// Those who wait for a fair lock.
    Line(Vec<&'static str>),
    /// In how many ms each of them counts as dead.
    Times(Vec<(&'static str, i64)>),
    /// A hash, and when it ends.
    Hash(Vec<(String, String)>, Option<i64>),
}

/// The commands that scripts call.
const COMMANDS: [&str; 26] = [
    "hincrby",
    "hgetall",
    "incrby",
    "zadd",
    "zcount",
    "zrange",
    "zrangebyscore",
    "zrem",
    "zscore",
    "decrby",
    "del",
    "exists",
    "get",
    "hdel",
    "hexists",
    "hget",
    "hkeys",
    "hlen",
    "hset",
    "info",
    "pexpire",
    "pttl",
    "publish",
    "pubsub",
    "set",
    "time",
];

/// The sequence of this seed.
pub(super) fn draw(seed: u64) -> Vec<Op> {
    draw_of(seed, Of::All)
}

/// The same of calls for counters alone.
pub(super) fn draw_counts(seed: u64) -> Vec<Op> {
    draw_of(seed, Of::Counts)
}

/// The same of calls for read-write locks alone.
pub(super) fn draw_sides(seed: u64) -> Vec<Op> {
    draw_of(seed, Of::Sides)
}

/// The same of calls for conditions, and for the locks that they are of.
pub(super) fn draw_places(seed: u64) -> Vec<Op> {
    draw_of(seed, Of::Places)
}

/// The same of calls for fair locks alone.
pub(super) fn draw_fair(seed: u64) -> Vec<Op> {
    fair::draw(seed)
}

/// The locks that calls are drawn for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    Counts,
    Sides,
    Places,
}

fn draw_of(seed: u64, of: Of) -> Vec<Op> {
    let mut rng = Rng::with_seed(seed);
    // Few locks and few visitors, so that they meet.
    let few = Few {
        names: NAMES[..rng.usize(1..=NAMES.len())].to_vec(),
        visitors: match rng.u8(0..4) {
            0 => VISITORS[..2].to_vec(),
            1 => VISITORS[4..].to_vec(),
            _ => VISITORS.to_vec(),
        },
        has_trouble: rng.u8(0..3) == 0,
        of,
    };
    let length = rng.usize(1..40);
    (0..length).map(|_| few.op(&mut rng)).collect()
}

struct Few {
    names: Vec<&'static str>,
    visitors: Vec<&'static str>,
    has_trouble: bool,
    of: Of,
}

fn one<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())].clone()
}

impl Few {
    fn op(&self, rng: &mut Rng) -> Op {
        let name = one(rng, &self.names);
        match rng.u8(0..100) {
            0..68 => Op::Call(self.call(rng, name), self.trouble(rng)),
            68..78 => Op::Again(rng.usize(1..6)),
            78..83 if self.of == Of::Sides && rng.u8(0..4) > 0 => Op::Put(name, hash_of_sides(rng)),
            78..83 if self.of != Of::Places => Op::Put(name, self.thing(rng)),
            83 if self.of == Of::Sides => {
                let key = time_key(name, rng.usize(..6));
                Op::Put(key, Thing::Time(one(rng, &[1000, 30_000])))
            }
            84 if self.of == Of::Sides => Op::Delete(time_key(name, rng.usize(..6))),
            78..83 if self.of == Of::Places => Op::Put(
                name,
                Thing::Hash(
                    vec![(one(rng, &VISITORS[..4]).to_owned(), "1".to_owned())],
                    Some(90_000),
                ),
            ),
            83 if self.of == Of::Places => Op::Put(places_of(name)[rng.usize(..2)], Thing::List),
            84 | 85 if self.of == Of::Places => Op::Delete(places_of(name)[rng.usize(..2)]),
            92..98 if self.of == Of::Places => {
                let channel = format!("{}:{}", base_of(name), one(rng, &TICKETS));
                Op::Listen(channel.leak(), "", rng.u8(0..4) > 0)
            }
            83 => Op::Put(counter_of(name), token(rng)),
            84 => Op::Delete(one(rng, &[name, counter_of(name)])),
            85 => Op::Persist(name),
            86..92 => Op::Pass(one(rng, &[700, 2000, 20_000, 90_000])),
            92..98 => Op::Listen(name, "", rng.u8(0..3) > 0),
            _ => Op::Forget,
        }
    }

    fn call(&self, rng: &mut Rng, name: &'static str) -> Call {
        let (visitor, other) = (one(rng, &self.visitors), one(rng, &self.visitors));
        // Mostly the scripts of its kind.
        let is_token = visitor.contains(':') == (rng.u8(0..12) == 0);
        let text = |text: &str| Arg::Text(text.to_owned());
        let lease = match rng.u8(0..20) {
            0 => one(rng, &LEASES[4..]),
            _ => one(rng, &LEASES[..4]),
        };
        let expiry = Arg::Expiry(if rng.u8(0..8) == 0 { -10_000 } else { 5000 });
        match self.of {
            Of::Counts if rng.u8(0..3) == 0 => return self.count(rng, name, expiry),
            Of::Counts if rng.bool() => return self.permits(rng, name, expiry),
            Of::Counts => return self.permit_ids(rng, name, expiry),
            Of::Sides => return sides(rng, name, expiry),
            Of::Places if rng.u8(0..4) > 0 => return places(rng, name, expiry),
            Of::Places => {
                let visitor = text(one(rng, &VISITORS[..3]));
                return match rng.bool() {
                    true => Call {
                        script: "acquire",
                        names: vec![name],
                        args: vec![visitor, text("60000"), text("0"), text("1"), expiry],
                    },
                    false => Call {
                        script: "release",
                        names: vec![name],
                        args: vec![visitor, Arg::Channel(name)],
                    },
                };
            }
            Of::All => {}
        }
        let channel = Arg::Channel(name);
        let told = match rng.u8(0..6) {
            0 => text(""),
            _ => channel.clone(),
        };
        let count = rng.u8(0..4);
        let (known, wanted) = match rng.u8(0..8) {
            0 => (count, rng.u8(0..4)),
            1..4 => (0, 1),
            _ => (count, count + 1),
        };
        let counts = [known, wanted].map(|count| text(&count.to_string()));
        let [known, wanted] = counts;
        let (script, args) = match rng.u8(0..22) {
            0..5 => {
                let mut args = vec![text(visitor), text(lease), known, wanted, expiry];
                if rng.u8(0..6) == 0 {
                    args.push(Arg::History(rng.u8(0..3) > 0));
                }
                ("acquire", args)
            }
            5..8 => ("release", vec![text(visitor), told]),
            8 => ("withdraw", vec![text(visitor), channel]),
            9 => ("force_release", vec![channel, expiry]),
            10 => ("inspect", vec![text(one(rng, &[visitor, ""]))]),
            11 | 12 => {
                let args = vec![text(visitor), text(other), text(lease), channel, expiry];
                ("transfer", args)
            }
            13 => (
                "release_level",
                vec![text(visitor), text(lease), wanted, known, expiry],
            ),
            14 => return self.renewal(rng, expiry),
            15 if rng.bool() => return self.count(rng, name, expiry),
            15 => return places(rng, name, expiry),
            16 => return self.permits(rng, name, expiry),
            17 => return self.permit_ids(rng, name, expiry),
            18 | 19 => return sides(rng, name, expiry),
            20 | 21 => return self.guarded(rng, name, visitor, expiry),
            _ => {
                let kind = match is_token {
                    true => "token",
                    false => one(
                        rng,
                        &["", "fenced", "latch", "permits", "read", "condition"],
                    ),
                };
                let args = vec![channel, text(kind), text(counter_of(name))];
                ("rights", args)
            }
        };
        let (mut names, mut args) = (vec![name], args);
        let script = match script {
            script @ ("release_level" | "rights") => script,
            script if is_token => script_in("token", script),
            script @ ("acquire" | "transfer") if rng.u8(0..3) == 0 => {
                names.push(counter_of(name));
                let floor = match rng.u8(0..4) {
                    0 => one(rng, &TOKENS),
                    _ => TOKENS[0],
                };
                // A fenced lock casts no votes.
                args.retain(|arg| !matches!(arg, Arg::History(_)));
                args.insert(args.len() - 1, text(floor));
                script_in("fenced", script)
            }
            script => script,
        };
        Call {
            script,
            names,
            args,
        }
    }

    fn renewal(&self, rng: &mut Rng, expiry: Arg) -> Call {
        let mut call = Call {
            script: "renew",
            names: Vec::new(),
            args: vec![expiry],
        };
        for _ in 0..rng.usize(1..4) {
            call.names.push(one(rng, &self.names));
            call.args
                .push(Arg::Text(one(rng, &self.visitors).to_owned()));
            call.args.push(Arg::Text(one(rng, &LEASES[..4]).to_owned()));
        }
        call
    }

    fn count(&self, rng: &mut Rng, name: &'static str, expiry: Arg) -> Call {
        let place = NAMES.iter().position(|it| *it == name).expect("a lock");
        let once = KEYS[2 * (NAMES.len() + place) + rng.usize(..2)];
        let text = |text: &str| Arg::Text(text.to_owned());
        let step = one(rng, &["down", "down", "set", "get", "delete"]);
        Call {
            script: "latch/count",
            names: match step {
                "get" => vec![name],
                _ => vec![name, once],
            },
            args: vec![
                text(step),
                text(one(rng, &["1", "2", "7"])),
                Arg::Channel(name),
                text(one(rng, &["3000", "30000"])),
                expiry,
            ],
        }
    }

    fn permits(&self, rng: &mut Rng, name: &'static str, expiry: Arg) -> Call {
        let place = NAMES.iter().position(|it| *it == name).expect("a lock");
        let owners = KEYS[OWNERS_AT + place];
        let text = |text: &str| Arg::Text(text.to_owned());
        let (owner, channel) = (text(one(rng, &OWNERS)), Arg::Channel(name));
        let lease = text(one(rng, &LEASES[..4]));
        let names = vec![name, owners];
        let (script, args) = match rng.u8(0..10) {
            0..4 => ("permits/acquire", vec![owner, lease, channel, expiry]),
            4 | 5 => ("permits/release", vec![owner, channel]),
            6 => ("permits/withdraw", vec![owner, channel]),
            7 => ("permits/renew", vec![owner, lease, expiry]),
            _ => {
                let steps = [
                    "set",
                    "set",
                    "add",
                    "add_if_there",
                    "drain",
                    "get",
                    "delete",
                    "forget",
                ];
                let once = KEYS[2 * (NAMES.len() + place) + rng.usize(..2)];
                let amount = one(rng, &["1", "2", "5", "-2", "2147483647"]);
                let step = one(rng, &steps);
                let args = vec![
                    text(step),
                    text(amount),
                    channel,
                    text(one(rng, &["3000", "30000"])),
                    text(one(rng, &["0", "0", "60350"])),
                    owner,
                    expiry,
                ];
                return Call {
                    script: "permits/count",
                    names: match step {
                        "get" => vec![name, owners],
                        _ => vec![name, once, owners],
                    },
                    args,
                };
            }
        };
        Call {
            script,
            names,
            args,
        }
    }

    fn permit_ids(&self, rng: &mut Rng, name: &'static str, expiry: Arg) -> Call {
        let place = NAMES.iter().position(|it| *it == name).expect("a lock");
        let taken = KEYS[IDS_AT + place];
        let text = |text: &str| Arg::Text(text.to_owned());
        let (ids, channel) = (text(one(rng, &IDS)), Arg::Channel(name));
        let lease = text(one(
            rng,
            &["1000", "3000", "30000", "60000", "922337203685477"],
        ));
        let (script, args) = match rng.u8(0..10) {
            0..3 => ("permit_ids/acquire", vec![ids, lease, channel, expiry]),
            3 | 4 => ("permit_ids/release", vec![ids, channel]),
            5 => ("permit_ids/withdraw", vec![ids, channel]),
            6 => ("permit_ids/renew", vec![ids, lease, expiry]),
            _ => {
                let steps = [
                    "set",
                    "set",
                    "replace",
                    "add",
                    "get",
                    "taken",
                    "lease",
                    "delete",
                    "give_back",
                    "set_lease",
                ];
                let step = one(rng, &steps);
                let amount = match step {
                    "set_lease" => one(rng, &["3000", "60000", "922337203685477"]),
                    _ => one(rng, &["1", "2", "5", "-2", "2147483647"]),
                };
                let once = KEYS[2 * (NAMES.len() + place) + rng.usize(..2)];
                let args = vec![
                    text(step),
                    text(amount),
                    channel,
                    text(one(rng, &["3000", "30000"])),
                    text(one(rng, &["0", "0", "60350"])),
                    text(one(rng, &IDS[..2])),
                    expiry,
                ];
                return Call {
                    script: "permit_ids/count",
                    names: match step {
                        "get" | "taken" | "lease" => vec![name, taken],
                        _ => vec![name, once, taken],
                    },
                    args,
                };
            }
        };
        Call {
            script,
            names: vec![name, taken],
            args,
        }
    }

    /// A batch under a hold, or by a fence that is kept in the place of a lock.
    fn guarded(&self, rng: &mut Rng, name: &'static str, visitor: &str, expiry: Arg) -> Call {
        let kind = match rng.u8(0..12) {
            0..3 => "fence",
            3 => "token",
            _ if visitor.contains(':') => "",
            _ => "token",
        };
        let check = match kind {
            "fence" => rng.u8(0..30).to_string(),
            _ => visitor.to_owned(),
        };
        let mut names = vec![name];
        let mut args = vec![check, kind.to_owned()];
        for _ in 0..rng.u8(0..4) {
            // Mostly data that is no lock.
            let data = if rng.u8(0..6) == 0 {
                name
            } else {
                one(rng, &NAMES)
            };
            let number = one(rng, &["1", "-7", "70000", "many"]);
            let words: &[&str] = match rng.u8(0..12) {
                0 | 1 => &["GET", data],
                2 | 3 => &["SET", data, number],
                4 | 5 => &["incrby", data, number],
                6 => &["DEL", data],
                7 => &["HSET", data, visitor, number],
                8 => &["HGET", data, visitor],
                9 => &["PEXPIRE", data, one(rng, &["30000", "60000", "many"])],
                10 => &["SET", data],
                _ => &["NOTHING"],
            };
            if words.len() > 1 {
                names.push(data);
            }
            args.push(words.len().to_string());
            args.extend(words.iter().map(ToString::to_string));
        }
        Call {
            script: "guarded",
            names,
            args: args.into_iter().map(Arg::Text).chain([expiry]).collect(),
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

    fn thing(&self, rng: &mut Rng) -> Thing {
        let visitor = one(rng, &self.visitors);
        let end = one(rng, &[None, Some(1000), Some(30_000)]);
        let hash = |fields: &[(&str, &str)]| {
            let fields = fields.iter();
            let fields = fields.map(|(field, text)| ((*field).to_owned(), (*text).to_owned()));
            Thing::Hash(fields.collect(), end)
        };
        let long = "x".repeat(300);
        match rng.u8(0..20) {
            0 => Thing::List,
            18 | 19 => Thing::Text(one(rng, &["0", "1", "-3", "2147483650", "1x"]).to_owned()),
            1 => Thing::Text(visitor.to_owned()),
            2 => Thing::Text(one(rng, &["", &"t".repeat(200)]).to_owned()),
            // As Redisson leaves a lock, entered up to five times.
            3..6 => hash(&[(VISITORS[3], &rng.u8(1..6).to_string())]),
            6 => hash(&[("a", "1"), ("b", "2")]),
            7 => hash(&[("field", "1")]),
            8 => hash(&[(visitor, "many")]),
            9 => hash(&[(visitor, "")]),
            10 => hash(&[(&long, "1")]),
            11 => hash(&[(&format!("u:7:{long}"), "1")]),
            12 => hash(&[(
                &format!("{long}:7"),
                "7777777777777777777777777777777777777777",
            )]),
            // As Redisson's lock for readers and writers.
            13..16 => hash(&[(visitor, "1"), ("mode", "write")]),
            16 => hash(&[(visitor, &"7".repeat(40))]),
            _ => hash(&[(
                one(
                    rng,
                    &[":1", "a:1", "a:1:", "a:1:b", "a::1", "a:1x", "a:b:2"],
                ),
                "1",
            )]),
        }
    }
}

/// A call for one of the sides of a read-write lock.
fn sides(rng: &mut Rng, name: &'static str, expiry: Arg) -> Call {
    let text = |text: &str| Arg::Text(text.to_owned());
    let (side, at) = one(rng, &SIDES);
    let is_writer = side.ends_with("write");
    let place = NAMES.iter().position(|it| *it == name).expect("a lock");
    let notes = KEYS[NOTES_AT + place];
    let mut names = vec![name, time_key(name, at)];
    let (visitor, channel) = (text(side), Arg::Channel(name));
    let lease = text(one(rng, &LEASES[..4]));
    let count = rng.u8(0..3);
    let counts = [count, count + 1].map(|count| text(&count.to_string()));
    let [known, wanted] = counts;
    let mode = text(one(rng, &["read", "write"]));
    let (script, args) = match rng.u8(0..20) {
        0..9 if is_writer => {
            names.push(notes);
            let waits = text(one(rng, &["-2", "-1", "0", "3000", "3000", "3000"]));
            (
                "rw/write",
                vec![visitor, lease, known, wanted, waits, expiry],
            )
        }
        0..9 => {
            let inside = text(one(rng, &["", SIDES[3].0, SIDES[3].0, SIDES[4].0]));
            names.push(notes);
            let memo = text(one(rng, &["", "", "0", "1", "1", "2", "3", "-", "*"]));
            let need = text(one(rng, &["0", "20", "400"]));
            let args = vec![visitor, lease, known, wanted, inside, memo, need, expiry];
            ("rw/read", args)
        }
        9..13 => {
            names.push(notes);
            ("rw/release", vec![visitor, channel])
        }
        13 => {
            names.push(notes);
            ("rw/withdraw", vec![visitor, channel])
        }
        14 | 15 => ("rw/renew", vec![visitor, lease, expiry]),
        16 | 17 => (
            "rw/release_level",
            vec![visitor, lease, wanted, known, expiry],
        ),
        18 => ("rw/inspect", vec![one(rng, &[visitor, text("")]), mode]),
        _ => {
            names = vec![name, notes];
            ("rw/force_release", vec![channel, mode, expiry])
        }
    };
    Call {
        script,
        names,
        args,
    }
}

/// The places of those who wait on a condition.
const TICKETS: [&str; 3] = ["c:1:20", "c:2:21", "c:3:22"];

/// The sets of those who wait on a condition of a lock.
fn places_of(name: &str) -> [&'static str; 2] {
    let place = NAMES.iter().position(|it| *it == name).expect("a lock");
    [0, 1].map(|set| KEYS[PLACES_AT + 2 * place + set])
}

/// The beginning of their channels.
fn base_of(name: &str) -> &'static str {
    let [waiting, _] = places_of(name);
    waiting.strip_suffix(":waiting").expect("a set of places")
}

/// A call of one that waits on a condition, or signals it.
fn places(rng: &mut Rng, name: &'static str, expiry: Arg) -> Call {
    let text = |text: &str| Arg::Text(text.to_owned());
    let hold = text(one(rng, &VISITORS[..3]));
    let [waiting, due] = places_of(name);
    let names = vec![name, waiting, due];
    let base = text(base_of(name));
    if rng.u8(0..4) == 0 {
        let amount = text(one(rng, &["1", "1", "2", "3"]));
        return Call {
            script: "condition/signal",
            names,
            args: vec![hold, amount, base, expiry],
        };
    }
    let steps = [
        "enlist", "enlist", "enlist", "look", "look", "look", "leave", "drop", "pass",
    ];
    let (ticket, step) = (text(one(rng, &TICKETS)), text(one(rng, &steps)));
    let life = text(one(rng, &["1500", "10000", "10000", "40000"]));
    Call {
        script: "condition/look",
        names,
        args: vec![ticket, step, hold, life, base, expiry],
    }
}

/// A read-write lock as it may stand there, with holds of Redisson's among others.
fn hash_of_sides(rng: &mut Rng) -> Thing {
    let mut fields = vec![(
        "mode".to_owned(),
        one(rng, &["read", "read", "write"]).to_owned(),
    )];
    for (side, _) in SIDES {
        if rng.u8(0..3) == 0 {
            fields.push((side.to_owned(), rng.u8(1..3).to_string()));
        }
    }
    Thing::Hash(fields, one(rng, &[Some(1000), Some(30_000)]))
}

/// What stands in the place of the last fencing token.
fn token(rng: &mut Rng) -> Thing {
    const NO_TOKENS: [&str; 6] = ["", "-1", "x", " 7", "7.5", "12345678901234567890"];
    match rng.u8(0..8) {
        0 => Thing::List,
        1 | 2 => Thing::Text(one(rng, &NO_TOKENS).to_owned()),
        _ => Thing::Text(one(rng, &TOKENS).to_owned()),
    }
}

fn script_in(folder: &str, script: &str) -> &'static str {
    let path = format!("{folder}/{script}");
    redlatch_spec::scripts::named(&path).expect("a script").name
}
