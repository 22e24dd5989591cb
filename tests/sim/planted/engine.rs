//! Bugs of `src/engine`: validity, renewals, in-doubt requests, conditions, counts.

use super::Bug;

pub(super) const BUGS: &[Bug] = &[
    // A renewal in flight may shorten the lease before its reply arrives.
    Bug {
        name: "a request in flight shortens nothing",
        file: "engine/hold/validity.rs",
        find: r"
        self.valid_until = self.valid_until.min(end);
        self.longest = self.longest.max(lease.into());",
        replace: r"
        if !PLANTED { self.valid_until = self.valid_until.min(end); }
        self.longest = self.longest.max(lease.into());",
    },
    Bug {
        name: "an earlier request is answered in full behind a later one",
        file: "engine/hold/validity.rs",
        find: "other.most = Some(other.most.map_or(end, |most| most.min(end)));",
        replace: "if !PLANTED { other.most = Some(other.most.map_or(end, |most| most.min(end))); }",
    },
    Bug {
        name: "a later request is answered in full before an earlier one",
        file: "engine/hold/validity.rs",
        find: "most = Some(most.map_or(behind, |most: BootInstant| most.min(behind)));",
        replace: "if !PLANTED { most = Some(most.map_or(behind, |most: BootInstant| most.min(behind))); }",
    },
    Bug {
        name: "an answer counts in full whatever else is in flight",
        file: "engine/hold/validity.rs",
        find: "end = request.most.map_or(end, |most| most.min(end));",
        replace: "if !PLANTED { end = request.most.map_or(end, |most| most.min(end)); }",
    },
    // Its key may still exist, with a lease that has ended by this clock alone.
    Bug {
        name: "a hold that has lapsed is called gone",
        file: "engine/hold/state.rs",
        find: "Some(if !owner_lives {",
        replace: "Some(if PLANTED { LossCause::Gone } else if !owner_lives {",
    },
    // The request number identifies the step; a step with another number is not executed.
    Bug {
        name: "a step of a count is taken for the one before",
        file: "engine/raw_lock/count.rs",
        find: "let number = self.inner.next_hold();",
        replace: "let number = if PLANTED { 1 } else { self.inner.next_hold() };",
    },
    Bug {
        name: "permits end with the call that took them",
        file: "guard/owned.rs",
        find: "owner: entry.owner,",
        replace: r"
            owner: match PLANTED && lock.raw_lock().permits.is_some() {
                true => Owner::of_handle(lock.raw_lock().inner.pid),
                false => entry.owner,
            },",
    },
    Bug {
        name: "permits in doubt stay taken",
        file: "engine/raw_lock/visit.rs",
        find: "self.raw_lock.inner.watchdog.resolve_later(in_doubt);",
        replace: r"
        let is_permit = !self.raw_lock.key.lock.kind.rules().has_thread_owner;
        if !(is_permit && PLANTED) {
            self.raw_lock.inner.watchdog.resolve_later(in_doubt);
        }",
    },
    // A wait on a condition releases all levels of its hold, and reacquires as many.
    Bug {
        name: "a wait takes one level back",
        file: "engine/raw_lock/condition.rs",
        find: "let Some(lease) = lease else {",
        replace: "let Some(lease) = lease.filter(|_| taken == 0 || !PLANTED) else {",
    },
    // A waiter that leaves at its timeout may have been signalled just before.
    Bug {
        name: "a signal at the end of a wait is dropped",
        file: "engine/raw_lock/condition.rs",
        find: "Ok(Outcome::Done(ConditionAnswer::Woken)) => return Ended::Woken,",
        replace: "Ok(Outcome::Done(ConditionAnswer::Woken)) if !PLANTED => return Ended::Woken,",
    },
    // It may run for up to its lease, which is longer.
    Bug {
        name: "a doubt is given up after half a minute",
        file: "engine/background_release.rs",
        find: r"
        let open = OpenRelease {
            in_doubt,",
        replace: r"
        let mut in_doubt = in_doubt;
        if PLANTED {
            let given_up = BootInstant::now() + Duration::from_secs(30);
            in_doubt.ends = in_doubt.ends.min(given_up);
        }
        let open = OpenRelease {
            in_doubt,",
    },
    // An entry in a queue on the server has to be removed also during the client's shutdown.
    Bug {
        name: "what is owed at the end is dropped",
        file: "engine/background_release.rs",
        find: "owed.filter(|(_, it)| it.is_owed)",
        replace: "owed.filter(|(_, it)| it.is_owed && !PLANTED)",
    },
    // The calling thread waits for a server that may be silent.
    Bug {
        name: "what is in doubt is released before all else",
        file: "engine/watchdog/mod.rs",
        find: r"
        self.resolver.queue(in_doubt, false);
    }",
        replace: r"
        let mut in_doubt = in_doubt;
        if PLANTED {
            let deadline = time::now() + self.command_timeout;
            drop(self.store.resolve(&mut in_doubt, deadline));
        }
        self.resolver.queue(in_doubt, false);
    }",
    },
    Bug {
        name: "a hold of a closed client is not told",
        file: "engine/watchdog/renew.rs",
        find: "if !self.timer.schedule(look.due, job) {",
        replace: "if !self.timer.schedule(look.due, job) && !PLANTED {",
    },
    Bug {
        name: "an earlier entry wakes nobody",
        file: "engine/timer.rs",
        find: "if oversleeps {",
        replace: "if oversleeps && !PLANTED {",
    },
];
