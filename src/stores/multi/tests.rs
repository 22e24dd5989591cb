//! What a lock of three parts says whose members answer as told.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use super::*;
use crate::ground::claim::Kind;
use crate::ground::loss::LossCause;
use crate::ground::notify::Notifier;
use crate::stores::memory::{Memory, World};

const LEASE: Duration = Duration::from_secs(10);

/// How a member answers from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Well,
    /// It cannot be reached, and does nothing.
    Dead,
    /// It does what it is asked, and the answer is lost.
    Lost,
    /// Its answer to what it has done leaves something that may come later.
    Late,
}

struct Scripted {
    memory: Memory,
    name: &'static str,
    mode: Mutex<Mode>,
    facts: Facts,
    /// For how long each request might take, in ms.
    had: Mutex<Vec<u128>>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Scripted {
    fn new(name: &'static str, world: &Arc<World>, is_composite: bool) -> Arc<Scripted> {
        let notifier: Arc<Notifier> = Arc::default();
        Arc::new(Scripted {
            memory: Memory::new(Arc::clone(world)),
            name,
            mode: Mutex::new(Mode::Well),
            facts: Facts {
                is_composite,
                longest_lease: LEASE * 2,
                ..Facts::of(name.to_owned(), &notifier)
            },
            had: Mutex::default(),
        })
    }

    fn dead(&self) -> Error {
        Error::Unreachable {
            lock: "a".into(),
            node: self.name.into(),
            reason: "it is dead".to_owned(),
            source: None,
        }
    }

    fn lost(&self) -> Error {
        Error::unknown(&"a".into(), self.name, "request", None, "it was lost")
    }

    /// Notes the time of a request, and whether it is carried out.
    fn mode(&self, deadline: Instant) -> Result<Mode> {
        let left = deadline.saturating_duration_since(time::now());
        self.had.lock().push(left.as_millis());
        match *self.mode.lock() {
            Mode::Dead => Err(self.dead()),
            mode => Ok(mode),
        }
    }

    fn answer<T>(&self, deadline: Instant, run: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.mode(deadline)? {
            Mode::Lost => run().and(Err(self.lost())),
            _ => run(),
        }
    }
}

impl Store for Scripted {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        let mode = self.mode(deadline)?;
        let late = (mode == Mode::Late).then(|| claim.in_doubt(7));
        match self.memory.acquire(claim, deadline)? {
            _ if mode == Mode::Lost => Ok(Outcome::unknown(claim.in_doubt(7), self.lost())),
            Outcome::Done(granted) => Ok(Outcome::Done(Granted {
                leftover: late,
                ..granted
            })),
            Outcome::Refused(refusal) => Ok(Outcome::Refused(Refusal {
                leftover: late,
                ..refusal
            })),
            other => Ok(other),
        }
    }

    fn release(&self, claim: &Claim, keep: u32, deadline: Instant) -> Result<Outcome<Released>> {
        let mode = self.mode(deadline)?;
        match self.memory.release(claim, keep, deadline)? {
            _ if mode == Mode::Lost => Ok(Outcome::unknown(claim.in_doubt(7), self.lost())),
            Outcome::Done(released) => Ok(Outcome::Done(Released {
                leftover: (mode == Mode::Late).then(|| claim.in_doubt(7)),
                ..released
            })),
            other => Ok(other),
        }
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        match self.mode(deadline) {
            Ok(Mode::Lost) | Err(_) => {
                vec![Renewal::Unknown(self.name.to_owned()); claims.len()]
            }
            Ok(_) => self.memory.renew(claims, deadline),
        }
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        match self.answer(deadline, || Ok(self.memory.resolve(in_doubts, deadline))) {
            Ok(outcomes) => outcomes,
            Err(error) => vec![Err(error)],
        }
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        self.answer(deadline, || self.memory.force_release(lock, deadline))
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        self.answer(deadline, || self.memory.inspect(lock, visitor, deadline))
    }

    fn subscribe(
        &self,
        lock: &LockId,
        place: Option<&VisitorId>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let subscription = self.memory.subscribe(lock, place, source, parker);
        let delivery = match *self.mode.lock() {
            Mode::Well => Delivery::Live,
            Mode::Dead => Delivery::Polling,
            _ => Delivery::Pending,
        };
        // The source that it was given is told by the number of those that it takes.
        Subscription {
            delivery,
            sources: source + 1,
            ..subscription
        }
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        self.mode(deadline)?;
        Ok(vec![HealthWarning::ok(
            &self.name.into(),
            "well",
            String::new(),
        )])
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn node(&self, _: Option<&str>) -> Arc<str> {
        self.name.into()
    }
}

/// A lock of three parts, each in a world of its own.
struct Three {
    parts: [Arc<Scripted>; 3],
    kinds: [Kind; 3],
    whole: MultiStore,
}

impl Three {
    fn of(kinds: [Kind; 3]) -> Three {
        let parts = ["m0", "m1", "m2"];
        Three::with(
            parts.map(|name| Scripted::new(name, &Arc::default(), false)),
            kinds,
        )
    }

    fn with(parts: [Arc<Scripted>; 3], kinds: [Kind; 3]) -> Three {
        let members = parts.iter().zip(kinds).rev().map(|(part, kind)| Member {
            store: Arc::clone(part) as Arc<dyn Store>,
            lock: LockId {
                kind,
                name: "a".into(),
            },
            _keep: Arc::new(()),
        });
        let whole = MultiStore::new(members.collect());
        Three {
            parts,
            kinds,
            whole,
        }
    }

    fn new() -> Three {
        Three::of([Kind::Reentrant; 3])
    }

    /// With a hold of so many levels.
    fn held(count: u32) -> Three {
        let three = Three::new();
        for count in 0..count {
            done(three.take(count));
        }
        three
    }

    fn set(&self, modes: [Mode; 3]) {
        for (part, mode) in self.parts.iter().zip(modes) {
            *part.mode.lock() = mode;
            part.had.lock().clear();
        }
    }

    fn claim(&self, count: u32) -> Claim {
        Claim {
            kind: Kind::Reentrant,
            name: "whole".into(),
            visitor: VisitorId::new("me", 1, 1),
            count,
            lease: LEASE,
            inside: None,
            queueing: Queueing::Barges,
        }
    }

    fn take(&self, count: u32) -> Result<Outcome<Granted, Refusal>> {
        self.whole.acquire(&self.claim(count), soon())
    }

    fn release(&self, keep: u32) -> Result<Outcome<Released>> {
        self.whole.release(&self.claim(keep + 1), keep, soon())
    }

    fn lock(&self, part: usize) -> LockId {
        LockId {
            kind: self.kinds[part],
            name: "a".into(),
        }
    }

    /// Has another one hold a part.
    fn give(&self, part: usize, lease: Duration) {
        let memory = &self.parts[part].memory;
        memory.force_release(&self.lock(part), soon()).unwrap();
        let other = Claim {
            kind: self.kinds[part],
            name: "a".into(),
            visitor: self.kinds[part].visitor("other", 2, 2),
            lease,
            ..self.claim(0)
        };
        memory.acquire(&other, soon()).unwrap();
    }

    /// Takes a part from whoever has it.
    fn lose(&self, part: usize) {
        let lock = self.lock(part);
        self.parts[part]
            .memory
            .force_release(&lock, soon())
            .unwrap();
    }

    /// The levels that each part has of the hold.
    fn levels(&self) -> [u32; 3] {
        [0, 1, 2].map(|part| {
            let visitor = self.whole.members[part].visitor(&self.claim(0).visitor);
            let lock = self.lock(part);
            let holding = self.parts[part]
                .memory
                .inspect(&lock, Some(&visitor), soon());
            holding.unwrap().count
        })
    }

    fn inspect(&self) -> Result<Holding> {
        let visitor = self.claim(0).visitor;
        self.whole.inspect(&self.lock(0), Some(&visitor), soon())
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(12)
}

fn done<D: fmt::Debug, R: fmt::Debug>(outcome: Result<Outcome<D, R>>) -> D {
    match outcome.unwrap() {
        Outcome::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

/// The parts that a doubt is about.
fn parts_of(in_doubt: &InDoubt) -> Vec<usize> {
    (0..3)
        .filter(|part| in_doubt.not_after(*part).is_some())
        .collect()
}

const W: Mode = Mode::Well;
const D: Mode = Mode::Dead;
const L: Mode = Mode::Lost;
const A: Mode = Mode::Late;

#[test]
fn parts_are_taken_in_one_order_and_each_has_its_share_of_the_time() {
    let three = Three::new();
    let names: Vec<_> = three
        .whole
        .members
        .iter()
        .map(|it| it.store.node(None))
        .collect();
    assert_eq!(names, ["m0", "m1", "m2"].map(Arc::from));
    assert_eq!(&*three.whole.node(None), "m0 and m1 and m2");
    assert_eq!(three.whole.facts().longest_lease, LEASE * 2);
    assert!(done(three.take(0)).leftover.is_none());
    // A fourth share is kept for the way back.
    let least = |part: usize, least: u128| {
        let had = three.parts[part].had.lock().clone();
        assert!(had[0] <= least && had[0] > least - 900, "{part}: {had:?}");
    };
    least(0, 3_000);
    least(1, 4_000);
    least(2, 6_000);
    three.set([W; 3]);
    done(three.release(0));
    least(2, 4_000);
    least(1, 6_000);
    least(0, 12_000);
}

#[test]
fn what_was_taken_is_given_back_where_a_part_is_refused_or_silent() {
    for part in 0..3 {
        let three = Three::new();
        three.give(part, LEASE);
        match three.take(0).unwrap() {
            Outcome::Refused(refusal) => {
                assert!(refusal.leftover.is_none(), "{part}");
                assert!(refusal.retry_after.unwrap() > LEASE / 2);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(three.levels(), [0; 3]);
        let three = Three::new();
        let mut modes = [W; 3];
        modes[part] = D;
        three.set(modes);
        assert!(matches!(three.take(0), Err(Error::Unreachable { .. })));
        assert_eq!(three.levels(), [0; 3]);
    }
}

#[test]
fn what_may_stand_in_some_part_is_told() {
    let three = Three::new();
    three.set([W, L, W]);
    match three.take(0).unwrap() {
        // The withdrawal is lost, too.
        Outcome::Unknown { mut in_doubt, .. } => {
            assert_eq!(parts_of(&in_doubt), [1]);
            assert_eq!(in_doubt.not_after(1), Some(7));
            three.set([W; 3]);
            let settled = three.whole.resolve(&mut [&mut in_doubt], soon());
            assert!(matches!(settled[..], [Ok(true)]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(three.levels(), [0; 3]);
    // A part that is refused may have left something, too.
    let three = Three::new();
    three.give(1, LEASE);
    three.set([L, A, W]);
    match three.take(0).unwrap() {
        Outcome::Unknown { in_doubt, .. } => assert_eq!(parts_of(&in_doubt), [0]),
        other => panic!("{other:?}"),
    }
    let three = Three::new();
    three.give(2, LEASE);
    three.set([W, W, A]);
    assert!(matches!(three.take(0).unwrap(), Outcome::Refused(_)));
    // And so may one that has granted.
    let three = Three::new();
    three.set([A, W, A]);
    let leftover = done(three.take(0)).leftover;
    assert!(leftover.is_some());
}

#[test]
fn a_re_entry_that_fails_is_put_back() {
    let three = Three::held(1);
    done(three.take(1));
    assert_eq!(three.levels(), [2; 3]);
    // The first one fails: nothing was touched.
    three.set([D, W, W]);
    assert!(matches!(three.take(2), Err(Error::Unreachable { .. })));
    three.set([W, W, D]);
    assert!(matches!(three.take(2).unwrap(), Outcome::Unknown { .. }));
    assert_eq!(three.levels(), [2; 3]);
    three.set([L, W, W]);
    assert!(matches!(three.take(2).unwrap(), Outcome::Unknown { .. }));
    // Lost in one part, it is given back in all.
    for part in 0..3 {
        let three = Three::held(2);
        three.lose(part);
        match three.take(2).unwrap() {
            Outcome::Gone(cause) => assert_eq!(cause, LossCause::Gone),
            other => panic!("{other:?}"),
        }
        assert_eq!(three.levels(), [0; 3]);
    }
}

#[test]
fn a_release_says_what_became_of_each_part() {
    let three = Three::held(1);
    assert!(done(three.release(0)).leftover.is_none());
    assert_eq!(three.levels(), [0; 3]);
    let three = Three::held(1);
    three.set([W, D, L]);
    match three.release(0).unwrap() {
        Outcome::Unknown { in_doubt, .. } => assert_eq!(parts_of(&in_doubt), [1, 2]),
        other => panic!("{other:?}"),
    }
    let three = Three::held(1);
    three.set([A, W, W]);
    let leftover = done(three.release(0)).leftover.unwrap();
    assert_eq!(parts_of(&leftover), [0]);
    let three = Three::held(1);
    three.give(1, LEASE);
    three.set([W, W, D]);
    match three.release(0).unwrap() {
        Outcome::Gone(cause) => assert!(matches!(cause, LossCause::HeldBy(_))),
        other => panic!("{other:?}"),
    }
    // Others wait for any of them.
    for part in 0..3 {
        let three = Three::held(1);
        let others = Memory::new(Arc::clone(three.parts[part].memory.world()));
        let parker = others.facts().notifier.parker();
        let _place = others.subscribe(&three.lock(part), None, 0, &parker);
        assert!(done(three.release(0)).others_wait, "{part}");
    }
    assert!(!done(Three::held(1).release(0)).others_wait);
}

#[test]
fn a_level_is_given_back_by_each_part() {
    let end = |modes, lost: Option<usize>| {
        let three = Three::held(2);
        lost.iter().for_each(|part| three.lose(*part));
        three.set(modes);
        match three.release(1).unwrap() {
            Outcome::Done(released) if released.leftover.is_some() => "done, and late",
            Outcome::Done(_) => {
                assert_eq!(three.levels(), [1; 3]);
                "done"
            }
            Outcome::Gone(_) => "gone",
            _ => "unknown",
        }
    };
    assert_eq!(end([W; 3], None), "done");
    assert_eq!(end([A, W, W], None), "done, and late");
    assert_eq!(end([W, W, A], None), "done, and late");
    assert_eq!(end([W, D, W], None), "unknown");
    assert_eq!(end([W, L, W], None), "unknown");
    assert_eq!(end([D, W, W], Some(2)), "gone");
}

#[test]
fn a_renewal_is_that_of_all_parts() {
    let renew = |modes, lost: Option<usize>| {
        let three = Three::held(1);
        lost.iter().for_each(|part| three.lose(*part));
        three.set(modes);
        three.whole.renew(&[three.claim(1)], soon()).pop().unwrap()
    };
    assert_eq!(renew([W; 3], None), Renewal::Renewed);
    assert_eq!(renew([W, D, W], None), Renewal::Unknown("m1".to_owned()));
    assert_eq!(renew([W; 3], Some(0)), Renewal::Lost(LossCause::Gone));
    // What is lost is lost, whatever the others say.
    for modes in [[W, D, W], [W, W, L]] {
        assert_eq!(renew(modes, Some(0)), Renewal::Lost(LossCause::Gone));
    }
    assert_eq!(renew([D, W, W], Some(2)), Renewal::Lost(LossCause::Gone));
}

#[test]
fn a_forced_release_tells_of_parts_that_are_free() {
    let force = |three: &Three| three.whole.force_release(&three.lock(0), soon());
    assert!(!force(&Three::new()).unwrap());
    for part in 0..3 {
        let three = Three::new();
        three.give(part, LEASE);
        assert!(force(&three).unwrap(), "{part}");
    }
    let three = Three::new();
    three.set([W, D, W]);
    assert!(matches!(force(&three), Err(Error::Unreachable { .. })));
    // Some part is free, so it is no error after which nothing was done.
    let three = Three::held(1);
    three.set([W, D, W]);
    match force(&three).unwrap_err() {
        Error::Unknown { node, reason, .. } => {
            assert_eq!(&*node, "m1");
            assert!(reason.contains("it is dead"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let three = Three::new();
    three.set([L, D, W]);
    assert!(matches!(force(&three), Err(Error::Unknown { .. })));
}

#[test]
fn the_whole_is_held_as_often_as_the_part_that_is_held_least() {
    let three = Three::held(3);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 3);
    three.give(1, LEASE / 2);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 0);
    // It is free when the last part is.
    assert!(holding.remaining.unwrap() > LEASE / 2);
    assert!(!Three::new().inspect().unwrap().is_locked);
    let three = Three::new();
    three.give(2, LEASE);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 0);
    three.set([W, W, D]);
    assert!(three.inspect().is_err());
}

#[test]
fn tokens_are_counted_by_the_whole() {
    let three = Three::of([Kind::Token; 3]);
    done(three.take(0));
    assert_eq!(three.inspect().unwrap().count, 1);
    done(three.take(1));
    done(three.take(2));
    assert_eq!(three.levels(), [1; 3]);
    assert_eq!(three.inspect().unwrap().count, 3);
    done(three.release(2));
    assert_eq!(three.inspect().unwrap().count, 2);
    three.lose(1);
    assert_eq!(three.inspect().unwrap().count, 0);
    let three = Three::of([Kind::Token; 3]);
    done(three.take(0));
    done(three.take(1));
    done(three.release(0));
    assert_eq!(three.inspect().unwrap().count, 0);
    let counts = three.whole.counts.as_ref().unwrap();
    assert!(counts.lock().is_empty());
    // With another kind among them that counts.
    let three = Three::of([Kind::Token, Kind::Reentrant, Kind::Token]);
    assert!(three.whole.counts.is_none());
    done(three.take(0));
    done(three.take(1));
    assert_eq!(three.inspect().unwrap().count, 2);
    // A token that is silent while its lease is set leaves the whole unknown.
    three.set([D, W, W]);
    assert!(matches!(three.release(1).unwrap(), Outcome::Unknown { .. }));
    three.set([W, W, D]);
    assert!(matches!(three.take(2).unwrap(), Outcome::Unknown { .. }));
}

#[test]
fn a_token_at_a_quorum_may_get_its_lease_late() {
    let world = Arc::default();
    let parts = ["m0", "m1", "m2"].map(|name| Scripted::new(name, &Arc::default(), name == "m1"));
    let three = Three::with(parts, [Kind::Token; 3]);
    assert!(done(three.take(0)).leftover.is_none());
    assert!(done(three.take(1)).leftover.is_some());
    assert!(done(three.release(1)).leftover.is_some());
    let plain = ["m0", "m1", "m2"].map(|name| Scripted::new(name, &world, false));
    drop(plain);
    let three = Three::of([Kind::Token; 3]);
    done(three.take(0));
    assert!(done(three.take(1)).leftover.is_none());
    assert!(done(three.release(1)).leftover.is_none());
}

#[test]
fn two_names_of_one_lock_are_told() {
    let (one, other) = (Arc::default(), Arc::default());
    let parts = [("m0", &one), ("m1", &other), ("m2", &one)];
    let parts = parts.map(|(name, world)| Scripted::new(name, world, false));
    let three = Three::with(parts, [Kind::Token; 3]);
    match three.take(0).unwrap_err() {
        Error::InvalidConfig { reason, .. } => {
            assert!(
                reason.contains("on m2 is the same lock as on m0"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(three.levels(), [0; 3]);
    // Another one has it: no twin.
    three.give(2, LEASE);
    assert!(matches!(three.take(0).unwrap(), Outcome::Refused(_)));
}

#[test]
fn a_part_that_was_in_the_way_is_looked_at_first() {
    let waits = |three: &Three| Claim {
        queueing: Queueing::Waits {
            need: Duration::ZERO,
            memo: None,
            takes_place: true,
            had_place: false,
        },
        ..three.claim(0)
    };
    let three = Three::new();
    three.give(2, LEASE);
    let asks = |three: &Three, claim: &Claim| {
        three.set([W; 3]);
        let outcome = three.whole.acquire(claim, soon()).unwrap();
        let had = [0, 1, 2].map(|part| three.parts[part].had.lock().len());
        (matches!(outcome, Outcome::Refused(_)), had)
    };
    // The first attempt takes the others and gives them back, and asks whether one of them is the same lock.
    assert_eq!(asks(&three, &waits(&three)), (true, [2, 2, 3]));
    assert_eq!(asks(&three, &waits(&three)), (true, [0, 0, 1]));
    let left = three.whole.still_in_the_way(soon()).unwrap().retry_after;
    assert!(left.unwrap() > LEASE / 2);
    // One that does not wait asks all.
    assert_eq!(asks(&three, &three.claim(0)), (true, [2, 2, 3]));
    three.lose(2);
    assert!(three.whole.still_in_the_way(soon()).is_none());
    assert_eq!(asks(&three, &waits(&three)), (false, [1, 1, 2]));
    // Where the first one refuses, nothing is taken before it.
    let three = Three::new();
    three.give(0, LEASE);
    assert_eq!(asks(&three, &waits(&three)), (true, [1, 0, 0]));
    assert_eq!(asks(&three, &waits(&three)), (true, [1, 0, 0]));
}

#[test]
fn a_reader_is_kept_out_by_writers_alone() {
    let lock = |kind| LockId {
        kind,
        name: "a".into(),
    };
    let kinds = |kind| {
        let all = obstacle::obstacles(&lock(kind)).into_iter().flatten();
        all.map(|it| it.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(Kind::Reentrant), [Kind::Reentrant]);
    assert_eq!(kinds(Kind::Write), [Kind::Write, Kind::Read]);
    assert_eq!(kinds(Kind::Read), [Kind::Write]);
}

#[test]
fn the_whole_hears_of_each_part_from_sources_of_its_own() {
    let three = Three::new();
    let parker = three.whole.facts().notifier.parker();
    let subscribe = |modes| {
        three.set(modes);
        three.whole.subscribe(&three.lock(0), None, 10, &parker)
    };
    // Each member takes one more than the number of its first one: 11, 23, 47.
    let all = subscribe([W; 3]);
    assert_eq!(
        (all.delivery, all.sources),
        (Delivery::Live, 1 + 12 + 24 + 48)
    );
    assert_eq!(subscribe([W, D, W]).delivery, Delivery::Polling);
    assert_eq!(subscribe([W, W, A]).delivery, Delivery::Pending);
}

#[test]
fn each_part_is_checked() {
    let three = Three::new();
    let found = three.whole.check(soon()).unwrap();
    assert_eq!(found.len(), 3);
    three.set([W, W, D]);
    assert!(three.whole.check(soon()).is_err());
    assert!(format!("{:?}", three.whole).contains("m0 and m1 and m2"));
}
