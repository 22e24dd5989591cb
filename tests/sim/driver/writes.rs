//! Guarded writes: none runs after the end of its hold, nor during another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlatch_server_checks::{Server, Value};
use redlatch_sim::{Error, thread_holds};
use redlatch_world::events;
use redlatch_world::scheduler;

use crate::machine::is_excused;
use crate::plan::Target;
use crate::process::within;
use crate::promptness::Observation;
use crate::sides;
use crate::worker::Worker;

/// A sent write, by its number, which is its value.
#[derive(Clone, Debug)]
struct Sent {
    name: String,
    /// The hold of the write, with its number of levels; empty if unknown.
    visitor: String,
    count: u32,
    /// Its hold was released, and the unlock returned.
    is_over: bool,
}

#[derive(Default)]
struct All {
    sent: BTreeMap<u64, Sent>,
    /// The writes that have run on any server.
    run: BTreeSet<Vec<u8>>,
}

static ALL: Mutex<All> = Mutex::new(All {
    sent: BTreeMap::new(),
    run: BTreeSet::new(),
});

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of the data beside a lock. No lock has this name.
fn data_of(name: &str) -> String {
    format!("{{{name}}}:data")
}

/// The guarded writes of one thread.
#[derive(Default)]
pub(crate) struct Writes {
    me: Option<thread_holds::WatchedThread>,
    sent: Vec<u64>,
}

impl Writes {
    /// Attributes the writes to this thread.
    pub(crate) fn by(&mut self, me: &thread_holds::WatchedThread) {
        self.me = Some(me.clone());
    }

    /// Records the release of this lock's hold.
    pub(crate) fn end(&mut self, name: &str) {
        let mut all = all();
        for number in &self.sent {
            if let Some(sent) = all.sent.get_mut(number).filter(|it| it.name == name) {
                sent.is_over = true;
            }
        }
    }
}

impl Worker {
    pub(crate) fn write(&mut self, target: &Target) {
        let (lock, name) = self.lock(target);
        let holds = self.writes.me.as_ref().and_then(thread_holds::holds_of);
        let mut holds = holds.into_iter().flatten();
        let hold = holds.find(|hold| hold.name == name && hold.is_token == target.is_token);
        let is_held = hold.as_ref().is_some_and(|it| it.is_valid);
        let number = {
            let mut all = all();
            let number = all.sent.len() as u64 + 1;
            let (visitor, count) = hold.map_or_else(Default::default, |it| (it.visitor, it.count));
            let sent = Sent {
                name: name.clone(),
                visitor,
                count,
                is_over: false,
            };
            all.sent.insert(number, sent);
            number
        };
        self.writes.sent.push(number);
        // Longer if a copy of the acquisition may arrive: until the server refuses it, whose clock is known
        // imprecisely.
        let bound = Some(self.command * 3);
        let outcome = within("write", bound, || {
            lock.write(|batch| {
                batch.set(&data_of(&name), number.to_string());
            })
        });
        scheduler::note(|| format!("write {number} of {name} = {outcome:?}"));
        match outcome {
            Ok(_) => events::count("guarded write"),
            // In a quorum, and of several locks.
            Err(Error::Unsupported { .. }) if !self.place.has_data() => {}
            // The unlock of a lost hold reports that.
            Err(Error::NotHeld { .. }) if !is_held => {}
            Err(error) => {
                if error.is_ambiguous() {
                    events::count("guarded write unknown");
                }
                self.allow(&name, Some(error));
            }
        }
    }
}

/// Checks which writes have just run at a server.
pub(crate) fn ran(server: &mut Server) {
    let entries: Vec<Vec<u8>> = server
        .keys()
        .iter()
        .filter(|(key, _)| key.1.first() == Some(&b'{') && !key.1.ends_with(sides::END))
        .filter_map(|(_, entry)| match &entry.value {
            Value::String(number) => Some(number.clone()),
            _ => None,
        })
        .collect();
    for number in entries {
        if all().run.insert(number.clone()) {
            let number = String::from_utf8_lossy(&number).parse().unwrap_or_default();
            scheduler::at(scheduler::now(), move || crate::rules::has_run(number));
        }
    }
}

/// Why a write should not have run just now, given these holds.
pub(crate) fn flaw(
    number: u64,
    observations: &[Observation],
    counts_clocks: bool,
) -> Option<String> {
    let all = all();
    let Some(sent) = all.sent.get(&number) else {
        return Some(format!("I10: nobody sent write {number}"));
    };
    let Sent { name, visitor, .. } = sent;
    if is_excused(visitor) {
        return None;
    }
    if sent.is_over {
        return Some(format!(
            "I10: write {number} under {name} ran behind the unlock of {visitor}"
        ));
    }
    if visitor.is_empty() {
        // The library was busy with its hold at the check.
        return None;
    }
    let holds = || observations.iter().map(|observation| &observation.hold);
    let own = holds().find(|hold| hold.visitor == *visitor && hold.count == sent.count);
    if own.is_some_and(|own| counts_clocks && !own.is_valid && (own.is_held || own.is_lost)) {
        return Some(format!(
            "I10: write {number} under {name} ran behind the validity of {visitor}"
        ));
    }
    let other = holds().find(|it| it.name == *name && it.is_valid && it.visitor != *visitor)?;
    let other = &other.visitor;
    (!is_excused(other))
        .then(|| format!("I10: write {number} under {name} of {visitor} ran while {other} held it"))
}
