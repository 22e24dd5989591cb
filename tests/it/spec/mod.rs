//! The scripts in Lua, the functions that specify them, and the other stores answer alike.

mod alike;
mod both;
mod clients;
pub(crate) mod front;
mod operations;
mod shrink;
mod wire;
mod words;

use std::ops::Range;
use std::time::Instant;

use crate::support::is_long;
use both::{Both, Difference};
use operations::{Op, draw, draw_counts, draw_fair, draw_places, draw_sides};

/// Runs drawn sequences on both sides, and returns how many operations were compared.
///
/// # Errors
///
/// The report of the first difference, and how many operations show it.
fn compare(seeds: Range<u64>, both: &mut Both) -> Result<u64, (String, usize)> {
    let mut compared = 0;
    for seed in seeds {
        let ops = draw(seed);
        match both.run(&ops) {
            Ok(count) => compared += count,
            Err(difference) => return Err(shrunk(seed, ops, difference, both)),
        }
    }
    Ok(compared)
}

/// The report of a difference, with the fewest operations that still show one.
fn shrunk(seed: u64, ops: Vec<Op>, found: Difference, both: &mut Both) -> (String, usize) {
    let before = ops.len();
    let mut last = found;
    let ops = shrink::shrink(ops, |fewer| match both.run(fewer) {
        Ok(_) => false,
        Err(difference) => {
            last = difference;
            true
        }
    });
    let steps: Vec<_> = ops.iter().map(|op| format!("  {op:?}")).collect();
    let report = format!(
        "seed {seed}: {last}\nshrunk from {before} operations to {}:\n{}",
        ops.len(),
        steps.join("\n")
    );
    (report, ops.len())
}

#[test]
fn the_scripts_do_as_they_are_specified() {
    let sequences = if is_long() { 20_000 } else { 400 };
    let mut both = Both::start();
    let start = Instant::now();
    let compared = compare(0..sequences, &mut both);
    let compared = compared.unwrap_or_else(|(report, _)| panic!("{report}"));
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{sequences} sequences, {compared} operations, {:.0} sequences/s, {} run again after a pause",
        sequences as f64 / seconds,
        both.paused
    );
}

#[test]
fn the_scripts_of_read_write_locks_do_as_they_are_specified() {
    let mut both = Both::start();
    for seed in 0..if is_long() { 20_000 } else { 1500 } {
        let ops = draw_sides(seed);
        if let Err(difference) = both.run(&ops) {
            let (report, _) = shrunk(seed, ops, difference, &mut both);
            panic!("{report}");
        }
    }
}

#[test]
fn the_scripts_of_conditions_do_as_they_are_specified() {
    let mut both = Both::start();
    for seed in 0..if is_long() { 20_000 } else { 1000 } {
        let ops = draw_places(seed);
        if let Err(difference) = both.run(&ops) {
            let (report, _) = shrunk(seed, ops, difference, &mut both);
            panic!("{report}");
        }
    }
}

#[test]
fn the_scripts_of_fair_locks_do_as_they_are_specified() {
    let mut both = Both::start();
    for seed in 0..if is_long() { 20_000 } else { 1500 } {
        let ops = draw_fair(seed);
        if let Err(difference) = both.run(&ops) {
            let (report, _) = shrunk(seed, ops, difference, &mut both);
            panic!("{report}");
        }
    }
}

#[test]
fn a_specification_that_differs_is_found() {
    let mut both = Both::start();
    // It grants for 61 s in place of 60.
    both.planted = |request| {
        let lease = request.iter_mut().find(|it| **it == b"60000");
        lease.into_iter().for_each(|it| *it = b"61000".to_vec());
    };
    let (report, length) = compare(0..100, &mut both).unwrap_err();
    assert!(length <= 2 && report.contains("until"), "{report}");
    // It cares for nobody's vote.
    both.planted = |request| {
        // That of an acquisition, which has one key.
        if request.len() == 11 && request[2] == b"1" {
            request.remove(9);
        }
    };
    let (report, length) = compare(0..500, &mut both).unwrap_err();
    assert!(length == 1 && report.contains("History(false)"), "{report}");
}

/// Bugs in scripts of counters: what is right, and what is wrong.
const PLANTED: &[(&str, &str, &str)] = &[
    // Copies of a request count once more.
    ("latch/count", "if before then", "if false then"),
    ("latch/count", "'PX', ARGV[4])", "'PX', 1)"),
    // Its waiters are told that it was set.
    (
        "latch/count",
        "pcall('DEL', latch), '0'",
        "pcall('DEL', latch), '1'",
    ),
    // It stays, open, for nobody to set again.
    ("latch/count", "op == 'down' and left > 0", "op == 'down'"),
    // A request that was refused has run.
    ("latch/count", "    pcall('DEL', once)\n", ""),
    // Permits are given back twice.
    (
        "permits/release",
        "call('ZREM', owners, visitor)\nlocal heard",
        "local heard",
    ),
    // Those of dead holders are gone for good, or come from nowhere.
    (
        "permits/acquire",
        "free = call('INCRBY', key, back)",
        "free = free + 0",
    ),
    (
        "permits/acquire",
        "pcall('ZREM', owners, unpack(over))",
        "0",
    ),
    // By another clock than the server's.
    (
        "permits/acquire",
        "if next and next <= now then",
        "if next and next <= now + 3000 then",
    ),
    // A copy takes once more, or shortens the end.
    ("permits/acquire", "if has then", "if false then"),
    (
        "permits/acquire",
        "if has + 0 < ends + 0 then",
        "if true then",
    ),
    // What could not be owned is taken.
    (
        "permits/acquire",
        "        call('DECRBY', key, -wanted)\n",
        "",
    ),
    // They outlast their semaphore.
    (
        "permits/acquire",
        "if life >= 0 and life <",
        "if false and life <",
    ),
    (
        "permits/renew",
        "if life >= 0 and life <",
        "if false and life <",
    ),
    // A full server ends what is held, or gets nothing back.
    ("permits/renew", "pcall('ZREM', owners, '')", "-- none"),
    // Permits are lost when the end that the semaphore had is put off or lifted, or their notes stay when it ends.
    (
        "permits/renew",
        "        keep_taken(owners, key, life)\n",
        "",
    ),
    (
        "permits/acquire",
        "end\nkeep_taken(owners, key, life)\n",
        "end\n",
    ),
    (
        "permits/acquire",
        "last(math.max(life - by, 0))",
        "last(life + 1000)",
    ),
    (
        "permits/count",
        "    keep_taken(owners, key, pcall('PTTL', key))\n",
        "",
    ),
    (
        "permits/count",
        "end\nkeep_taken(owners, key, pcall('PTTL', key))\n",
        "end\n",
    ),
    (
        "permits/acquire",
        "elseif life == -1 and left >= 0 then",
        "elseif false then",
    ),
    (
        "permit_ids/renew",
        "        keep_taken(taken, key, life)\n",
        "",
    ),
    (
        "permit_ids/acquire",
        "end\nkeep_taken(taken, key, life)\n",
        "end\n",
    ),
    (
        "permit_ids/count",
        "    keep_taken(taken, key, pcall('PTTL', key))\n",
        "",
    ),
    (
        "permit_ids/count",
        "end\nkeep_taken(taken, key, pcall('PTTL', key))\n",
        "end\n",
    ),
    ("permits/release", "call('ZREM', owners, '')", "0"),
    // Holders of one that is gone give back to the next one.
    (
        "permits/count",
        "    done = forget_taken(owners)\nend",
        "    done = 0\nend",
    ),
    // What the dead had is not told, or comes back though it was drained.
    ("permits/count", "(free or 0) + back}}", "(free or 0)}}"),
    (
        "permits/count",
        "call('ZREM', owners, unpack(over))",
        "-- none",
    ),
    // Too many permits cannot be taken away again.
    ("permits/count", " and ARGV[2] + 0 > 0", ""),
    (
        "permits/count",
        "done = forget_taken(owners)\n    done =",
        "done =",
    ),
    ("permits/renew", "not has or not free", "not has"),
    // They stand though their semaphore is text by now.
    (
        "permits/renew",
        "or free and not string.find(free, '^%-?%d+$')",
        "",
    ),
    ("permits/count", "'PX', ARGV[4])", "'PX', 1)"),
    // The same where they have ids.
    (
        "permit_ids/release",
        "call('ZREM', taken, unpack(there))\nlocal heard",
        "local heard",
    ),
    ("permit_ids/release", "ends + 0 > now then", "true then"),
    // Nobody is said to have heard of it.
    (
        "permit_ids/release",
        " + (heard < 4194304 and heard or 4194303)",
        "",
    ),
    ("permit_ids/release", "call('ZREM', taken, '')", "0"),
    (
        "permit_ids/withdraw",
        "    call('ZREM', taken, unpack(there))\n",
        "",
    ),
    (
        "permit_ids/acquire",
        "free = call('INCRBY', key, back)",
        "free = free + 0",
    ),
    (
        "permit_ids/acquire",
        "if next and next <= now then",
        "if next and next <= now + 3000 then",
    ),
    (
        "permit_ids/acquire",
        "if call('ZSCORE', taken, ids[1]) then",
        "if false then",
    ),
    (
        "permit_ids/acquire",
        "        call('DECRBY', key, -#ids)\n",
        "",
    ),
    (
        "permit_ids/acquire",
        "if life >= 0 and life <",
        "if false and life <",
    ),
    (
        "permit_ids/renew",
        "if life >= 0 and life <",
        "if false and life <",
    ),
    ("permit_ids/renew", "pcall('ZREM', taken, '')", "-- none"),
    (
        "permit_ids/renew",
        "elseif not free then",
        "elseif false then",
    ),
    (
        "permit_ids/renew",
        "or free and not string.find(free, '^%-?%d+$')",
        "",
    ),
    (
        "permit_ids/renew",
        "            what = 0\n        end\n",
        "        end\n",
    ),
    ("permit_ids/count", "if before then", "if false then"),
    ("permit_ids/count", "        call('ZREM', taken, '')\n", ""),
    (
        "permit_ids/count",
        "free + call('ZCOUNT', taken, '-inf', at)",
        "free + 0",
    ),
    ("permit_ids/count", "'(' .. at, '+inf')", "'-inf', '+inf')"),
    (
        "permit_ids/count",
        "by - free - call('ZCOUNT', taken, '-inf', '+inf')",
        "by - free",
    ),
    (
        "permit_ids/count",
        "life >= 0 and math.min",
        "false and math.min",
    ),
    ("permit_ids/count", " and by + 0 > 0", ""),
    (
        "permit_ids/count",
        "done = forget_taken(taken)\n    done =",
        "done =",
    ),
    (
        "permit_ids/count",
        "math.min(now + by, 922337203685477)",
        "now + by",
    ),
];

/// The same of the scripts of read-write locks.
const PLANTED_IN_SIDES: &[(&str, &str, &str)] = &[
    // A reader that was turned away before is turned away again, or a re-entry is, or nobody.
    (
        "rw/read",
        "(memo == '' or tonumber(memo) == behind)",
        "true",
    ),
    (
        "rw/read",
        "if is_new and mode ~= 'write' and",
        "if mode ~= 'write' and",
    ),
    (
        "rw/read",
        "(memo == '' or tonumber(memo) == behind)",
        "false",
    ),
    // Only those are noted who are turned away beside a waiting writer.
    (
        "rw/read",
        "if need > 0 then\n    local _, others",
        "if false then\n    local _, others",
    ),
    // Writers do not come by arrival, nor behind readers, and count when they are dead.
    ("rw/write", "if writer or rest > 0 then", "if rest > 0 then"),
    ("rw/write", "if writer or rest > 0 then", "if writer then"),
    (
        "rw/write",
        "rest > 0 and rest <= 1000 and rest or 0",
        "rest > 0 and rest or 0",
    ),
    // A free lock that is kept for readers turns them away, or one that others read does not.
    (
        "rw/read",
        "is_turned and (mode or window_of(others, now) == 0)",
        "is_turned",
    ),
    (
        "rw/read",
        "(mode or window_of(others, now) == 0)",
        "window_of(others, now) == 0",
    ),
    ("rw/write", "elseif left > 0 and", "elseif"),
    ("rw/write", "local begun = came() or", "local begun ="),
    // One that only tries overtakes those who wait.
    ("rw/write", "if waits >= -1 then", "if waits > 0 then"),
    // One that only tries leaves time for readers.
    ("rw/write", "local rest = waits >= 0 and", "local rest ="),
    // The dead are never forgotten.
    ("rw/write", "elseif left < -6000 then", "elseif false then"),
    // A reader waits on beside those of Redisson, or for no writer for long.
    (
        "rw/read",
        "is_turned = is_turned and not",
        "is_turned = is_turned or",
    ),
    (
        "rw/read",
        "is_turned = is_turned and not",
        "is_turned = false and",
    ),
    // The notes of readers end while they wait.
    ("rw/read", "        keep_notes(notes, 3000)\n", ""),
    // A writer that is in still waits, or begins no phase.
    ("rw/write", "pcall('HDEL', notes, visitor)", "local _ = 0"),
    (
        "rw/write",
        "pcall('HINCRBY', notes, 'phase', 1)",
        "local _ = 0",
    ),
    // Readers are waited for again and again, or not at all; one that gives up tells nobody.
    (
        "rw/release",
        "redis.pcall('HDEL', notes, 'turned')",
        "local _ = 0",
    ),
    // One that comes ends nothing, or the time of all; one that comes late ends that of others; each look counts.
    (
        "rw/read",
        "has_come(notes, others, memo + 0)",
        "local _ = 0",
    ),
    ("rw/read", "if due + 0 == 1 then", "if true then"),
    ("rw/read", "if due + 0 == 1 then", "if false then"),
    ("rw/read", "behind == opened + 0", "true"),
    ("rw/read", "and not (due and behind < opened + 0)", ""),
    ("rw/read", "if count + 0 > 1 then", "if false then"),
    ("rw/read", " and due + 0 > 0 then", " then"),
    (
        "rw/read",
        "or not told or told ~= behind and told <= opened) and 1 or 0",
        ") and 1 or 0",
    ),
    (
        "rw/read",
        "or not told or told ~= behind and told <= opened) and 1 or 0",
        "or true) and 1 or 0",
    ),
    (
        "rw/read",
        "told ~= behind and told <= opened)",
        "told ~= behind)",
    ),
    (
        "rw/read",
        "told ~= behind and told <= opened)",
        "told <= opened)",
    ),
    ("rw/read", "if others and need > 0 and", "if others and"),
    (
        "rw/release",
        "redis.pcall('HSET', notes, 'window'",
        "redis.pcall('HGET', notes, 'window'",
    ),
    (
        "rw/withdraw",
        "    message = '1'\nend\nif redis",
        "end\nif redis",
    ),
    // A copy of the first request counts, or shortens the end.
    ("rw/read", "elseif is_new then", "else"),
    ("rw/read", "local set = ends < lease + 0 and", "local set ="),
    ("rw/read", "set = lasts < lease + 0 and", "set ="),
    (
        "rw/write",
        "lengthen(key, lease)",
        "call('PEXPIRE', key, lease)",
    ),
    // The writer has no time key, so nobody knows when it ends.
    (
        "rw/read",
        "if mode == 'write' and is_new then",
        "if false then",
    ),
    // A writer that is over comes back with one that reads inside.
    (
        "rw/read",
        "if not is_over(key, writers, inside) and call",
        "if call",
    ),
    // A reader comes in beside any writer, or not inside its own.
    ("rw/read", "and call('HEXISTS', key, inside) == 1", ""),
    (
        "rw/read",
        "or inside ~= '' and call('HEXISTS', key, inside) == 1",
        "",
    ),
    // The time key is not renewed.
    ("rw/renew", "            lengthen(own, lease)\n", ""),
    // A hold that is over is renewed, or entered again.
    (
        "rw/renew",
        "elseif is_over(key, own, visitor) then",
        "elseif false then",
    ),
    ("rw/read", "or is_over(key, own, visitor)", ""),
    ("rw/write", "or is_over(key, own, visitor)", ""),
    // A part that is given back shortens the hash.
    (
        "rw/release_level",
        "settle(key, others)\nelse",
        "redis.call('PEXPIRE', key, lease)\nelse",
    ),
    // Or leaves the lock to readers beside its writer.
    (
        "rw/release_level",
        "others.has_writer or string.sub(visitor, -6) == ':write'",
        "others.has_writer",
    ),
    // The last live reader does not look at the dead, or looks although another lives on.
    (
        "rw/release",
        "or left <= 0 or left >= lasts - 1000 or",
        "or",
    ),
    ("rw/release", "or left <= 0 or", "or"),
    ("rw/release", "or left >= lasts - 1000 or", "or"),
    // The dead are not taken out, and Redisson's other levels are not looked at.
    (
        "rw/release",
        "redis.call('HDEL', key, field)",
        "local _ = field",
    ),
    ("rw/release", "tonumber(count) or 0", "1"),
    // Or levels of others are.
    (
        "rw/release",
        "string.find(field, '^[^:]+:%d+$') and math.min",
        "math.min",
    ),
    // A writer that is over stays beside its readers.
    (
        "rw/release",
        "if others.mode == 'write' and not others.has_writer and",
        "if false and",
    ),
    // No message at the downgrade, or the wrong one.
    (
        "rw/release",
        "return writes and '1' or message",
        "return message",
    ),
    (
        "rw/release",
        "return others.mode == 'write' and '1' or '0'",
        "return nil",
    ),
    // The writer goes before readers may have the lock, or a full server is asked for memory first.
    (
        "rw/withdraw",
        "if writes and redis.call('HLEN', key) > 2 then",
        "if false then",
    ),
    ("rw/release", "        prolong(key, 1)\n", ""),
    // The time key of a hold that was taken away stays.
    ("rw/release", "    redis.pcall('DEL', KEYS[2])\n", ""),
    // The time is asked for when the hold is gone.
    (
        "rw/release",
        "':write' and redis.call('TIME')\nlocal message, refused = leave(KEYS[1], KEYS[2], ARGV[1])",
        "':write'\nlocal message, refused = leave(KEYS[1], KEYS[2], ARGV[1])\ntime = time and redis.call('TIME')",
    ),
    ("rw/force_release", "mode ~= ARGV[2]", "not mode"),
    // Readers that were turned away are not waited for behind a forced release.
    ("rw/force_release", "    open_window(KEYS[2], now)\n", ""),
    ("rw/inspect", "call('HLEN', key) < 3", "false"),
];

/// The same of the scripts of conditions.
const PLANTED_IN_PLACES: &[(&str, &str, &str)] = &[
    // A copy of the request for a place puts it behind all others.
    (
        "condition/look",
        "if not call('ZSCORE', waiting, visitor) then",
        "if true then",
    ),
    // One that comes behind a clock that was set back is before the others.
    ("condition/look", "last and last + 1 or 0", "0"),
    // A place is taken, or a signal given, without the lock.
    (
        "condition/look",
        "elseif has == 0 then",
        "elseif false then",
    ),
    (
        "condition/signal",
        "elseif has == 0 then",
        "elseif false then",
    ),
    // What was refused stays.
    (
        "condition/look",
        "        pcall('ZREM', waiting, visitor)\n",
        "",
    ),
    // A wait that is over cannot be ended late.
    (
        "condition/look",
        " and (op == 'enlist' or op == 'look') then",
        " then",
    ),
    // A late copy takes a place anew.
    (
        "condition/look",
        "now > ARGV[6] + 0 and (op == 'enlist' or",
        "now > ARGV[6] + 0 and (",
    ),
    // Those who wait are never dropped.
    (
        "condition/look",
        "pcall('PEXPIRE', waiting, 10 * life)",
        "1",
    ),
    // On a full server it is dead in any case.
    (
        "condition/look",
        "    local lasts = pcall('PEXPIRE', waiting, 10 * life)\n    local heard = pcall('ZADD', due, string.format('%.0f', now + life), visitor)\n",
        "    local heard = pcall('ZADD', due, string.format('%.0f', now + life), visitor)\n    local lasts = pcall('PEXPIRE', waiting, 10 * life)\n",
    ),
    // One that looks is dead after a while.
    (
        "condition/look",
        "    keep()\n    return {number, {0, now}}",
        "    return {number, {0, now}}",
    ),
    // One that was silent for long gives itself up.
    ("condition/look", "if other ~= visitor and", "if"),
    // The signals of the dead are lost, or those who had none give one.
    (
        "condition/look",
        "and call('ZREM', waiting, other) == 0 then",
        "and false and call('ZREM', waiting, other) == 0 then",
    ),
    (
        "condition/look",
        "and call('ZREM', waiting, other) == 0 then",
        "and call('ZREM', waiting, other) >= 0 then",
    ),
    // One that was told passes nothing on, or one that was signalled does not.
    (
        "condition/look",
        "(was_signalled or op == 'pass')",
        "was_signalled",
    ),
    (
        "condition/look",
        "(was_signalled or op == 'pass')",
        "op == 'pass'",
    ),
    // A place that is given up gives a signal.
    ("condition/look", "if not waits and (", "if ("),
    // The dead are signalled, and counted.
    (
        "condition/look",
        "if ends and ends + 0 > now then",
        "if true then",
    ),
    (
        "condition/signal",
        "if ends and ends + 0 > now then",
        "if ends then",
    ),
    // One that is signalled still stands there.
    (
        "condition/signal",
        "redis.pcall('PUBLISH',",
        "redis.call('ZADD', waiting, 7, first) redis.pcall('PUBLISH',",
    ),
    // Nobody is told.
    (
        "condition/signal",
        "redis.pcall('PUBLISH', channels .. ':' .. first, '0')",
        "local _ = 0",
    ),
    // The one that came last is signalled first.
    (
        "condition/signal",
        "'ZRANGE', waiting, 0, 0",
        "'ZRANGE', waiting, -1, -1",
    ),
];

#[test]
fn a_bug_in_a_script_of_a_condition_is_found() {
    let mut both = Both::start();
    for (script, right, wrong) in PLANTED_IN_PLACES {
        both.plant(script, right, wrong);
        let is_found = (0..3000).any(|seed| both.run(&draw_places(seed)).is_err());
        assert!(is_found, "{script}: {right} → {wrong}");
        both.mend(script);
    }
}

/// The same of the scripts of fair locks.
const PLANTED_IN_QUEUES: &[(&str, &str, &str)] = &[
    // Those who were thrown out go to the end, or all who come to the front.
    (
        "fair/acquire",
        "call('LPUSH', queue, visitor)",
        "call('RPUSH', queue, visitor)",
    ),
    (
        "fair/acquire",
        "call('RPUSH', queue, visitor)",
        "call('LPUSH', queue, visitor)",
    ),
    // Those behind one that comes back have no more time than before, or more each time.
    (
        "fair/acquire",
        "            pcall('ZINCRBY', times, patience, waiter)\n",
        "",
    ),
    (
        "fair/acquire",
        "next + 0 < begins + patience * 1.5 then",
        "true then",
    ),
    // One that only tries takes a place.
    ("fair/acquire", "if wish == 'never' then", "if false then"),
    // The times of those behind stay where they were.
    (
        "fair/acquire",
        "take_time(times, pcall('ZRANGE', times, 0, -1, 'WITHSCORES'), patience, now)",
        "local _ = 0",
    ),
    (
        "fair/withdraw",
        "take_time(times, behind, ARGV[3] + 0, now)",
        "local _ = 0",
    ),
    ("fair/withdraw", "elseif is_behind then", "else"),
    // Those that are alive are left with less than half of a patience, or the dead come to life.
    (
        "fair/acquire",
        "math.max(ends - patience, least)",
        "ends - patience",
    ),
    (
        "fair/withdraw",
        "math.max(ends - patience, least)",
        "ends - patience",
    ),
    ("fair/acquire", "if ends > least then", "if true then"),
    // They sink under contention, and the dead are never gone.
    (
        "fair/acquire",
        "or ends + 0 < due - patience / 2 then",
        "then",
    ),
    (
        "fair/acquire",
        "if type(ends) == 'string' and ends + 0 > now then",
        "if ends then",
    ),
    // The silent are thrown out before their time, or never, or one that is not the first before it.
    ("fair/acquire", "(listens and 10000 or 1500)", "0"),
    ("fair/acquire", "listens and 10000 or 1500", "1500"),
    ("fair/acquire", "listens and 10000 or 1500", "10000"),
    ("fair/acquire", "listens and 10000 or", "listens and 1e9 or"),
    (
        "fair/acquire",
        "if goes and left <= 0 then",
        "if left <= 0 then",
    ),
    // Each of them costs a silence, or the living have notes.
    (
        "fair/acquire",
        "if place == 1 and listens and silence < 1000 then",
        "if listens then",
    ),
    (
        "fair/acquire",
        "if place == 1 and listens and silence < 1000 then",
        "if false then",
    ),
    ("fair/acquire", "until is_over", "until true"),
    // One that listened until now is dead at once, and one that has begun to listen.
    ("fair/acquire", "since and since >= least and", "since and"),
    ("fair/acquire", "listens and 1 or -1", "1"),
    // One of Redisson is silent by a note of its last wait, and anybody by one of a clock that was ahead.
    (
        "fair/acquire",
        "since = of == wait and since / unit",
        "since = since and since / unit",
    ),
    ("fair/acquire", "and since <= now then", "then"),
    // A look clears no suspicion, nor does a hold one of Redisson, whose looks clear none.
    (
        "fair/acquire",
        "pcall('HDEL', absent, visitor)",
        "local _ = 0",
    ),
    (
        "fair/acquire",
        "    if is_held then\n        pcall",
        "    if false then\n        pcall",
    ),
    (
        "fair/acquire",
        "if has_absent and first then",
        "if false then",
    ),
    (
        "fair/acquire",
        "    elseif has_absent then\n        pcall('DEL', absent)\n",
        "",
    ),
    (
        "fair/acquire",
        "wait, silent_since('', 1, '', 1))",
        "wait, 1)",
    ),
    // One of Redisson that listens is thrown out, or one that may listen elsewhere.
    (
        "fair/acquire",
        "if is_ours(waiter) then\n",
        "if true then\n",
    ),
    ("fair/acquire", " or ARGV[8] ~= '1'", ""),
    // The times that were lost come back without an end.
    (
        "fair/acquire",
        "    if not ends then\n",
        "    if false then\n",
    ),
    // The set alone tells of a place, or the list of one that is dead.
    (
        "fair/acquire",
        "if length ~= call('ZCARD', times) or not",
        "if not",
    ),
    (
        "fair/acquire",
        " or not ends and wish == 'rejoin' then",
        " then",
    ),
    (
        "fair/acquire",
        "if not first and call('EXISTS', times) == 1 then",
        "if false then",
    ),
    // Nobody is told again, nor the next one, nor anybody that one leaves, nor by itself.
    (
        "fair/acquire",
        "tells and {channel, pcall('PUBLISH', channel, '0')} or ",
        "",
    ),
    (
        "fair/withdraw",
        "    tell_first(queue, times, ARGV[2], now)\n",
        "",
    ),
    (
        "fair/withdraw",
        "freed == 1 or call('LINDEX', queue, 0) == visitor",
        "freed == 1",
    ),
    (
        "fair/release",
        "local heard = redis.pcall('PUBLISH', base .. ':' .. first, '0')",
        "local heard = redis.pcall('PUBLISH', base, '0')",
    ),
    (
        "fair/force_release",
        "tell_first(KEYS[2], KEYS[3], ARGV[1], now)\n",
        "\n",
    ),
    // One of Redisson is told that is not the first, and would ask without an end.
    (
        "fair/release",
        "if heard == 0 and is_ours(waiter) then",
        "if heard == 0 then",
    ),
    (
        "fair/acquire",
        "call('PTTL', key) or 1000\n",
        "call('PTTL', key) or 0\n",
    ),
    // A copy shortens the end.
    (
        "fair/acquire",
        "if call('PTTL', key) < ARGV[2] + 0 then",
        "if true then",
    ),
    // One that has the lock, or has left, still waits.
    (
        "fair/acquire",
        "pcall('ZREM', times, visitor)",
        "local _ = 0",
    ),
    ("fair/withdraw", "    call('LREM', queue, 0, visitor)\n", ""),
    ("fair/withdraw", "call('ZREM', times, visitor)", ""),
    // What could not be finished stands, and the queue for ever.
    (
        "fair/acquire",
        "if type(gone) == 'table' then",
        "if false then",
    ),
    ("fair/acquire", "    call('PEXPIRE', queue, 86400000)\n", ""),
    // All look each second, or one whom no message reaches looks rarely, or late.
    (
        "fair/acquire",
        "if is_held and place > 2 and is_heard(visitor) then",
        "if false then",
    ),
    ("fair/acquire", " and is_heard(visitor)", ""),
    (
        "fair/acquire",
        "goes, pause = false, math.max(50, math.min(left, 1000))",
        "goes = false",
    ),
    // One that gives up leaves what was noted of it.
    (
        "fair/withdraw",
        "pcall('HDEL', KEYS[4], visitor)",
        "local _ = 0",
    ),
    // None of those who wait is counted.
    ("fair/waiters", "redis.call('LLEN', KEYS[1])", "0"),
];

#[test]
fn a_bug_in_a_script_of_a_fair_lock_is_found() {
    let mut both = Both::start();
    for (script, right, wrong) in PLANTED_IN_QUEUES {
        both.plant(script, right, wrong);
        let is_found = (0..4000).any(|seed| both.run(&draw_fair(seed)).is_err());
        assert!(is_found, "{script}: {right} → {wrong}");
        both.mend(script);
    }
}

#[test]
fn a_bug_in_a_script_of_a_read_write_lock_is_found() {
    let mut both = Both::start();
    for (script, right, wrong) in PLANTED_IN_SIDES {
        both.plant(script, right, wrong);
        let is_found = (0..4000).any(|seed| both.run(&draw_sides(seed)).is_err());
        assert!(is_found, "{script}: {right} → {wrong}");
        both.mend(script);
    }
}

#[test]
fn a_bug_in_a_script_of_a_counter_is_found() {
    let mut both = Both::start();
    for (script, right, wrong) in PLANTED {
        both.plant(script, right, wrong);
        let is_found = (0..2000).any(|seed| both.run(&draw_counts(seed)).is_err());
        assert!(is_found, "{script}: {wrong}");
        both.mend(script);
    }
}
