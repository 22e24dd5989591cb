//! Three commands under a lock: in one script with the check of the hold, and between `MULTI` and `EXEC`.

use redlatch::Client;

use crate::harness::bare;
use crate::support::RedisServer;
use crate::{Compared, by_turns};

/// What both sides write.
const VALUE: &str = "one piece";

pub(crate) fn measure(server: &RedisServer) -> Compared {
    let client = Client::open(&server.url()).expect("a client");
    let guard = client.lock("guarded").guard().expect("the lock is free");
    let mut connection = bare::connect(&server.url());
    by_turns(
        "guarded_vs_multi",
        || {
            let replies = guard.write(|batch| {
                batch.incr_by("ours:count", 1);
                batch.hset("ours:hash", "field", VALUE).get("ours:count");
            });
            assert_eq!(replies.expect("the lock is held").len(), 3);
        },
        || {
            let mut multi = redis::pipe();
            multi.atomic().cmd("INCRBY").arg("bare:count").arg(1);
            multi.cmd("HSET").arg("bare:hash").arg("field").arg(VALUE);
            multi.cmd("GET").arg("bare:count");
            let (_, _, count): (i64, i64, i64) = multi.query(&mut connection).expect("an answer");
            assert!(count > 0);
        },
    )
}
