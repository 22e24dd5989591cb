//! A multi-lock of three members, each on its own in-process server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use super::*;
use crate::ground::claim::Kind;
use crate::ground::loss::LossCause;
use crate::stores::redis::in_memory::World;
use crate::stores::redis::in_memory::tests::store_of;

const LEASE: Duration = Duration::from_secs(10);

struct Three {
    worlds: [Arc<World>; 3],
    whole: MultiStore,
}

impl Three {
    fn new() -> Three {
        let worlds: [Arc<World>; 3] = Default::default();
        let members = worlds.iter().map(|world| Member {
            store: store_of(world),
            lock: part(),
            index: 0,
            _keep: Arc::new(()),
        });
        let whole = MultiStore::new(members.collect());
        Three { worlds, whole }
    }

    fn held(count: u32) -> Three {
        let three = Three::new();
        for count in 0..count {
            let granted = three.take(count).unwrap();
            assert!(matches!(granted, Outcome::Done(_)), "{granted:?}");
        }
        three
    }

    fn silence(&self, part: usize) {
        self.worlds[part].fail(|faults| faults.is_silent = true);
    }

    fn take(&self, count: u32) -> Result<Outcome<Granted, Refusal>> {
        self.whole.acquire(&claim("me", count), soon())
    }

    fn release(&self) -> Outcome<Released> {
        self.whole
            .release(&claim("me", 1), Left::Nothing, soon())
            .unwrap()
    }

    fn lose(&self, part_index: usize) {
        let store = store_of(&self.worlds[part_index]);
        store.force_release(&part(), soon()).unwrap();
    }

    fn give(&self, part_index: usize, lease: Duration) {
        self.lose(part_index);
        let other = Claim {
            lease,
            ..claim("other", 0)
        };
        let store = store_of(&self.worlds[part_index]);
        store.acquire(&other, soon()).unwrap();
    }

    fn inspect(&self) -> Result<Holding> {
        let visitor = claim("me", 0).visitor;
        self.whole.inspect(&part(), Some(&visitor), soon())
    }

    /// The hold count of each member. The call makes all servers reachable again.
    fn levels(&self) -> [u32; 3] {
        let visitor = claim("me", 0).visitor;
        [0, 1, 2].map(|index| {
            let world = &self.worlds[index];
            world.fail(|faults| faults.is_silent = false);
            let holding = store_of(world).inspect(&part(), Some(&visitor), soon());
            holding.unwrap().count
        })
    }
}

fn claim(visitor: &str, count: u32) -> Claim {
    Claim {
        kind: Kind::Reentrant,
        name: "a".into(),
        visitor: VisitorId::new(visitor, 1, 1),
        count,
        lease: LEASE,
        is_renewed: false,
        inside: None,
        queueing: Queueing::Barges,
    }
}

fn part() -> LockId {
    LockId {
        kind: Kind::Reentrant,
        name: "a".into(),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(12)
}

#[test]
fn a_refused_or_silent_part_leaves_no_part_acquired() {
    for part in 0..3 {
        let three = Three::new();
        three.give(part, LEASE);
        let refused = three.take(0).unwrap();
        assert!(
            matches!(&refused, Outcome::Refused(it) if it.leftover.is_none()),
            "{refused:?}"
        );
        assert_eq!(three.levels(), [0; 3]);
        let three = Three::new();
        three.silence(part);
        let failed = three.take(0);
        assert!(
            matches!(failed, Err(Error::Unreachable { .. })),
            "{failed:?}"
        );
        assert_eq!(three.levels(), [0; 3]);
    }
}

#[test]
fn a_release_leaves_a_silent_part_in_doubt() {
    let three = Three::held(1);
    three.silence(1);
    let Outcome::Unknown { in_doubt, .. } = three.release() else {
        panic!("a part was silent");
    };
    let in_doubt = (0..3).filter(|part| in_doubt.not_after(*part).is_some());
    assert_eq!(in_doubt.count(), 1);
    assert_eq!(three.levels(), [0, 1, 0]);
    let three = Three::held(1);
    three.give(1, LEASE);
    three.silence(2);
    let lost = three.release();
    assert!(
        matches!(lost, Outcome::Gone(LossCause::HeldBy(_))),
        "{lost:?}"
    );
}

#[test]
fn a_lost_part_loses_the_renewal() {
    let renew = |silent: Option<usize>, lost: Option<usize>| {
        let three = Three::held(1);
        lost.iter().for_each(|part| three.lose(*part));
        silent.iter().for_each(|part| three.silence(*part));
        three.whole.renew(&[claim("me", 1)], soon()).pop().unwrap()
    };
    assert_eq!(renew(None, None), Renewal::Renewed);
    assert!(matches!(renew(Some(1), None), Renewal::Unknown(_)));
    for silent in [None, Some(1), Some(2)] {
        let renewal = renew(silent, Some(0));
        assert_eq!(renewal, Renewal::Lost(LossCause::Gone), "{silent:?}");
    }
}

#[test]
fn the_hold_count_is_the_lowest_of_the_parts() {
    let three = Three::held(3);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 3);
    three.give(1, LEASE / 2);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 0);
    // `remaining` is the longest remaining lease of the members.
    assert!(holding.remaining.unwrap() > LEASE / 2);
    three.silence(2);
    assert!(three.inspect().is_err());
    assert!(!Three::new().inspect().unwrap().is_locked);
}

#[test]
fn only_a_writer_refuses_a_reader() {
    let kinds = |kind| {
        let lock = LockId {
            kind,
            name: "a".into(),
        };
        let all = refusing_locks(&lock).into_iter().flatten();
        all.map(|it| it.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(Kind::Reentrant), [Kind::Reentrant]);
    assert_eq!(kinds(Kind::Write), [Kind::Write, Kind::Read]);
    assert_eq!(kinds(Kind::Read), [Kind::Write]);
}
