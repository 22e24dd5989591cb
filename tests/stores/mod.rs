//! The stores answer drawn sequences of operations alike, and as the scripts are specified.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answers;
mod reference;

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;

use crate::client::Client;
use crate::ground::claim::{Claim, ENDLESS, Kind, LockId, Queueing, VisitorId};
use crate::store::{CountStep, Store};
use crate::support::{RedisServer, is_long, ms};
use answers::{Answer, ask, is_alike};
use reference::{Reference, ids_of, owners_of, time_key_of};

/// No hold ends within so long of a step; a sequence that takes longer proves nothing, and is run again.
const MARGIN: u64 = 1500;

/// One operation on one of the locks of a sequence.
#[derive(Clone, Debug)]
enum Op {
    Acquire(Claim),
    Release(Claim, u32),
    HandOff(Claim, Claim),
    Renew(Vec<Claim>),
    Resolve(Claim),
    ForceRelease(LockId),
    Inspect(LockId, Option<VisitorId>),
    Count(LockId, VisitorId, CountStep, Option<VisitorId>),
    /// So many ms pass.
    Pass(u64),
}

/// The sequence of this seed, with names that only this run of it has.
fn draw(seed: u64, run: u64, place: &Place) -> Vec<Op> {
    let (kinds, leases) = (place.kinds, place.leases);
    let mut rng = Rng::with_seed(seed);
    // A queue is that of one kind.
    let least = if place.queues { 2 } else { 1 };
    let names: Vec<Arc<str>> = (0..rng.u8(least..3))
        .map(|n| format!("{run}-{n}").into())
        .collect();
    let visitors: Vec<(Kind, VisitorId)> = (1..rng.u64(3..6))
        .map(|hold| {
            let kind = kinds[rng.usize(..kinds.len())];
            (kind, kind.visitor("client", hold, hold))
        })
        .collect();
    let mut writers = vec![None];
    let of_writers = visitors.iter().filter(|(kind, _)| *kind == Kind::Write);
    writers.extend(of_writers.map(|(_, visitor)| Some(visitor.clone())));
    let claim = |rng: &mut Rng| {
        let (kind, visitor) = visitors[rng.usize(..visitors.len())].clone();
        Claim {
            kind,
            name: match place.queues {
                true => Arc::clone(&names[usize::from(kind == Kind::Fair)]),
                false => Arc::clone(&names[rng.usize(..names.len())]),
            },
            visitor,
            // A token lock is not entered twice.
            count: if kind == Kind::Token {
                0
            } else {
                rng.u32(0..4) / 2 * rng.u32(1..3)
            },
            lease: ms(leases[rng.usize(..leases.len())]),
            inside: writers[rng.usize(..writers.len())]
                .clone()
                .filter(|_| kind == Kind::Read),
            queueing: match place.queues {
                true => queueing(rng),
                false => Queueing::default(),
            },
        }
    };
    let counter = LockId {
        kind: Kind::Latch,
        name: format!("{run}-count").into(),
    };
    let semaphore = LockId {
        kind: Kind::Permits,
        name: format!("{run}-permits").into(),
    };
    let with_ids = LockId {
        kind: Kind::PermitIds,
        name: format!("{run}-ids").into(),
    };
    // Of one, two or three ids of few.
    let ids = |rng: &mut Rng| {
        let one = || VisitorId::of_field("61".repeat(16));
        let rest = ["62", "63", "64"].map(|id| id.repeat(16));
        let field = match rng.u8(0..5) {
            0 => one().as_str().to_owned(),
            at @ 1..4 => rest[usize::from(at) - 1].clone(),
            _ => rest[..2].concat(),
        };
        VisitorId::of_field(field)
    };
    let mut requests = 0;
    let mut op = |rng: &mut Rng| {
        let one = claim(rng);
        let id = LockId {
            kind: one.kind,
            name: Arc::clone(&one.name),
        };
        match rng.u8(0..25) {
            0..7 => Op::Acquire(one),
            7..11 => {
                let keep = if one.count > 1 && rng.bool() {
                    rng.u32(1..one.count)
                } else {
                    0
                };
                Op::Release(one, keep)
            }
            11 => {
                let other = claim(rng);
                // Within one lock and kind, to a visitor that has nothing.
                let to = Claim {
                    name: Arc::clone(&one.name),
                    ..other
                };
                let hands_off = one.kind.rules().hands_off;
                match hands_off && to.kind == one.kind && to.visitor != one.visitor {
                    true => Op::HandOff(one, to),
                    false => Op::Release(one, 0),
                }
            }
            12 | 13 => Op::Renew((0..rng.u8(1..4)).map(|_| claim(rng)).collect()),
            14 => Op::Resolve(one),
            15 => Op::ForceRelease(id),
            16 | 17 => Op::Inspect(id, rng.bool().then_some(one.visitor)),
            18 | 19 if place.counts => {
                requests += 1;
                let request = VisitorId::new("client", 0, requests);
                match rng.u8(0..3) {
                    0 => Op::Count(counter.clone(), request, step(rng), None),
                    1 => Op::Count(semaphore.clone(), request, step_of_permits(rng), None),
                    _ => {
                        let permit = ["61", "62"][rng.usize(..2)].repeat(16);
                        let permit = Some(VisitorId::of_field(permit));
                        Op::Count(with_ids.clone(), request, step_of_ids(rng), permit)
                    }
                }
            }
            20..23 if place.counts => {
                let permits = rng.u32(1..4);
                let (semaphore, visitor) = match rng.bool() {
                    true => (&with_ids, ids(rng)),
                    false => {
                        let visitor = VisitorId::new("client", 9, rng.u64(1..3));
                        (&semaphore, visitor.of_permits(permits))
                    }
                };
                let claim = Claim {
                    kind: semaphore.kind,
                    name: Arc::clone(&semaphore.name),
                    visitor,
                    count: 0,
                    lease: one.lease,
                    inside: None,
                    queueing: Default::default(),
                };
                match rng.u8(0..6) {
                    0..3 => Op::Acquire(claim),
                    3 => Op::Release(claim, 0),
                    4 => Op::Resolve(claim),
                    _ => Op::Renew(vec![claim]),
                }
            }
            _ => Op::Pass([2000, 20_000, 40_000][rng.usize(..3)]),
        }
    };
    (0..rng.usize(2..30)).map(|_| op(&mut rng)).collect()
}

fn waits(claim: &Claim) -> bool {
    matches!(claim.queueing, Queueing::Waits { .. })
}

fn queueing(rng: &mut Rng) -> Queueing {
    let memos = [None, None, Some("0"), Some("1"), Some("2"), Some("-")];
    match rng.u8(0..8) {
        0 => Queueing::Barges,
        1 => Queueing::Tries,
        _ => Queueing::Waits {
            need: ms([300, 500][rng.usize(..2)]),
            memo: memos[rng.usize(..memos.len())].map(Box::from),
            takes_place: rng.u8(0..4) > 0,
            had_place: rng.u8(0..4) == 0,
        },
    }
}

fn step(rng: &mut Rng) -> CountStep {
    match rng.u8(0..6) {
        0 => CountStep::Get,
        1 => CountStep::Delete,
        2 | 3 => CountStep::SetIfMissing(rng.u32(1..4), None),
        _ => CountStep::CountDown,
    }
}

fn step_of_permits(rng: &mut Rng) -> CountStep {
    let by = [1, 3, -2, i64::from(i32::MAX)][rng.usize(..4)];
    match rng.u8(0..12) {
        0 => CountStep::Get,
        1 => CountStep::Delete,
        2 => CountStep::Drain,
        3 => CountStep::AddIfThere(by),
        4 | 5 => CountStep::Add(by),
        // At no time does as much of it remain as of a lease.
        6 => CountStep::SetIfMissing(2, Some(ms(33_750))),
        _ => CountStep::SetIfMissing(rng.u32(1..6), None),
    }
}

fn step_of_ids(rng: &mut Rng) -> CountStep {
    match rng.u8(0..12) {
        0 => CountStep::Get,
        1 => CountStep::Delete,
        2 => CountStep::Taken,
        3 => CountStep::Lease,
        4 => CountStep::GiveBack,
        5 => CountStep::SetLease([ms(20_000), ms(60_000), ENDLESS][rng.usize(..3)]),
        6 => CountStep::Replace(rng.u32(1..5)),
        7 => CountStep::Add([1, -2, i64::from(i32::MAX)][rng.usize(..3)]),
        8 => CountStep::SetIfMissing(2, Some(ms(33_750))),
        _ => CountStep::SetIfMissing(rng.u32(1..6), None),
    }
}

type Pass = dyn Fn(&[Op], u64);

/// A store under test.
struct Place {
    store: Arc<dyn Store>,
    /// Lets so many ms pass for the locks of this sequence.
    pass: Box<Pass>,
    kinds: &'static [Kind],
    /// Some stores shorten no lease, which one lease for all hides.
    leases: &'static [u64],
    /// Whether it gives back a hold whose lease is over, if nobody had the lock since.
    frees_what_is_over: bool,
    /// Whether it keeps counts.
    counts: bool,
    /// Whether those who are refused wait.
    queues: bool,
}

/// The first answer that differs, after which operations; `None` if the machine was too slow to tell.
fn differs(place: &Place, ops: &[Op]) -> Option<Result<u64, String>> {
    let start = Instant::now();
    let mut reference = Reference::default();
    let mut compared = 0;
    for (at, op) in ops.iter().enumerate() {
        if let Op::Pass(span) = op {
            let span = reference.pass(*span, MARGIN);
            (place.pass)(ops, span);
            continue;
        }
        let began = |claim| reference.has(claim) || reference.has_time(claim);
        if matches!(op, Op::Acquire(claim) if claim.count == 0 && began(claim)) {
            // An id belongs to one hold, which does not begin twice.
            continue;
        }
        if matches!(op, Op::Acquire(claim) if !waits(claim) && reference.is_noted(claim)) {
            // Nor does one that waits ask otherwise in between.
            continue;
        }
        let spec = reference.ask(op);
        let store = ask(&*place.store, op);
        compared += 1;
        let took = u64::try_from(start.elapsed().as_millis()).unwrap() + 2;
        // The time that a free lock is kept for readers ends in the midst.
        if took > if place.queues { MARGIN / 8 } else { MARGIN / 2 } {
            return None;
        }
        let is_over = place.frees_what_is_over
            && matches!(op, Op::Release(_, 0))
            && (&store, &spec) == (&Answer::Done, &Answer::Gone(None));
        if !is_over && !is_alike(&store, &spec, took) {
            let steps: Vec<_> = ops[..=at].iter().map(|op| format!("  {op:?}")).collect();
            let steps = steps.join("\n");
            return Some(Err(format!(
                "the store {store:?}\nthe spec  {spec:?}\nafter\n{steps}"
            )));
        }
    }
    Some(Ok(compared))
}

/// Runs drawn sequences, and reports the first that differs with as few operations as still do.
fn compare(place: &Place, sequences: u64) -> Result<u64, String> {
    let (mut compared, mut runs) = (0, 0);
    let mut run = |seed: u64, is_left_out: &dyn Fn(usize) -> bool| {
        loop {
            runs += 1;
            let ops = draw(seed, runs, place).into_iter().enumerate();
            let ops = ops.filter(|(at, _)| !is_left_out(*at)).map(|(_, op)| op);
            if let Some(outcome) = differs(place, &ops.collect::<Vec<_>>()) {
                return outcome;
            }
        }
    };
    for seed in 0..sequences {
        let mut report = match run(seed, &|_| false) {
            Ok(count) => {
                compared += count;
                continue;
            }
            Err(report) => report,
        };
        let mut left_out = Vec::new();
        for at in 0..draw(seed, 0, place).len() {
            left_out.push(at);
            match run(seed, &|at| left_out.contains(&at)) {
                Err(fewer) => report = fewer,
                Ok(_) => left_out.truncate(left_out.len() - 1),
            }
        }
        return Err(format!("seed {seed}: {report}"));
    }
    Ok(compared)
}

/// Twice those that have most to do with one another.
const KINDS: &[Kind] = &[
    Kind::Reentrant,
    Kind::Token,
    Kind::Fenced,
    Kind::Fair,
    Kind::Read,
    Kind::Read,
    Kind::Write,
    Kind::Write,
];

/// The time keys of the holds of read-write locks.
fn time_keys_of(ops: &[Op]) -> Vec<Arc<str>> {
    let claims = ops.iter().filter_map(|op| match op {
        Op::Acquire(claim) => Some(claim),
        _ => None,
    });
    claims
        .map(|claim| time_key_of(&claim.name, &claim.visitor).into())
        .collect()
}

fn names_of(ops: &[Op]) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = ops
        .iter()
        .flat_map(|op| match op {
            Op::Acquire(claim) | Op::Release(claim, _) | Op::Resolve(claim) => vec![&claim.name],
            Op::HandOff(from, to) => vec![&from.name, &to.name],
            Op::Renew(claims) => claims.iter().map(|claim| &claim.name).collect(),
            Op::ForceRelease(lock) | Op::Inspect(lock, _) | Op::Count(lock, ..) => {
                vec![&lock.name]
            }
            Op::Pass(_) => Vec::new(),
        })
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

fn memory() -> Place {
    let client = Client::in_memory();
    Place {
        store: Arc::clone(&client.inner().store),
        pass: Box::new(move |_, span| client.world().unwrap().advance(ms(span))),
        kinds: KINDS,
        leases: &[5000, 30_000, 60_000],
        frees_what_is_over: false,
        counts: true,
        queues: false,
    }
}

#[test]
fn memory_does_as_the_scripts() {
    let compared = compare(&memory(), if is_long() { 20_000 } else { 2000 });
    assert!(compared.unwrap_or_else(|report| panic!("{report}")) > 10_000);
}

#[test]
fn waiters_in_memory_wait_as_the_scripts_have_them() {
    let place = Place {
        kinds: &[Kind::Fair, Kind::Read, Kind::Read, Kind::Write],
        counts: false,
        queues: true,
        ..memory()
    };
    let compared = compare(&place, if is_long() { 50_000 } else { 4000 });
    assert!(compared.unwrap_or_else(|report| panic!("{report}")) > 20_000);
}

#[test]
fn redis_does_as_the_scripts() {
    const PASS: &str = "for _, key in ipairs(KEYS) do local ends = redis.call('PEXPIRETIME', key) \
                        if ends >= 0 then redis.call('PEXPIREAT', key, ends - ARGV[1]) end \
                        if redis.call('TYPE', key).ok == 'zset' then \
                        for _, owner in ipairs(redis.call('ZRANGE', key, 0, -1)) do \
                        redis.call('ZINCRBY', key, -ARGV[1], owner) end end end";
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let place = Place {
        store: Arc::clone(&client.inner().store),
        pass: Box::new(move |ops, span| {
            let (mut names, span) = (names_of(ops), span.to_string());
            let both = |it: &Arc<str>| [owners_of(it).into(), ids_of(it).into()];
            let owners: Vec<Arc<str>> = names.iter().flat_map(both).collect();
            names.extend(owners);
            names.extend(time_keys_of(ops));
            names.sort();
            names.dedup();
            let count = names.len().to_string();
            let mut words = vec!["EVAL", PASS, &count];
            words.extend(names.iter().map(|name| &**name));
            words.push(&span);
            server.cmd(&words);
        }),
        ..memory()
    };
    let compared = compare(&place, if is_long() { 5000 } else { 200 });
    assert!(compared.unwrap_or_else(|report| panic!("{report}")) > 1000);
}

#[cfg(feature = "mysql")]
#[test]
fn a_database_does_as_the_scripts() {
    use ::mysql::prelude::Queryable;

    let database = crate::support::MariaDb::shared().database();
    let patience = std::time::Duration::from_secs(20);
    let patient = Client::builder().command_timeout(patience);
    // Making a table takes long on a busy disk.
    let client = patient.open(&database.url()).unwrap();
    client.create_tables().unwrap();
    let conn = std::cell::RefCell::new(database.conn());
    let place = Place {
        store: Arc::clone(&client.inner().store),
        pass: Box::new(move |ops, span| {
            for name in names_of(ops) {
                let earlier = "UPDATE redlatch SET expires_at = expires_at - INTERVAL ? MICROSECOND \
                               WHERE resource = ?";
                let mut conn = conn.borrow_mut();
                conn.exec_drop(earlier, (span * 1000, &*name)).unwrap();
            }
        }),
        kinds: &[Kind::Reentrant],
        leases: &[30_000],
        frees_what_is_over: true,
        counts: false,
        queues: false,
    };
    let compared = compare(&place, if is_long() { 5000 } else { 200 });
    assert!(compared.unwrap_or_else(|report| panic!("{report}")) > 1000);
}

#[test]
fn a_store_that_differs_is_found() {
    let place = memory();
    let place = Place {
        // Its clock goes wrong now and then.
        pass: Box::new(move |ops, span| (place.pass)(ops, span / 2)),
        ..memory()
    };
    let report = compare(&place, 2000).unwrap_err();
    assert!(report.lines().count() <= 10, "{report}");
}
