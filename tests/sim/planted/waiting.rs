//! Bugs of waits in `src/engine`: fairness, queue entries, hand-offs.

use super::Bug;

pub(super) const BUGS: &[Bug] = &[
    // Then writers wait forever, which is what `prefers_readers` asks for.
    Bug {
        name: "readers come in whoever waits",
        file: "engine/raw_lock/visit.rs",
        find: "if self.raw_lock.prefers_readers {",
        replace: "if self.raw_lock.prefers_readers || rules.is_shared && PLANTED {",
    },
    // It leaves no note of its wait.
    Bug {
        name: "a reader is turned away in each phase",
        file: "stores/redis/calls/call.rs",
        find: "if !takes_place => \"never\",",
        replace: "if !takes_place || PLANTED && self.layout.rights == \"read\" => \"never\",",
    },
    // It has to add its queue entry in the store with its first attempt, before any refusal.
    Bug {
        name: "the next in line is not noted",
        file: "engine/raw_lock/visit.rs",
        find: "self.open_wait.is_some() ||",
        replace: "self.open_wait.is_some() && !PLANTED ||",
    },
    // In the queue of its client: other threads of the client overtake it, and its entry blocks all others.
    Bug {
        name: "one takes a place before it is first",
        file: "engine/raw_lock/visit.rs",
        find: "rules.waits_in_store(),",
        replace: "rules.waits_in_store() || PLANTED,",
    },
    Bug {
        name: "a place that was lost is not asked for again",
        file: "engine/raw_lock/visit.rs",
        find: "had_place: self.has_place,",
        replace: "had_place: self.has_place && !PLANTED,",
    },
    // It does not identify itself as the writer.
    Bug {
        name: "a writer that reads waits for itself",
        file: "engine/raw_lock/visit.rs",
        find: "inside: inside.as_ref().map(",
        replace: "inside: inside.as_ref().filter(|_| !PLANTED).map(",
    },
    Bug {
        name: "one that gives up keeps its place",
        file: "engine/raw_lock/visit.rs",
        find: "if let Some(visitor) = self.visitor.take().filter(|_| self.has_place) {",
        replace: "if let Some(visitor) = self.visitor.take().filter(|_| self.has_place && !PLANTED) {",
    },
    // Under another visitor id, so that its previous entry blocks all others.
    Bug {
        name: "a place is taken anew at each look",
        file: "engine/raw_lock/visit.rs",
        find: "kind.rules().places_in_store.then(|| visitor.clone())",
        replace: "(kind.rules().places_in_store && !PLANTED).then(|| visitor.clone())",
    },
    Bug {
        name: "a newcomer asks before those who wait",
        file: "engine/wait_loop/next_step.rs",
        find: "joins: joins && !is_single,",
        replace: "joins: joins && !is_single && !PLANTED,",
    },
    // It sends no query while a thread of its client holds the lock, even if that thread has lost it.
    Bug {
        name: "a waiter relies on a holder here for ever",
        file: "engine/wait_loop/next_step.rs",
        find: "let is_overdue = is_held &&",
        replace: "let is_overdue = !PLANTED && is_held &&",
    },
    Bug {
        name: "a spin lock pauses ever longer",
        file: "engine/wait_loop/mod.rs",
        find: "Backoff::between(it.first, it.longest)",
        replace: "Backoff::between(it.first, it.longest * if PLANTED { 64 } else { 1 })",
    },
    // A waiter at its timeout waits for the end of the hand-off to it.
    Bug {
        name: "a chosen waiter stays",
        file: "engine/wait_queue/mod.rs",
        find: "let grant = match std::mem::replace(&mut *state, State::Left) {",
        replace: r"
        while PLANTED && matches!(*state, State::Successor) {
            drop(state);
            self.waiter
                .parker
                .park(Some(time::now() + Duration::from_millis(1)));
            state = self.waiter.state.lock();
        }
        let grant = match std::mem::replace(&mut *state, State::Left) {",
    },
    Bug {
        name: "one who left is handed a hold",
        file: "engine/wait_queue/mod.rs",
        find: "if !matches!(*state, State::Successor) {",
        replace: "if !matches!(*state, State::Successor) && !PLANTED {",
    },
    // The first in the queue of its client leaves, and the next one is not woken to send a request.
    Bug {
        name: "nobody takes over",
        file: "engine/wait_queue/mod.rs",
        find: "Some(next) if was_first && !queue.is_held_locally => {",
        replace: "Some(next) if was_first && !queue.is_held_locally && !PLANTED => {",
    },
];
