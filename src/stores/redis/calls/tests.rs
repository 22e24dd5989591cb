use std::time::Duration;

use super::*;
use crate::ground::claim::{Kind, LockId};
use crate::stores::redis::layout::KINDS;

/// The place of the number of the request and that of its expiry, by the head of a script.
fn places_in(text: &str) -> (usize, Option<usize>) {
    let place_of = |words: &str| {
        let line = text.lines().find(|line| line.contains(words))?;
        let (_, rest) = line.split_once("ARGV[")?;
        rest.split([']', ' ']).next()?.parse().ok()
    };
    let number = place_of("the number of the request").unwrap_or_default();
    (
        number,
        place_of("the server time after which the request is refused"),
    )
}

fn check(call: &Call<'_>, what: &str, kind: Kind) {
    let packed = call.args.len() + usize::from(call.expires);
    let expiry = call.expires.then_some(packed);
    assert_eq!(
        places_in(&call.script.text),
        (packed + 1, expiry),
        "{what} of {kind:?}"
    );
    assert_eq!(call.script.text.matches("-- KEYS[").count(), 1, "{what}");
}

#[test]
fn a_call_packs_what_the_head_of_its_script_says() {
    for kind in KINDS {
        let claim = Claim {
            kind,
            name: "a".into(),
            visitor: VisitorId::new("client", 1, 1),
            count: 1,
            lease: Duration::from_secs(1),
        };
        let lock = LockId {
            kind,
            name: "a".into(),
        };
        let inspect = Inspect {
            lock: &lock,
            visitor: None,
        };
        check(&inspect.call(), "inspect", kind);
        let force_release = ForceRelease::new(&lock);
        check(&force_release.call(), "force_release", kind);
        check(&Acquire::new(&claim).call(), "acquire", kind);
        let hand_off = HandOff::new(&claim, &claim);
        check(&hand_off.call(), "transfer", kind);
        check(&Release::new(&claim).call(), "release", kind);
        let level = ReleaseLevel::new(&claim, 1);
        check(&level.call(), "release_level", kind);
        let resolve = Resolve::new(claim.in_doubt(0));
        check(&resolve.call(), "withdraw", kind);
    }
}
