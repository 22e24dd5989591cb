//! A lock of three parts whose members answer as told.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod holding;
mod looking;

use super::*;
use crate::ground::claim::Kind;
use crate::ground::loss::LossCause;
use crate::ground::notify::Notifier;
use crate::stores::redis::Redis;
use crate::stores::redis::in_memory::World;
use crate::stores::redis::in_memory::tests::store_of;

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
    /// It cannot take back yet what it has done.
    Keeps,
    /// Its lock has no end.
    Endless,
}

struct Scripted {
    memory: Arc<Redis>,
    name: &'static str,
    mode: Mutex<Mode>,
    facts: Facts,
    /// For how long each request might take, in ms.
    had: Mutex<Vec<u128>>,
    /// The levels that were given back: from how many, and to how many.
    given_back: Mutex<Vec<(u32, u32)>>,
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
            memory: store_of(world),
            name,
            mode: Mutex::new(Mode::Well),
            facts: Facts {
                is_composite,
                longest_lease: LEASE * 2,
                ..Facts::of(name.to_owned(), &notifier)
            },
            had: Mutex::default(),
            given_back: Mutex::default(),
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
        self.given_back.lock().push((claim.count, keep));
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
        if *self.mode.lock() == Mode::Keeps {
            return vec![Ok(false); in_doubts.len()];
        }
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
        let holding = self.answer(deadline, || self.memory.inspect(lock, visitor, deadline))?;
        let has_end = *self.mode.lock() != Mode::Endless;
        Ok(Holding {
            remaining: holding.remaining.filter(|_| has_end),
            ..holding
        })
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
const K: Mode = Mode::Keeps;
const E: Mode = Mode::Endless;
