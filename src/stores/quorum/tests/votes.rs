//! What five nodes decide that answer as told: at once, so that each order of answers is that of the nodes.

use super::*;
use crate::ground::error::NodeAnswer;
use crate::ground::loss::LossCause;
use crate::ground::time;
use crate::stores::quorum::node::Pending;

/// How a node answers from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Well,
    /// It cannot be reached, and does nothing.
    Dead,
    /// It does what it is asked, and the answer is lost; the request may come until its time 9.
    Lost,
    /// The same, and nothing is done.
    Missed,
    /// There is something else under the name.
    Strange,
}

struct Scripted {
    memory: Memory,
    mode: Mutex<Mode>,
}

impl Scripted {
    fn error(&self, strange: bool) -> Error {
        match strange {
            true => Error::WrongType {
                lock: "a".into(),
                node: "in memory".into(),
                reason: "text".to_owned(),
            },
            false => Error::Unreachable {
                lock: "a".into(),
                node: "in memory".into(),
                reason: "it is dead".to_owned(),
                source: None,
            },
        }
    }

    /// Carries a request out, or does not.
    fn answer<T>(
        &self,
        lost: impl FnOnce(Error) -> Result<T>,
        run: impl FnOnce() -> Result<T>,
    ) -> Pending<'_, T> {
        let mode = *self.mode.lock();
        let unknown = || Error::unknown(&"a".into(), "in memory", "request", None, "it was lost");
        Pending::Ready(match mode {
            Mode::Well => run(),
            Mode::Dead | Mode::Strange => Err(self.error(mode == Mode::Strange)),
            Mode::Lost => run().and_then(|_| lost(unknown())),
            Mode::Missed => lost(unknown()),
        })
    }
}

impl Node for Scripted {
    fn store(&self) -> &dyn Store {
        &self.memory
    }

    fn connect(
        &self,
        _: &NodeHandle,
        _: Purpose<'_>,
        _: Instant,
    ) -> Result<Result<(), Quarantined>> {
        match *self.mode.lock() {
            Mode::Dead => Err(self.error(false)),
            _ => Ok(Ok(())),
        }
    }

    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        by: Instant,
    ) -> Pending<'a, Outcome<Granted, Refusal>> {
        let lost = |error| Ok(Outcome::unknown(claim.in_doubt(9), error));
        self.answer(lost, || {
            match self.memory.send_acquire(claim, restored, handle, by) {
                Pending::Ready(answer) => answer,
                _ => panic!("memory answers at once"),
            }
        })
    }

    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        _: &'a NodeHandle,
        by: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        let unknown = vec![Renewal::Unknown("it was lost".to_owned()); claims.len()];
        self.answer(|_| Ok(unknown), || Ok(self.memory.renew(claims, by)))
    }

    fn send_release<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        by: Instant,
    ) -> Pending<'a, Outcome<Released>> {
        let lost = |error| Ok(Outcome::unknown(claim.in_doubt(9), error));
        self.answer(lost, || self.memory.release(claim, keep, by))
    }

    fn send_resolve<'a>(&'a self, mut in_doubt: InDoubt, by: Instant) -> Pending<'a, bool> {
        self.answer(Err, || {
            let settled = self.memory.resolve(&mut [&mut in_doubt], by).pop();
            settled.unwrap_or(Ok(false))
        })
    }

    fn send_force_release<'a>(&'a self, lock: &'a LockId, by: Instant) -> Pending<'a, bool> {
        self.answer(Err, || self.memory.force_release(lock, by))
    }

    fn send_inspect<'a>(
        &'a self,
        lock: &'a LockId,
        visitor: Option<&'a VisitorId>,
        by: Instant,
    ) -> Pending<'a, Holding> {
        self.answer(Err, || self.memory.inspect(lock, visitor, by))
    }
}

/// Five nodes and the quorum of them.
struct Five {
    nodes: Vec<Arc<Scripted>>,
    quorum: Quorum,
}

impl Five {
    fn new() -> Five {
        let nodes: Vec<Arc<Scripted>> = (0..5)
            .map(|_| {
                Arc::new(Scripted {
                    memory: Memory::new(Arc::new(World::default())),
                    mode: Mutex::new(Mode::Well),
                })
            })
            .collect();
        let settings = Settings {
            node_timeout: None,
            max_lease: LEASE,
            max_extensions: None,
            trusts_new_nodes: true,
            connect_timeout: LEASE,
        };
        let stores = nodes.iter().map(|node| {
            let node: Arc<dyn Node> = node.clone();
            (node, Arc::new(()) as _)
        });
        let quorum = Quorum::new(stores.collect(), settings, soon()).unwrap();
        Five { nodes, quorum }
    }

    /// With a hold of so many levels everywhere.
    fn held(count: u32) -> Five {
        let five = Five::new();
        five.done(five.take(0));
        for count in 1..count {
            five.done(five.take(count));
        }
        five
    }

    /// Has these nodes answer so; all are asked again.
    fn set(&self, modes: [Mode; 5]) {
        for ((node, scripted), mode) in self.quorum.nodes.iter().zip(&self.nodes).zip(modes) {
            *scripted.mode.lock() = mode;
            node.reset();
        }
    }

    /// Takes the hold away from these nodes, for another one that is there, if one is.
    fn lose(&self, nodes: &[usize], to: Option<&str>) {
        let lock = lock();
        for index in nodes {
            let memory = &self.nodes[*index].memory;
            memory.force_release(&lock, soon()).unwrap();
            if let Some(other) = to {
                let other = Claim {
                    lease: Duration::from_secs(1 + *index as u64),
                    ..claim(other, 0)
                };
                memory.acquire(&other, soon()).unwrap();
            }
        }
    }

    fn take(&self, count: u32) -> Result<Outcome<Granted, Refusal>> {
        self.quorum.acquire(&claim("me", count), soon())
    }

    fn release(&self, keep: u32) -> Result<Outcome<Released>> {
        self.quorum.release(&claim("me", 1 + keep), keep, soon())
    }

    fn done<D: fmt::Debug, R: fmt::Debug>(&self, outcome: Result<Outcome<D, R>>) -> D {
        match outcome.unwrap() {
            Outcome::Done(done) => done,
            other => panic!("{other:?}"),
        }
    }

    /// The levels that the nodes have of the hold.
    fn levels(&self) -> [u32; 5] {
        let visitor = claim("me", 0).visitor;
        let mut levels = [0; 5];
        for (levels, node) in levels.iter_mut().zip(&self.nodes) {
            *levels = node
                .memory
                .inspect(&lock(), Some(&visitor), soon())
                .unwrap()
                .count;
        }
        levels
    }

    fn inspect(&self) -> Result<Holding> {
        let visitor = claim("me", 0).visitor;
        self.quorum.inspect(&lock(), Some(&visitor), soon())
    }
}

fn lock() -> LockId {
    LockId {
        kind: Kind::Reentrant,
        name: "a".into(),
    }
}

const W: Mode = Mode::Well;
const D: Mode = Mode::Dead;
const L: Mode = Mode::Lost;
const M: Mode = Mode::Missed;
const S: Mode = Mode::Strange;

/// The nodes that a doubt is about.
fn nodes_of(in_doubt: &InDoubt) -> Vec<usize> {
    (0..5)
        .filter(|node| in_doubt.not_after(*node).is_some())
        .collect()
}

#[test]
fn a_majority_grants_a_lock_and_a_minority_gives_it_back() {
    for (modes, is_granted) in [
        ([W; 5], true),
        ([D, D, W, W, W], true),
        ([W, S, W, D, W], true),
        ([W, W, W, L, M], true),
        ([D, D, D, W, W], false),
        ([W, W, S, S, D], false),
    ] {
        let five = Five::new();
        five.set(modes);
        let outcome = five.take(0);
        if is_granted {
            assert!(five.done(outcome).leftover.is_none(), "{modes:?}");
            continue;
        }
        let well = modes.iter().filter(|mode| **mode == W).count();
        match outcome.unwrap_err() {
            Error::NoQuorum {
                granted,
                refused,
                unreachable,
                needed,
                nodes,
                ..
            } => {
                assert_eq!((granted, refused, needed), (well, 0, 3));
                assert_eq!(unreachable, 5 - well);
                assert_eq!(nodes.len(), 5);
                let granted = |it: &&NodeAnswer| it.answer == "granted";
                assert_eq!(nodes.iter().filter(granted).count(), well);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(five.levels(), [0; 5], "{modes:?}");
    }
}

#[test]
fn what_asking_again_cannot_mend_is_told() {
    let five = Five::new();
    five.set([S, S, S, W, W]);
    assert!(matches!(five.take(0), Err(Error::WrongType { .. })));
    five.set([S, S, W, D, W]);
    assert!(matches!(five.take(0), Err(Error::NoQuorum { .. })));
}

#[test]
fn grants_without_an_answer_are_in_doubt_until_they_are_withdrawn() {
    // The withdrawals are lost, too, so what may stand is told.
    let five = Five::new();
    five.set([L, L, L, W, D]);
    match five.take(0).unwrap() {
        Outcome::Unknown { mut in_doubt, .. } => {
            assert_eq!(nodes_of(&in_doubt), [0, 1, 2]);
            assert_eq!(in_doubt.not_after(0), Some(9));
            five.set([W; 5]);
            let settled = five.quorum.resolve(&mut [&mut in_doubt], soon());
            assert!(matches!(settled[..], [Ok(true)]), "{settled:?}");
            assert!(in_doubt.is_resolved());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(five.levels(), [0; 5]);
}

#[test]
fn several_doubts_are_withdrawn_at_once_where_they_may_stand() {
    let five = Five::held(1);
    let (mine, mut others) = (claim("me", 1), claim("other", 0).in_doubt(0));
    others.list(5);
    others.set(4, None);
    let mut of_mine = mine.in_doubt(0);
    let settled = five
        .quorum
        .resolve(&mut [&mut of_mine, &mut others], soon());
    assert!(matches!(settled[..], [Ok(true), Ok(true)]), "{settled:?}");
    assert_eq!(five.levels(), [0; 5]);
    assert!(five.quorum.placements.lock().is_empty());
}

#[test]
fn a_refusal_says_when_so_many_holds_have_ended_that_it_is_worth_to_ask_again() {
    // The holds of another one last for 1 to 5 s.
    for (taken, seconds) in [(3, 1), (4, 2), (5, 3)] {
        let five = Five::new();
        let taken: Vec<usize> = (0..taken).collect();
        five.lose(&taken, Some("other"));
        match five.take(0).unwrap() {
            Outcome::Refused(refusal) => {
                let wait = refusal.retry_after.unwrap();
                assert!(wait <= Duration::from_secs(seconds), "{wait:?}");
                assert!(wait > Duration::from_secs(seconds - 1), "{wait:?}");
                assert_eq!(refusal.split, None, "one has a majority");
                assert!(refusal.leftover.is_none());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(five.levels(), [0; 5]);
    }
}

#[test]
fn nobody_has_a_majority_where_the_votes_are_split() {
    for (others, modes, is_split) in [
        (["b", "c", "d", "", ""], [W; 5], true),
        (["b", "b", "c", "d", ""], [W; 5], true),
        (["b", "b", "b", "", ""], [W; 5], false),
        // Those that are silent may be of the one that has the most.
        (["b", "c", "d", "", ""], [W, W, W, D, D], false),
        (["b", "c", "d", "e", ""], [W, W, W, W, D], true),
        (["b", "b", "d", "e", ""], [W, W, W, W, D], false),
    ] {
        let five = Five::new();
        for (index, other) in others.into_iter().enumerate().filter(|it| !it.1.is_empty()) {
            five.lose(&[index], Some(other));
        }
        five.set(modes);
        match five.take(0).unwrap() {
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.split.is_some(), is_split, "{others:?} {modes:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_re_entry_is_of_a_majority_or_is_put_back() {
    let five = Five::held(1);
    assert!(five.done(five.take(1)).leftover.is_none());
    assert_eq!(five.levels(), [2; 5]);
    five.set([L, W, W, W, M]);
    let leftover = five.done(five.take(2)).leftover;
    assert!(leftover.is_some(), "two may yet come");
    assert_eq!(five.levels(), [3, 3, 3, 3, 2]);

    let five = Five::held(1);
    five.set([W, W, D, D, D]);
    assert!(matches!(five.take(1).unwrap(), Outcome::Unknown { .. }));
    assert_eq!(five.levels(), [1; 5], "the two have it as before");

    // Lost at a majority: the few that have it are in the way of others.
    let five = Five::held(1);
    five.lose(&[0, 1, 2], None);
    match five.take(1).unwrap() {
        Outcome::Gone(cause) => assert_eq!(cause, LossCause::Gone),
        other => panic!("{other:?}"),
    }
    assert_eq!(five.levels(), [0; 5]);
    // At a minority: it stands.
    let five = Five::held(1);
    five.lose(&[0, 1], Some("other"));
    five.done(five.take(1));
    assert_eq!(five.levels(), [0, 0, 2, 2, 2]);
    // With a third that is silent nobody knows.
    let five = Five::held(1);
    five.lose(&[0, 1], Some("other"));
    five.set([W, W, D, W, W]);
    assert!(matches!(five.take(1).unwrap(), Outcome::Unknown { .. }));
    assert_eq!(five.levels(), [0, 0, 1, 1, 1]);
}

#[test]
fn a_release_is_done_where_a_majority_is_free_of_a_hold_that_was_its() {
    /// The outcome, and the nodes that are left to be told.
    #[derive(Debug, PartialEq)]
    enum End {
        Done(Vec<usize>),
        Gone,
        Unknown(Vec<usize>),
    }
    use End::*;
    for (lost, modes, expected) in [
        (&[][..], [W; 5], Done(vec![])),
        (&[], [W, D, W, W, W], Done(vec![1])),
        (&[], [W, L, M, W, W], Done(vec![1, 2])),
        (&[], [D, D, D, W, W], Unknown(vec![0, 1, 2])),
        (&[0, 1], [W; 5], Done(vec![])),
        (&[0, 1, 2], [W; 5], Gone),
        (&[0, 1, 2, 3, 4], [W; 5], Gone),
        (&[0, 1], [W, W, D, W, W], Done(vec![2])),
        (&[0, 1], [W, W, D, D, W], Done(vec![2, 3])),
        (&[0, 1], [W, W, D, D, D], Unknown(vec![2, 3, 4])),
        (&[0, 1, 2], [W, W, W, D, W], Gone),
        (&[0], [W, D, D, D, W], Unknown(vec![1, 2, 3])),
    ] {
        let five = Five::held(1);
        five.lose(lost, None);
        five.set(modes);
        let end = match five.release(0).unwrap() {
            Outcome::Done(released) => {
                assert!(!released.others_wait);
                Done(released.leftover.iter().flat_map(nodes_of).collect())
            }
            Outcome::Gone(_) => Gone,
            Outcome::Unknown { in_doubt, .. } => Unknown(nodes_of(&in_doubt)),
            Outcome::Refused(never) => match never {},
        };
        assert_eq!(end, expected, "{lost:?} {modes:?}");
        assert!(five.quorum.placements.lock().is_empty());
    }
}

#[test]
fn a_release_names_the_one_that_has_the_lock_now() {
    let five = Five::held(1);
    five.lose(&[0, 1, 2], Some("other"));
    let holder = claim("other", 0).visitor.to_string();
    match five.release(0).unwrap() {
        Outcome::Gone(cause) => assert_eq!(cause, LossCause::HeldBy(holder)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_level_is_given_back_by_a_majority() {
    for (lost, modes, expected) in [
        (&[][..], [W; 5], "done"),
        (&[], [D, D, W, W, W], "done"),
        (&[], [L, M, W, W, W], "done in doubt"),
        (&[], [D, D, D, W, W], "unknown"),
        (&[0, 1], [W; 5], "done"),
        (&[0, 1, 2], [W; 5], "gone"),
        (&[0, 1], [W, W, D, W, W], "unknown"),
    ] {
        let five = Five::held(2);
        five.lose(lost, None);
        five.set(modes);
        let end = match five.release(1).unwrap() {
            Outcome::Done(released) if released.leftover.is_some() => "done in doubt",
            Outcome::Done(_) => "done",
            Outcome::Gone(_) => "gone",
            _ => "unknown",
        };
        assert_eq!(end, expected, "{lost:?} {modes:?}");
    }
}

#[test]
fn a_lock_is_held_for_all_that_is_known_where_a_majority_may_have_it() {
    for (free, modes, expected) in [
        (&[][..], [W; 5], Some(true)),
        (&[0, 1], [W; 5], Some(true)),
        (&[0, 1, 2], [W; 5], Some(false)),
        (&[0, 1], [W, W, D, W, W], Some(true)),
        (&[0, 1, 2], [W, W, W, D, W], Some(false)),
        (&[0, 1], [W, D, D, W, W], Some(true)),
        (&[], [D, D, D, W, W], None),
    ] {
        let five = Five::held(2);
        five.lose(free, None);
        five.set(modes);
        let was_held = five.quorum.force_release(&lock(), soon());
        assert_eq!(was_held.ok(), expected, "{free:?} {modes:?}");
        let five = Five::held(2);
        five.lose(free, None);
        five.set(modes);
        let holding = five.inspect();
        let is_locked = holding.as_ref().ok().map(|it| it.is_locked);
        assert_eq!(is_locked, expected, "{free:?} {modes:?}");
        let any = five.quorum.inspect(&lock(), None, soon());
        assert_eq!(any.ok().map(|it| it.is_locked), expected);
        if let Ok(holding) = holding {
            let well = modes.iter().filter(|mode| **mode == W).count();
            let has = well - free.iter().filter(|it| modes[**it] == W).count();
            assert_eq!(holding.count, if has >= 3 { 2 } else { 0 }, "{free:?}");
        }
    }
}

#[test]
fn a_majority_has_a_lock_for_as_long_as_the_third_longest_does() {
    let five = Five::new();
    // For 1 to 5 s.
    five.lose(&[0, 1, 2, 3, 4], Some("other"));
    let left = five.inspect().unwrap().remaining.unwrap();
    assert!(
        left <= Duration::from_secs(3) && left > Duration::from_secs(2),
        "{left:?}"
    );
    five.set([D, W, W, W, W]);
    let left = five.inspect().unwrap().remaining.unwrap();
    assert!(
        left <= Duration::from_secs(3) && left > Duration::from_secs(2),
        "{left:?}"
    );
    // Of two the shorter: the others are silent, and may have it for as long.
    five.lose(&[2], None);
    five.set([D, D, W, W, W]);
    let left = five.inspect().unwrap().remaining.unwrap();
    assert!(
        left <= Duration::from_secs(4) && left > Duration::from_secs(3),
        "{left:?}"
    );
}

#[test]
fn a_renewal_is_of_a_majority_and_gives_the_hold_back_where_it_is_gone() {
    let renew = |five: &Five| {
        let renewal = five.quorum.renew(&[claim("me", 1)], soon()).pop();
        renewal.unwrap()
    };
    let five = Five::held(1);
    five.lose(&[0, 1], None);
    assert_eq!(renew(&five), Renewal::Renewed);
    assert_eq!(five.levels(), [1; 5]);
    five.lose(&[0, 1], Some("other"));
    assert_eq!(renew(&five), Renewal::Renewed);
    assert_eq!(five.levels(), [0, 0, 1, 1, 1], "another one has it there");
    five.set([W, W, D, W, W]);
    match renew(&five) {
        Renewal::Unknown(reason) => {
            assert!(reason.contains("2 of 5"), "{reason}");
            assert!(reason.contains("it is dead"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    five.set([W; 5]);
    five.lose(&[2], None);
    let holder = claim("other", 0).visitor.to_string();
    assert_eq!(renew(&five), Renewal::Lost(LossCause::HeldBy(holder)));
    let five = Five::held(1);
    five.lose(&[2, 3, 4], None);
    assert_eq!(renew(&five), Renewal::Lost(LossCause::Gone));
    assert!(five.quorum.renew(&[], soon()).is_empty());
}

#[test]
fn a_hold_is_extended_as_often_as_it_may_be() {
    let mut five = Five::held(1);
    five.quorum.settings.max_extensions = Some(2);
    let other = claim("other", 1);
    five.quorum
        .acquire(
            &Claim {
                name: "b".into(),
                ..claim("other", 0)
            },
            soon(),
        )
        .unwrap();
    let claims = [
        claim("me", 1),
        Claim {
            name: "b".into(),
            ..other
        },
    ];
    let renewed = |five: &Five, claims: &[Claim]| {
        let renewals = five.quorum.renew(claims, soon());
        let renewed = renewals.iter().map(|it| *it == Renewal::Renewed);
        renewed.collect::<Vec<_>>()
    };
    assert_eq!(renewed(&five, &claims[..1]), [true]);
    assert_eq!(renewed(&five, &claims), [true, true]);
    assert_eq!(renewed(&five, &claims), [false, true]);
    assert_eq!(renewed(&five, &claims), [false, false]);
}

#[test]
fn a_node_that_does_not_answer_is_left_alone_for_longer_and_longer() {
    let five = Five::new();
    let node = &five.quorum.nodes[0];
    let purpose = Purpose::Renewal;
    let pause = || {
        let breaker = node.breaker.lock();
        let left = breaker
            .deadline
            .map(|it| it.saturating_duration_since(time::now()));
        (breaker.pause.as_millis(), left.map(|it| it.as_millis() > 0))
    };
    assert!(!node.is_tripped(purpose));
    node.trip(&five.nodes[0].error(true));
    assert!(!node.is_tripped(purpose), "it has answered");
    for expected in [250, 500, 1_000, 1_000] {
        node.trip(&five.nodes[0].error(false));
        assert!(node.is_tripped(purpose));
        assert_eq!(pause(), (expected, Some(true)));
    }
    assert_eq!(node.breaker.lock().reason, "it is dead");
    // When it is time, one tries it, and the others leave it alone until that has an answer.
    node.breaker.lock().deadline = Some(time::now());
    assert!(!node.is_tripped(purpose));
    assert!(node.is_tripped(purpose));
    assert_eq!(pause(), (1_000, Some(true)));
    // It is connected: it is tried, and if it is silent all the same, the pause is as long as before.
    node.revive();
    assert_eq!(pause(), (1_000, None));
    assert!(!node.is_tripped(purpose));
    node.trip(&five.nodes[0].error(false));
    assert_eq!(pause(), (1_000, Some(true)));
    node.reset();
    assert_eq!(pause(), (0, None));
    assert!(node.breaker.lock().reason.is_empty());
    assert!(node.is_connected_by(soon()));
}

#[test]
fn nodes_that_are_left_alone_are_asked_where_there_are_too_few_others() {
    let five = Five::new();
    let order = |tripped: &[usize], among: u64, holds: &[u64]| {
        for (index, node) in five.quorum.nodes.iter().enumerate() {
            node.reset();
            if tripped.contains(&index) {
                node.trip(&five.nodes[0].error(false));
            }
        }
        let order = five.quorum.in_order(among, holds, Purpose::Renewal);
        (order.first, order.aside)
    };
    let all = five.quorum.all();
    assert_eq!(all, 0b11111);
    assert_eq!(order(&[], all, &[]), (vec![0, 1, 2, 3, 4], vec![]));
    assert_eq!(order(&[1, 3], all, &[]), (vec![0, 2, 4], vec![1, 3]));
    assert_eq!(order(&[1, 2, 3], all, &[]), (vec![0, 4, 1, 2, 3], vec![]));
    assert_eq!(order(&[1], 0b00111, &[]), (vec![0, 2, 1], vec![]));
    // A hold that would have too few of its nodes.
    assert_eq!(order(&[0], all, &[0b00111]), (vec![1, 2, 3, 4, 0], vec![]));
    assert_eq!(order(&[0], all, &[0b01111]), (vec![1, 2, 3, 4], vec![0]));
    assert_eq!(
        order(&[0, 4], all, &[0b01111, 0b00111]),
        (vec![1, 2, 3, 0], vec![4])
    );
}

#[test]
fn the_nodes_are_looked_at_and_those_that_vote_counted() {
    let voting = |modes| {
        let five = Five::new();
        five.set(modes);
        let found = five.quorum.check(soon()).unwrap();
        let told = found.iter().find(|it| it.message.contains("have a vote"));
        let told = told.unwrap();
        let silent = found.iter().filter(|it| it.code == "reachable").count();
        (told.severity, told.message.clone(), silent)
    };
    use crate::store::Severity;
    let (severity, message, silent) = voting([W; 5]);
    assert_eq!((severity, silent), (Severity::Ok, 0));
    assert!(message.starts_with("5 of 5"), "{message}");
    let (severity, message, silent) = voting([D, D, W, W, W]);
    assert_eq!((severity, silent), (Severity::Note, 2));
    assert!(message.starts_with("3 of 5"), "{message}");
    let (severity, message, silent) = voting([D, D, D, W, W]);
    assert_eq!((severity, silent), (Severity::Danger, 3));
    assert!(message.contains("no lock can be had"), "{message}");
}

#[test]
fn the_round_trip_follows_those_that_were_measured() {
    let five = Five::new();
    assert_eq!(five.quorum.round_trip(), FIRST_ROUND_TRIP);
    five.quorum.note_round_trip(Duration::from_millis(10));
    assert_eq!(five.quorum.round_trip(), Duration::from_millis(3));
    five.quorum.note_round_trip(Duration::from_millis(3));
    assert_eq!(five.quorum.round_trip(), Duration::from_millis(3));
    assert_eq!(five.quorum.node_timeout(LEASE), Duration::from_millis(50));
    assert_eq!(five.quorum.node_timeout(LEASE * 100), NODE_TIMEOUTS[1]);
    assert_eq!(five.quorum.node_timeout(LEASE / 1_000), NODE_TIMEOUTS[0]);
}
