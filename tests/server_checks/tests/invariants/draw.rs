//! The steps of a sequence.

use fastrand::Rng;

use super::calls::{Call, Kind, NAMES, Refusal, Step, channel, one};

/// Draws the steps of a sequence for a lock of a kind.
pub(crate) fn drawn(seed: u64, kind: &Kind, name: &str) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let (is_troubled, is_moved, is_set_back) =
        (rng.u8(..3) == 0, rng.u8(..8) == 0, rng.u8(..4) == 0);
    let rng = &mut rng;
    let length = rng.usize(2..50);
    let step = |_| match rng.u8(..100) {
        0..66 => {
            let call = kind.call(rng, name);
            let trouble = match rng.u8(..10) {
                _ if !is_troubled => Refusal::None,
                0 => Refusal::Full,
                1 => Refusal::Alone,
                2 => denied(&call, one(rng, &COMMANDS)),
                _ => Refusal::None,
            };
            Step::Call(call, trouble)
        }
        66..80 => Step::Again(one(rng, &[1, 1, 1, 2, 3])),
        80 if is_set_back => Step::Pass(one(rng, &[-700, -5000, -40_000])),
        81 | 82 if is_moved => Step::Leaving(rng.bool()),
        83 => Step::Forget,
        84..90 => Step::Listen(
            format!("{}:{}", channel(name), one(rng, &kind.visitors)),
            rng.bool(),
        ),
        _ => Step::Pass(one(rng, &[1, 50, 700, 1600, 3000, 3001, 10_300, 31_000])),
    };
    (0..length).map(step).collect()
}

/// The commands that may be forbidden.
const COMMANDS: [&str; 14] = [
    "hset", "hdel", "del", "pexpire", "set", "publish", "zadd", "zrem", "incrby", "decrby", "lpop",
    "rpush", "time", "pubsub",
];

/// A missing right, except for rights without which a script is known to leave more than it found.
fn denied(call: &Call, command: &'static str) -> Refusal {
    match (call.script, command) {
        // The successor's entry exists beside its predecessor's, which cannot be removed.
        ("plain/transfer" | "fenced/transfer", "hdel") => Refusal::None,
        // The hold is gone, but the lock is not free.
        ("read_write/release" | "read_write/withdraw", "del" | "pexpire") => Refusal::None,
        // The queue gets no TTL.
        ("fair/acquire", "pexpire" | "rpush") => Refusal::None,
        _ => Refusal::Denied(command),
    }
}

/// The name of the lock of a sequence.
pub(crate) fn name_of(seed: u64) -> &'static str {
    NAMES[(seed % 2) as usize]
}
