//! Counts: the permits of semaphores and the counts of latches.

use super::ledger::{Holds, entry, ids_of, int, members, number, permits_of, taken_key};
use super::world::Seen;

/// Follows a request for a semaphore: `total` is the sum of its permits.
pub(crate) fn follow(
    seen: &Seen<'_>,
    total: &mut Option<i64>,
    holds: &mut Holds,
) -> Result<(), String> {
    if entry(seen.before, seen.name).is_none() {
        (*total, _) = (None, holds.clear());
    }
    let (call, taken) = (seen.call, taken_key(seen.kind, seen.name));
    let is_copy = call.keys.len() == 3 && entry(seen.before, &call.keys[1]).is_some();
    let answer = seen
        .answer
        .int(2)
        .filter(|_| seen.answer.code() == Some(1) && !is_copy);
    if let (true, Some(answer)) = (call.script.ends_with("/count"), answer) {
        let (amount, visitor) = (int(call, 1), &call.args[5]);
        match &*call.args[0] {
            "set" if answer == 1 => *total = Some(amount),
            "replace" => *total = Some(amount),
            "add" => *total = Some(total.unwrap_or(0) + amount),
            "add_if_there" if answer == 1 => *total = total.map(|it| it + amount),
            "drain" => *total = total.map(|it| it - answer),
            "forget" if answer == 1 => {
                *total = total.map(|it| it - permits_of(seen.kind, visitor));
                holds.remove(visitor);
            }
            "delete" if answer == 1 => (*total, _) = (None, holds.clear()),
            "give_back" if answer == 1 => {
                holds.remove(visitor);
            }
            "set_lease" if answer == 1 => {
                let end = seen.now + amount - 1;
                if let Some(hold) = holds.get_mut(visitor) {
                    hold.end = hold.end.min(end);
                    hold.latest = hold.end;
                }
            }
            _ => {}
        }
    }
    let Some(free) = number(seen.after, seen.name) else {
        (*total, _) = (None, holds.clear());
        return Ok(());
    };
    let owned = members(seen.after, &taken);
    let owned: i64 = owned
        .iter()
        .map(|(member, _)| permits_of(seen.kind, member))
        .sum();
    let sum = Some(free + owned);
    if sum != *total {
        return Err(format!(
            "{free} free and {owned} taken permits, of {total:?}"
        ));
    }
    let valid = holds
        .keys()
        .map(|it| ids_of(seen.kind, it).len() as i64 * permits_of(seen.kind, it));
    if valid.sum::<i64>() > owned {
        return Err(format!("more permits are valid than {owned}: {holds:?}"));
    }
    Ok(())
}

/// Follows a request for a latch.
pub(crate) fn follow_latch(seen: &Seen<'_>, count: &mut Option<i64>) -> Result<(), String> {
    let call = seen.call;
    let is_copy = call
        .keys
        .get(1)
        .is_some_and(|once| entry(seen.before, once).is_some());
    if seen.answer.code() == Some(1) && !is_copy {
        let answer = seen.answer.int(2);
        let expected = match &*call.args[0] {
            "down" => {
                *count = count.map(|it| it - 1).filter(|it| *it > 0);
                count.unwrap_or(0)
            }
            "set" => {
                let is_new = count.is_none();
                count.get_or_insert(int(call, 1));
                i64::from(is_new)
            }
            "delete" => i64::from(count.take().is_some()),
            _ => count.unwrap_or(0),
        };
        if answer != Some(expected) {
            return Err(format!(
                "the latch answers {answer:?} in place of {expected}"
            ));
        }
    }
    match number(seen.after, seen.name) == *count {
        true => Ok(()),
        false => Err(format!("the latch does not stand at {count:?}")),
    }
}
