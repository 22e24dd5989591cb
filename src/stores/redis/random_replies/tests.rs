//! Random replies for the tests of all code that reads replies: mutations of real replies, and random bytes.
//!
//! Each test reads the kept inputs in `tests/corpus`, then a number of random inputs. With `REDLATCH_LONG=1` a test runs for
//! ten minutes with new seeds. A failing test prints its seed. With this seed in `REDLATCH_SEED`, the next run reads the
//! failing input before all other random inputs.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use redis::Value;

use super::calls::{
    Acquire, Attempts, Count, ForceRelease, HandOff, Inspect, Operation, Release, ReleaseLevel,
    Resolve,
};
use super::*;
use crate::ground::claim::Kind;
use crate::ground::clock::BootInstant;
use crate::store::{CountOp, CountStep};

const DRAWS: u64 = 1_000;

const WAYS: u64 = 50;

const LONG: Duration = Duration::from_secs(600);

/// The time limit for reading one input on a busy machine.
const LONGEST: Duration = Duration::from_secs(10);

const PIECES: [&[u8]; 22] = [
    b"\r\n",
    b"\n",
    b"*",
    b"$",
    b":",
    b"+",
    b"-",
    b"*-1\r\n",
    b"$-1\r\n",
    b"*0\r\n",
    b"$0\r\n\r\n",
    b":0\r\n",
    b" ",
    b"/",
    b"@",
    b"%",
    b"[",
    b"]",
    b"?",
    b"#",
    b"\0",
    "\u{fffd}".as_bytes(),
];

const NUMBERS: [i64; 14] = [
    0,
    1,
    -1,
    -2,
    2,
    9,
    65_535,
    65_536,
    1 << 20,
    4_194_303,
    u32::MAX as i64,
    1_700_000_000_000,
    i64::MIN,
    i64::MAX,
];

thread_local! {
    /// If set, this input from `tests/corpus` replaces the next random input.
    static KEPT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An input, which is printed if its check panics.
struct Shown(String);

impl Drop for Shown {
    #[allow(
        clippy::print_stderr,
        reason = "it is for those who read of the failure"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = LAST.take();
            eprintln!("{} fails, with b\"{}\"", self.0, last.escape_ascii());
        }
    }
}

fn read_kept(folder: &str, mut check: impl FnMut(&mut Rng)) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = std::fs::read_dir(corpus.join(folder)).unwrap_or_else(|error| panic!("{error}"));
    let paths = files.map(|file| file.unwrap_or_else(|error| panic!("{error}")).path());
    let mut count = 0;
    for path in paths {
        count += 1;
        let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let shown = Shown(path.display().to_string());
        for way in 0..WAYS {
            KEPT.set(Some(input.clone()));
            check(&mut Rng::with_seed(way));
        }
        drop(shown);
    }
    KEPT.set(None);
    assert!(count >= 10, "{count} inputs in {folder}");
}

/// Runs `check` with the kept inputs in this folder of `tests/corpus`, then with random inputs.
pub(super) fn draws(folder: &str, mut check: impl FnMut(&mut Rng)) {
    read_kept(folder, &mut check);
    let variable = |name| std::env::var(name).ok();
    let is_long = variable("REDLATCH_LONG").is_some();
    let asked = variable("REDLATCH_SEED").and_then(|seed| seed.parse().ok());
    let since_epoch = || SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let first: u64 = asked.unwrap_or_else(|| match is_long {
        true => since_epoch().as_secs() << 32,
        false => 0,
    });
    let began = Instant::now();
    for seed in first.. {
        if seed - first >= DRAWS && !(is_long && began.elapsed() < LONG) {
            break;
        }
        let shown = Shown(format!("REDLATCH_SEED={seed}"));
        let at = Instant::now();
        check(&mut Rng::with_seed(seed));
        assert!(at.elapsed() < LONGEST, "it took {:?}", at.elapsed());
        drop(shown);
    }
}

/// Returns the kept input if there is one, else a mutated sample, sometimes random bytes.
pub(super) fn changed(draw: &mut Rng, samples: &[&[u8]]) -> Vec<u8> {
    let kept = KEPT.with_borrow(Clone::clone);
    let bytes = kept.unwrap_or_else(|| drawn(draw, samples));
    LAST.set(bytes.clone());
    bytes
}

fn drawn(draw: &mut Rng, samples: &[&[u8]]) -> Vec<u8> {
    if draw.u8(..16) == 0 {
        return (0..draw.usize(..100)).map(|_| draw.u8(..)).collect();
    }
    let sample = |draw: &mut Rng| draw.choice(samples).copied().unwrap_or_default();
    let mut bytes = sample(draw).to_vec();
    for _ in 0..draw.usize(1..=4) {
        let at = draw.usize(..=bytes.len());
        let end = (at + draw.usize(..=8)).min(bytes.len());
        match draw.u8(..8) {
            0 => {
                let byte = draw.u8(..);
                bytes.iter_mut().skip(at).take(1).for_each(|it| *it = byte);
            }
            1 => drop(bytes.drain(at..end)),
            2 | 3 => {
                let piece = draw.choice(PIECES).unwrap_or_default();
                let end = if draw.bool() { at } else { end };
                bytes.splice(at..end, piece.iter().copied());
            }
            4 => bytes.truncate(at),
            5 => {
                let again = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, again);
            }
            6 => {
                let other = sample(draw);
                let from = draw.usize(..=other.len());
                bytes.splice(at.., other.iter().skip(from).copied());
            }
            _ => {
                let behind = |from: usize, is_digit: bool| {
                    let rest = bytes.iter().skip(from);
                    let position = rest.map(u8::is_ascii_digit).position(|it| it == is_digit);
                    position.map_or(bytes.len(), |position| from + position)
                };
                let begin = behind(at, true);
                let end = behind(begin, false);
                let number = draw.choice(NUMBERS).unwrap_or_default().to_string();
                bytes.splice(begin..end, number.bytes());
            }
        }
    }
    bytes
}

pub(super) fn altered(draw: &mut Rng, samples: &[&[u8]]) -> Value {
    if let Some(kept) = KEPT.with_borrow(Clone::clone) {
        return redis::parse_redis_value(&kept).unwrap_or(Value::Nil);
    }
    let sample = draw.choice(samples).copied().unwrap_or_default();
    if draw.bool()
        && let Ok(value) = redis::parse_redis_value(&changed(draw, samples))
    {
        return value;
    }
    let mut value = redis::parse_redis_value(sample).unwrap_or(Value::Nil);
    alter(draw, &mut value);
    value
}

fn alter(draw: &mut Rng, value: &mut Value) {
    if draw.u8(..8) == 0 {
        *value = any(draw, 2);
        return;
    }
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(|item| alter(draw, item));
            let at = draw.usize(..=items.len());
            match draw.u8(..8) {
                0 => items.truncate(at),
                1 => items.insert(at, any(draw, 1)),
                2 if at < items.len() => drop(items.remove(at)),
                3 => items.extend(items.get(at).cloned()),
                _ => {}
            }
        }
        Value::Int(number) if draw.u8(..3) == 0 => {
            *number = draw.choice(NUMBERS).unwrap_or_default();
        }
        Value::BulkString(bytes) if draw.u8(..3) == 0 => *bytes = changed(draw, &[&*bytes]),
        _ => {}
    }
}

fn any(draw: &mut Rng, depth: u32) -> Value {
    match draw.u8(..8) {
        0 => Value::Nil,
        1 => Value::Okay,
        2 | 3 => Value::Int(draw.choice(NUMBERS).unwrap_or_default()),
        4 => Value::SimpleString("PONG".to_owned()),
        5 | 6 if depth > 0 => {
            let items = (0..draw.usize(..5)).map(|_| any(draw, depth - 1));
            Value::Array(items.collect())
        }
        _ => {
            let number = draw.choice(NUMBERS).unwrap_or_default().to_string();
            Value::BulkString(changed(draw, &[b"orders:1", number.as_bytes()]))
        }
    }
}

pub(super) fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

pub(super) fn weight(value: &Value) -> usize {
    let within = match value {
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::BulkString(bytes) => bytes.capacity(),
        Value::SimpleString(text) => text.capacity(),
        _ => 0,
    };
    size_of::<Value>() + within
}

pub(super) const ERRORS: [&[u8]; 12] = [
    b"-ERR unknown command\r\n",
    b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    b"-MOVED 3999 127.0.0.1:6381\r\n",
    b"-MOVED 3999 ::1:6381\r\n",
    b"-ASK 16383 ?:6381\r\n",
    b"-WRONGTYPE Operation against a key script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:25.\r\n",
    b"-ERR Error running script (call to f_6b1b): @user_script: 12: -NOPERM this user\r\n",
    b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
    b"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
    b"-ERR user_script:30: attempt to compare nil script: 6b1b, on @user_script:30.\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
];

const OF_SCRIPTS: [&[u8]; 10] = [
    b":30000\r\n",
    b":-1\r\n",
    b"*3\r\n:1\r\n:1790000000000\r\n:2\r\n",
    b"*4\r\n:0\r\n:1790000000000\r\n:29000\r\n$4\r\na:1:\r\n",
    b"*4\r\n:0\r\n:1790000000000\r\n:-1\r\n$0\r\n\r\n",
    b"*3\r\n:2\r\n:1790000000000\r\n$7\r\nb:2:3:4\r\n",
    b"*2\r\n:3\r\n:1790000000000\r\n",
    b"*3\r\n:4\r\n:1790000000000\r\n$1\r\n3\r\n",
    b"*2\r\n:1\r\n$9\r\n-ERR full\n\r\n",
    b"*3\r\n:1\r\n$1\r\n2\r\n:30000\r\n",
];

fn read(operation: impl Operation, redis: &Redis, reply: Result<&Value, &str>, attempts: u8) {
    let mut operation = operation;
    let mut sent = Attempts::new(Instant::now());
    if attempts > 0 {
        sent.sent_since = Some(BootInstant::now());
    }
    if attempts > 1 {
        sent.last_is_unanswered();
    }
    let reply = match reply {
        Ok(value) => Ok(value.clone()),
        Err(text) => Err(transport::CallError::Server(text.to_owned())),
    };
    let _ = operation.answer(redis, reply, &mut sent);
}

#[test]
fn random_replies_of_scripts_are_read() {
    let settings = super::tests::stub::settings();
    let redis =
        Redis::open("redis://127.0.0.1:1", &settings).unwrap_or_else(|error| panic!("{error}"));
    let name: Arc<str> = "orders".into();
    draws("scripts", |draw| {
        let kinds = [Kind::Reentrant, Kind::Token, Kind::Fenced];
        let kind = draw.choice(kinds).unwrap_or_default();
        let claim = |number| Claim {
            kind,
            name: Arc::clone(&name),
            visitor: VisitorId::new("a", 1, number),
            count: draw.clone().u32(..3),
            lease: Duration::from_secs(30),
            is_renewed: false,
            inside: None,
            queueing: Default::default(),
        };
        let (from, to) = (claim(1), claim(2));
        let lock = LockId {
            kind,
            name: Arc::clone(&name),
        };
        let value = altered(draw, &OF_SCRIPTS);
        let refused = changed(draw, &ERRORS);
        let refused = String::from_utf8_lossy(&refused);
        let reply = match draw.u8(..4) {
            0 => Err(&*refused),
            _ => Ok(&value),
        };
        let attempts = draw.u8(..3);
        let redis = &redis;
        match draw.u8(..8) {
            0 => read(Acquire::new(&from, 0), redis, reply, attempts),
            1 => {
                let (claim, is_quiet) = (&from, false);
                read(Release { claim, is_quiet }, redis, reply, attempts);
            }
            2 => read(ReleaseLevel::new(&from, 1, true), redis, reply, attempts),
            3 => {
                let (from, to, floor) = (&from, &to, 0);
                read(HandOff { from, to, floor }, redis, reply, attempts);
            }
            4 => read(Resolve(from.in_doubt(7)), redis, reply, attempts),
            5 => read(ForceRelease(&lock), redis, reply, attempts),
            6 => {
                let kind = draw.choice([Kind::Latch, Kind::Permits, Kind::PermitIds]);
                let counter = LockId {
                    kind: kind.unwrap_or_default(),
                    name: Arc::clone(&name),
                };
                let op = CountOp {
                    counter: &counter,
                    request: from.visitor.clone(),
                    permit: None,
                    step: CountStep::Add(draw.choice(NUMBERS).unwrap_or_default()),
                };
                let count = Count::new(&op, Instant::now());
                let count = count.unwrap_or_else(|error| panic!("{error}"));
                read(count, redis, reply, attempts);
            }
            _ => {
                let visitor = draw.bool().then_some(&from.visitor);
                let inspect = Inspect {
                    lock: &lock,
                    visitor,
                };
                read(inspect, redis, reply, attempts);
            }
        }
    });
}
