//! The worth of a refusal where holds are undone because too few replicas have them.

use std::time::{Duration, Instant};

use crate::store::Refusal;

/// The refusals of a wait after a hold of its own, or of another waiter of its client, was undone.
///
/// The holder that it is refused by may be undone in a moment, too: then nobody gets the lock, and all of them would wait for
/// ever. So a refusal is only of use once the same holder is seen for longer than an attempt takes. Permits name no holder,
/// and those that are undone one after the other look like one: there a whole outage has to pass.
#[derive(Debug, Default)]
pub(super) struct Undone {
    was_undone: bool,
    /// The holder that was seen last, since when.
    seen: Option<(Option<Box<str>>, Instant)>,
}

impl Undone {
    /// Notes that a hold of this client was undone.
    pub(super) fn note(&mut self) {
        self.was_undone = true;
        self.seen = None;
    }

    /// Whether holds are undone, as far as is known.
    pub(super) fn is_known(&self) -> bool {
        self.was_undone
    }

    /// Whether a refusal is of use, where an attempt takes so long at most, and an outage lasts so long.
    pub(super) fn believes(
        &mut self,
        refusal: &Refusal,
        now: Instant,
        (attempt, outage): (Duration, Duration),
    ) -> bool {
        if !self.was_undone {
            return true;
        }
        let lasts = match refusal.holder {
            Some(_) => attempt,
            None => outage.max(attempt),
        };
        let former = self.seen.take();
        let same = former.filter(|(holder, _)| *holder == refusal.holder);
        let since = same.map_or(now, |(_, since)| since);
        self.seen = Some((refusal.holder.clone(), since));
        self.was_undone = now.saturating_duration_since(since) < lasts;
        !self.was_undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::time;

    const ATTEMPT: Duration = Duration::from_secs(3);
    const TIMEOUTS: (Duration, Duration) = (ATTEMPT, Duration::from_secs(30));

    fn by(holder: &str) -> Refusal {
        Refusal {
            retry_after: Some(Duration::from_secs(30)),
            holder: Some(holder.into()),
            ..Refusal::default()
        }
    }

    #[test]
    fn a_refusal_counts_where_nothing_is_undone() {
        assert!(Undone::default().believes(&by("one"), time::now(), TIMEOUTS));
    }

    #[test]
    fn holders_that_come_and_go_are_not_believed() {
        let (mut undone, mut now) = (Undone::default(), time::now());
        undone.note();
        for holder in ["one", "two"].repeat(9) {
            assert!(!undone.believes(&by(holder), now, TIMEOUTS));
            now += Duration::from_secs(1);
        }
    }

    #[test]
    fn a_holder_that_stays_is_believed() {
        let (mut undone, begin) = (Undone::default(), time::now());
        assert!(!undone.is_known());
        undone.note();
        assert!(!undone.believes(&by("one"), begin, TIMEOUTS) && undone.is_known());
        undone.note();
        assert!(!undone.believes(&by("one"), begin + ATTEMPT, TIMEOUTS));
        assert!(undone.believes(&by("one"), begin + ATTEMPT * 2, TIMEOUTS));
        assert!(!undone.is_known());
        assert!(undone.believes(&by("two"), begin + ATTEMPT * 2, TIMEOUTS));
    }

    #[test]
    fn holders_without_a_name_are_believed_after_an_outage() {
        let (mut undone, begin) = (Undone::default(), time::now());
        let unnamed = Refusal {
            holder: None,
            ..by("")
        };
        undone.note();
        assert!(!undone.believes(&unnamed, begin, TIMEOUTS));
        assert!(!undone.believes(&unnamed, begin + ATTEMPT, TIMEOUTS));
        assert!(undone.believes(&unnamed, begin + TIMEOUTS.1, TIMEOUTS));
    }
}
