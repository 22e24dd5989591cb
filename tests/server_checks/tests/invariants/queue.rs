//! Order: the queue of a fair lock, and the queue of a condition.

use std::collections::BTreeMap;

use super::calls::{braced, channel};
use super::ledger::{entry, items, members, score};
use super::world::Seen;

/// What is known of the waiters.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The last query of each.
    looked: BTreeMap<String, i64>,
    /// The first of the queue, and since when other waiters have found it silent at a free lock.
    silent: Option<(String, i64)>,
}

impl Queue {
    /// The clock was set: no query is later than now.
    pub(crate) fn set_back(&mut self, now: i64) {
        self.silent = None;
        for looked in self.looked.values_mut() {
            *looked = (*looked).min(now);
        }
    }

    /// A subscription changed, or the server had a fault: silences start again.
    pub(crate) fn disturb(&mut self) {
        self.silent = None;
    }

    pub(crate) fn follow(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let list = format!("redisson_lock_queue:{}", braced(seen.name));
        let times = format!("redisson_lock_timeout:{}", braced(seen.name));
        let (before, after) = (items(seen.before, &list), items(seen.after, &list));
        let (was_free, is_held) = (
            entry(seen.before, seen.name).is_none(),
            entry(seen.after, seen.name).is_some(),
        );
        let visitor = seen.call.args.first().cloned().unwrap_or_default();
        let is_look = seen.call.script == "fair/acquire"
            && seen.call.args[2] == "0"
            && !seen.answer.is_error()
            && !seen.is_late;
        let is_new = is_look && was_free && is_held;
        let is_alive = |waiter: &String| {
            let is_silent = self
                .looked
                .get(waiter)
                .is_none_or(|at| seen.now - at >= 1500);
            let is_dead = score(seen.before, &times, waiter).is_none_or(|ends| ends <= seen.now);
            !is_silent && !is_dead && is_ours(waiter)
        };
        // No live waiter is skipped, neither by a grant nor by a query.
        for (place, waiter) in before
            .iter()
            .enumerate()
            .filter(|(_, it)| **it != visitor && is_alive(it))
        {
            if !after.contains(waiter) {
                return Err(format!("{waiter} was alive and lost its place {place}"));
            }
            let is_ahead = before
                .iter()
                .position(|it| *it == visitor)
                .is_none_or(|mine| place < mine);
            if is_new && is_ahead {
                return Err(format!("{visitor} passed {waiter}, which was alive"));
            }
        }
        self.keeps_order(seen, &before, &after, &visitor)?;
        if seen.is_calm
            && is_look
            && was_free
            && !is_held
            && before.first().is_none_or(|first| *first == visitor)
        {
            return Err("a free lock was refused to the first".to_owned());
        }
        // Remaining waiters keep their timeouts. A timeout without a waiter does not count.
        let stay = members(seen.before, &times);
        for (waiter, ends) in stay.into_iter().filter(|(it, _)| before.contains(it)) {
            let left = score(seen.after, &times, &waiter);
            if waiter != visitor && left.is_some_and(|left| left != ends) {
                return Err(format!("{waiter} was given another time"));
            }
        }
        self.is_told(seen, &before, &times)?;
        self.passes_silence(seen, &visitor, is_look, was_free && !is_held, &after)?;
        // `try_lock` adds no entry.
        if is_look && seen.call.args[5] != "never" {
            match seen.is_calm {
                true => self.looked.insert(visitor, seen.now),
                false => self.looked.remove(&visitor),
            };
        }
        Ok(())
    }

    /// The order changes only by arrivals at the end and by waiters that return to the front.
    fn keeps_order(
        &self,
        seen: &Seen<'_>,
        before: &[String],
        after: &[String],
        visitor: &str,
    ) -> Result<(), String> {
        let stay: Vec<_> = before.iter().filter(|it| after.contains(it)).collect();
        let kept: Vec<_> = after.iter().filter(|it| before.contains(it)).collect();
        if stay != kept {
            return Err(format!("the queue was {before:?} and is {after:?}"));
        }
        let is_new =
            after.iter().any(|it| *it == visitor) && !before.iter().any(|it| *it == visitor);
        if is_new && seen.is_calm && after.len() > 1 {
            let rejoins = seen.call.args[5] == "rejoin";
            let stands = if rejoins { after.first() } else { after.last() };
            if stands.is_none_or(|it| it != visitor) {
                return Err(format!("{visitor} stands at a wrong place of {after:?}"));
            }
        }
        Ok(())
    }

    /// The first live waiter is notified of a release.
    fn is_told(&self, seen: &Seen<'_>, before: &[String], times: &str) -> Result<(), String> {
        let is_release = seen.call.script == "fair/release"
            && seen.answer.is_done()
            && !seen.call.args[1].is_empty();
        let lives = |waiter: &&String| {
            score(seen.before, times, waiter).is_some_and(|ends| ends > seen.now)
        };
        let first = before
            .iter()
            .find(lives)
            .filter(|_| is_release && seen.is_calm);
        let channel = first.map(|first| format!("{}:{first}", channel(seen.name)));
        match channel.is_none_or(|channel| seen.hears(&channel)) {
            true => Ok(()),
            false => Err(format!("{first:?} hears nothing of the release")),
        }
    }

    /// A silent waiter of a free lock is skipped in time.
    fn passes_silence(
        &mut self,
        seen: &Seen<'_>,
        visitor: &str,
        is_look: bool,
        is_free: bool,
        after: &[String],
    ) -> Result<(), String> {
        let first = after
            .first()
            .filter(|first| is_ours(first) && *first != visitor);
        let knows_all = is_look && seen.call.args[7] == "1";
        let (Some(first), true, true, true) = (first, knows_all, is_free, seen.is_calm) else {
            self.silent = None;
            return Ok(());
        };
        let listens = seen.listeners(&format!("{}:{first}", channel(seen.name))) > 0;
        // Queries are recorded in tenths of a second, for some minutes.
        let longest = if listens { 10_200 } else { 1700 };
        match &self.silent {
            Some((it, since))
                if it == first && (longest..100_000).contains(&(seen.now - since)) =>
            {
                Err(format!("{first} keeps its place, silent since {since}"))
            }
            Some((it, _)) if it == first => Ok(()),
            _ => {
                self.silent = Some((first.clone(), seen.now));
                Ok(())
            }
        }
    }
}

fn is_ours(waiter: &str) -> bool {
    waiter.matches(':').count() == 2
}

/// Follows a request for a condition. Without `is_exact` the clock was set back, which wakes more waiters.
pub(crate) fn follow_condition(seen: &Seen<'_>, is_exact: bool) -> Result<(), String> {
    let base = format!("redlatch_condition:{}:c", braced(seen.name));
    let [waiting, due] = ["waiting", "due"].map(|set| format!("{base}:{set}"));
    let before = members(seen.before, &waiting);
    let is_alive =
        |waiter: &String| score(seen.before, &due, waiter).is_some_and(|ends| ends > seen.now);
    let is_gone = |waiter: &String| score(seen.after, &waiting, waiter).is_none();
    let alive: Vec<_> = before
        .iter()
        .map(|(waiter, _)| waiter)
        .filter(|it| is_alive(it))
        .collect();
    let woken: Vec<_> = alive.iter().filter(|it| is_gone(it)).collect();
    let visitor = &seen.call.args[0];
    let was_in = before.iter().any(|(waiter, _)| waiter == visitor);
    if seen.call.script == "condition/look"
        && seen.answer.is_error()
        && !was_in
        && !is_gone(visitor)
    {
        return Err(format!("{visitor} was refused, and has a place"));
    }
    if !is_exact || !seen.is_calm || seen.is_late {
        return Ok(());
    }
    let told = |waiter: &String| seen.hears(&format!("{base}:{waiter}"));
    match (seen.call.script, seen.answer.code()) {
        ("condition/signal", Some(1)) => {
            let most = seen.call.args[1].parse().unwrap_or(0);
            let count = seen.answer.int(2).and_then(|it| usize::try_from(it).ok());
            let expected = alive.len().min(most);
            if count != Some(expected)
                || woken.len() != expected
                || alive.iter().take(expected).any(|it| !told(it))
            {
                return Err(format!(
                    "{expected} of {alive:?} were to be woken, and {woken:?} were, told {count:?}"
                ));
            }
        }
        ("condition/look", Some(code)) => {
            let operation = &*seen.call.args[1];
            let waits = score(seen.before, &waiting, visitor).is_some();
            let was_signalled = !waits && score(seen.before, &due, visitor).is_some();
            if operation == "leave" && (code == 4) != waits {
                return Err(format!("{visitor} left, {code}, and its signal is lost"));
            }
            let passes = operation == "drop" && was_signalled || operation == "pass" && !waits;
            let next = alive.iter().find(|it| **it != visitor);
            if passes && next.is_some_and(|next| !told(next)) {
                return Err(format!("the signal of {visitor} was not passed on"));
            }
            if woken.iter().any(|it| **it != visitor && !told(it)) {
                return Err(format!("{woken:?} lost their places"));
            }
        }
        _ => {}
    }
    Ok(())
}
