//! One run: the plan of a seed, carried out.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redlatch_sim::{Client, Error, Interrupt, Lock, Losses, Redlock, Result, eye};
use redlatch_spec::Persistence;
use redlatch_world::network;
use redlatch_world::scheduler::{self, JoinHandle, MILLI, Nanos, SECOND};

use crate::machine::{Redis, host};
use crate::plan::{Blow, Mood, Op, Plan, Process, Target, Thread};
use crate::{names, rules};

static IS_TRACED: AtomicBool = AtomicBool::new(false);
static SEED: AtomicU64 = AtomicU64::new(0);

/// Ends the run, and with it this process of the operating system, because a rule is broken.
pub(crate) fn violated(what: &str) -> ! {
    scheduler::note(|| format!("VIOLATED: {what}"));
    conclude(Some(what))
}

fn conclude(violation: Option<&str>) -> ! {
    let (steps, switches, hash) = scheduler::figures();
    let (held, looks) = rules::figures();
    let mut out = std::io::stdout().lock();
    if IS_TRACED.load(Ordering::Relaxed) {
        // Nobody may be there to read it.
        let _ = out.write_all(scheduler::take_trace().as_bytes());
    }
    let verdict = violation.unwrap_or("ok").replace('\n', " ");
    let (seed, time) = (SEED.load(Ordering::Relaxed), scheduler::now());
    let _ = writeln!(
        out,
        "{seed} {steps} {switches} {looks} {time} {held} {hash:016x} {verdict}"
    );
    let _ = out.flush();
    std::process::exit(i32::from(violation.is_some()));
}

/// Runs the plan of a seed. The process of the operating system ends with it.
pub(crate) fn run(seed: u64, plan: &Plan, is_traced: bool) -> ! {
    IS_TRACED.store(is_traced, Ordering::Relaxed);
    SEED.store(seed, Ordering::Relaxed);
    scheduler::begin(seed, plan.pace, is_traced);
    scheduler::on_stuck(|text| violated(&text));
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains("on purpose") {
            violated(&text);
        }
    }));
    if is_traced {
        names::introduce();
    }
    scheduler::note(|| format!("seed {seed}: {plan:?}"));
    let servers = (0..plan.servers.len()).map(|number| Redis::start(number, seed, plan));
    let servers: Vec<Redis> = servers.collect();
    let patience = rules::patience(plan.command * MILLI);
    let is_prompt = plan.mood == Mood::Calm && plan.redlock.is_none() && !plan.may_lose();
    rules::begin(&servers, patience, is_prompt);
    for server in &servers {
        network::set_faults(server.place, plan.faults.clone());
    }
    let labels = plan.processes.iter().enumerate().map(|(number, process)| {
        let booted = Duration::from_millis(process.booted);
        scheduler::add_process(&format!("p{}", number + 1), process.rate, booted)
    });
    let labels: Vec<usize> = labels.collect();
    for (at, blow) in &plan.blows {
        let (blow, labels, servers) = (*blow, labels.clone(), servers.clone());
        scheduler::at(*at, move || strike(blow, &labels, &servers));
    }
    let (calm, all) = (plan.calm.clone(), servers.clone());
    scheduler::at(plan.calm_at, move || {
        scheduler::note(|| "no more faults".to_owned());
        for server in &all {
            network::set_faults(server.place, calm.clone());
        }
    });
    // What had befallen connections before may be noticed as late as this.
    let settled_at = match plan.mood {
        Mood::Calm => 0,
        _ => plan.calm_at + 60 * SECOND + plan.longest_lease() * MILLI,
    };
    scheduler::at(settled_at, rules::calm);
    let mains = plan.processes.iter().zip(&labels).map(|(process, label)| {
        let (process, plan) = (process.clone(), plan.clone());
        let main = scheduler::spawn("main", Some(*label), move || live(&process, &plan));
        (*label, expect(main))
    });
    let mains: Vec<(usize, JoinHandle<()>)> = mains.collect();
    let limit = plan.calm_at + longest(plan);
    for (label, main) in &mains {
        while !main.is_finished() && !scheduler::is_killed(*label) {
            if main.wait_until((scheduler::now() + SECOND).min(limit)) || scheduler::now() < limit {
                continue;
            }
            violated(&format!(
                "I5: process {label} is not done after all that time"
            ));
        }
    }
    rest(plan, &labels, &servers)
}

fn expect<T>(thread: std::io::Result<T>) -> T {
    match thread {
        Ok(thread) => thread,
        Err(error) => violated(&format!("a thread cannot be started: {error}")),
    }
}

/// A time in which all programs are over in any case, from the calm on.
fn longest(plan: &Plan) -> Nanos {
    let longest_lease = plan.longest_lease();
    let spans = plan.processes.iter().flat_map(|process| &process.threads);
    let spans = spans.map(|thread| {
        let each = thread.program.iter().map(|op| match op {
            Op::TryFor(_, span) | Op::Interruptibly(_, span) => *span + plan.command,
            Op::Sleep(span) | Op::Guarded(_, span, _) | Op::Run(_, span, _) => *span,
            _ => 4 * plan.command,
        });
        each.sum::<u64>() + longest_lease + 4_000
    });
    (spans.sum::<u64>() + 10 * longest_lease + plan.outage + 120_000) * MILLI
}

/// Looks whether all is over when all have ended.
fn rest(plan: &Plan, labels: &[usize], servers: &[Redis]) -> ! {
    let soon = scheduler::now() + 10 * SECOND;
    scheduler::sleep_until(soon.max(plan.calm_at + 10 * SECOND));
    for label in labels.iter().filter(|label| !scheduler::is_killed(**label)) {
        let open = network::open_connections(*label);
        if open > 0 {
            violated(&format!(
                "I8: process {label} has ended, and {open} connections are open"
            ));
        }
    }
    scheduler::sleep_until(scheduler::now() + (plan.longest_lease() + 40_000) * MILLI);
    for server in servers {
        let standing = server.standing();
        if !standing.is_empty() {
            violated(&format!("I8: at the end these stand: {standing:?}"));
        }
        let (_, subscriptions) = server.clients();
        if subscriptions > 0 {
            violated(&format!(
                "I8: at the end there are {subscriptions} subscriptions"
            ));
        }
    }
    conclude(None)
}

fn strike(blow: Blow, labels: &[usize], servers: &[Redis]) {
    scheduler::note(|| format!("{blow:?}"));
    let now = scheduler::now();
    match blow {
        Blow::PauseProcess(process, span) => scheduler::pause(labels[process], now + span),
        Blow::KillProcess(process) => {
            scheduler::kill(labels[process]);
            network::bury(labels[process]);
        }
        Blow::PauseServer(server, span) => network::pause(servers[server].place, now + span),
        Blow::Restart(server, span) => restart(&servers[server], span, Persistence::All),
        Blow::Forget(server, span, lost) => {
            let persistence = lost.map_or(Persistence::Nothing, Persistence::Lost);
            restart(&servers[server], span, persistence);
        }
        Blow::Flush(server) => servers[server].flush(),
        Blow::ForgetScripts(server) => servers[server].forget_scripts(),
        Blow::Part(process, server, span) => {
            network::part(labels[process], servers[server].place, now + span);
        }
    }
}

fn restart(server: &Redis, span: Nanos, persistence: Persistence) {
    if network::is_up(server.place) {
        server.go_down();
        let server = server.clone();
        scheduler::at(scheduler::now() + span, move || {
            server.come_back(persistence)
        });
    }
}

/// The place of the locks: one server, or a majority of several.
#[derive(Clone)]
enum Place {
    One(Client),
    Many(Redlock),
}

impl Place {
    fn open(plan: &Plan) -> Place {
        let clients = (0..plan.servers.len()).map(|number| {
            let builder = Client::builder()
                .watchdog_timeout(Duration::from_millis(plan.lease))
                .command_timeout(Duration::from_millis(plan.command))
                .connect_timeout(Duration::from_millis(plan.command / 2))
                .outage_timeout(Duration::from_millis(plan.outage))
                .pool_size(plan.pool);
            match builder.open(&format!("redis://{}:6379", host(number))) {
                Ok(client) => client,
                Err(error) => violated(&format!("the client cannot be made: {error}")),
            }
        });
        let mut clients: Vec<Client> = clients.collect();
        let Some(node_timeout) = plan.redlock else {
            return Place::One(clients.remove(0));
        };
        let builder = Redlock::builder()
            .nodes(clients)
            .max_lease(Duration::from_millis(plan.longest_lease()))
            .watchdog_timeout(Duration::from_millis(plan.lease))
            .outage_timeout(Duration::from_millis(plan.outage))
            .node_timeout(Duration::from_millis(node_timeout));
        match builder.build() {
            Ok(redlock) => Place::Many(redlock),
            Err(error) => violated(&format!("the Redlock cannot be made: {error}")),
        }
    }

    fn lock(&self, name: &str, is_token: bool) -> Lock {
        match self {
            Place::One(client) if is_token => client.token_lock(name),
            Place::One(client) => client.lock(name),
            Place::Many(redlock) => redlock.lock(name),
        }
    }

    fn shut_down(&self) {
        match self {
            Place::One(client) => client.shutdown(),
            Place::Many(redlock) => redlock.shutdown(),
        }
    }
}

/// What one process does from its beginning to its end.
fn live(process: &Process, plan: &Plan) {
    let place = Place::open(plan);
    let threads = process.threads.iter().enumerate().map(|(number, thread)| {
        let worker = Worker::new(&place, thread.clone(), plan);
        expect(scheduler::spawn(&format!("t{number}"), None, move || {
            worker.run()
        }))
    });
    let threads: Vec<_> = threads.collect();
    let command = plan.command * MILLI;
    if let Some(at) = process.shut_down_at {
        scheduler::sleep_until(at);
        within("shutdown", Some(command + 250 * MILLI), || {
            place.shut_down()
        });
    }
    for thread in threads {
        if thread.join().is_err() {
            violated("a thread has panicked");
        }
    }
    // A Redlock has a client of its own beside those of its nodes.
    let clients = plan.servers.len() as u64 + u64::from(plan.redlock.is_some());
    let bound = clients * (command + 250 * MILLI);
    within("the end of the client", Some(bound), || drop(place));
}

/// Does something that has to end within a time, apart from that for which its process is kept from running.
fn within<T>(what: &str, bound: Option<Nanos>, call: impl FnOnce() -> T) -> T {
    const LITTLE: Nanos = 5 * MILLI;
    let process = scheduler::process();
    let (began, lag) = (scheduler::now(), scheduler::lag(process));
    let result = call();
    let took = scheduler::now() - began;
    let kept = scheduler::lag(process) - lag;
    if let Some(bound) = bound
        && took > bound + bound / 100 + kept + LITTLE
    {
        let (took, bound, kept) = (took / MILLI, bound / MILLI, kept / MILLI);
        violated(&format!(
            "I4: {what} took {took} ms instead of {bound}, {kept} of them kept from running"
        ));
    }
    result
}

/// A thread with its program.
struct Worker {
    place: Place,
    thread: Thread,
    command: Nanos,
    is_calm: bool,
    /// Whether a hold may end in calm, too.
    may_lose: bool,
    /// Whether threads may wait for connections for most of the time that a node has.
    is_crowded: bool,
    may_be_closed: bool,
    /// The levels that it counts on, and those locks of which some may have been lost.
    levels: BTreeMap<String, u32>,
    in_doubt: BTreeMap<String, String>,
    /// Of each lock, who tells of the loss of the hold that it got first.
    losses: BTreeMap<String, Losses>,
}

impl Worker {
    fn new(place: &Place, thread: Thread, plan: &Plan) -> Worker {
        Worker {
            place: place.clone(),
            thread,
            command: plan.command * MILLI,
            is_calm: plan.mood == Mood::Calm,
            may_lose: plan.may_lose(),
            is_crowded: plan.pool < 8,
            may_be_closed: plan.shuts_down(),
            levels: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            losses: BTreeMap::new(),
        }
    }

    fn run(mut self) {
        let me = rules::watch_me();
        for op in std::mem::take(&mut self.thread.program) {
            self.execute(&op);
            self.compare(me);
        }
        if self.thread.leaves {
            scheduler::note(|| "leaves".to_owned());
            return;
        }
        for (name, count) in self.levels.clone() {
            let is_token = name.starts_with('t');
            let number = name.trim_start_matches(char::is_alphabetic).parse();
            let target = Target {
                name: number.unwrap_or_default(),
                lease: None,
                is_token,
            };
            for _ in 0..count {
                self.execute(&Op::Unlock(target));
            }
        }
    }

    /// Compares what the library counts with what the program does.
    fn compare(&mut self, me: u64) {
        let Some(seen) = eye::holds_of(me) else {
            return;
        };
        for (name, levels) in &self.levels.clone() {
            if self.in_doubt.contains_key(name) || self.may_lose {
                continue;
            }
            let hold = seen.iter().find(|hold| hold.name == *name);
            let held = hold.filter(|hold| hold.is_held);
            let count = held.map_or(0, |hold| hold.count);
            // One that has ended by the clock is told soon.
            if count != *levels && hold.is_none_or(|hold| hold.is_valid) {
                match self.losses.get(name).map(Losses::try_recv) {
                    Some(Ok(loss)) => self.doubt(name, &loss.to_string()),
                    told => violated(&format!(
                        "I7: {name} is held {count} times, not {levels}, and was told {told:?}"
                    )),
                }
            }
        }
    }

    /// Whether the thread may wait for this lock without an end: locks are waited for in order, else two threads may
    /// wait for each other.
    fn may_wait(&self, name: &str) -> bool {
        let mut held = self.levels.iter().filter(|(_, levels)| **levels > 0);
        held.all(|(held, _)| **held <= *name)
    }

    fn execute(&mut self, op: &Op) {
        match op {
            Op::Lock(target) | Op::Guarded(target, ..) | Op::Run(target, ..)
                if !self.may_wait(&self.lock(target).1) =>
            {
                self.execute(&Op::TryFor(*target, 500));
            }
            Op::Sleep(span) => scheduler::sleep_until(scheduler::now() + span * MILLI),
            Op::Lock(target) => self.enter(target, "lock", None, |lock| lock.lock().map(|()| true)),
            Op::Try(target) => {
                let bound = self.command;
                self.enter(target, "try_lock", Some(bound), Lock::try_lock);
            }
            Op::TryFor(target, wait) => {
                let bound = (wait + 250) * MILLI;
                let wait = Duration::from_millis(*wait);
                self.enter(target, "try_lock_for", Some(bound), |lock| {
                    lock.try_lock_for(wait)
                });
            }
            Op::Interruptibly(target, after) => {
                let interrupt = Interrupt::new();
                let (raised, after) = (interrupt.clone(), after * MILLI);
                let raiser = scheduler::spawn("raiser", None, move || {
                    scheduler::sleep_until(scheduler::now() + after);
                    raised.raise();
                });
                let bound = after + self.command + 250 * MILLI;
                self.enter(target, "lock_interruptibly", Some(bound), |lock| {
                    lock.lock_interruptibly(&interrupt).map(|()| true)
                });
                drop(expect(raiser).join());
            }
            Op::Unlock(target) => self.unlock(target),
            Op::Force(target) => {
                let (lock, name) = self.lock(target);
                self.doubt(&name, "force_unlock");
                let bound = Some(self.command);
                let outcome = within("force_unlock", bound, || lock.force_unlock());
                self.note("force_unlock", &name, &outcome);
                self.allow(&name, outcome.err());
            }
            Op::Guarded(target, span, reenters) => self.guarded(target, *span, *reenters),
            Op::Run(target, span, panics) => self.closure(target, *span, *panics),
            Op::Ask(target) => {
                let (lock, name) = self.lock(target);
                let bound = Some(self.command);
                let outcome = within("is_locked", bound, || lock.is_locked());
                self.note("is_locked", &name, &outcome);
                self.allow(&name, outcome.err());
                let outcome = within("hold_count", bound, || lock.hold_count());
                self.note("hold_count", &name, &outcome);
                self.allow(&name, outcome.err());
            }
        }
    }

    fn lock(&self, target: &Target) -> (Lock, String) {
        let name = if target.is_token {
            format!("token{}", target.name)
        } else {
            format!("lock{}", target.name)
        };
        let lock = self.place.lock(&name, target.is_token);
        let lock = match target.lease {
            Some(lease) => lock.with_lease_time(Duration::from_millis(lease.max(100))),
            None => lock,
        };
        (lock, name)
    }

    fn note<T: std::fmt::Debug>(&self, what: &str, name: &str, outcome: &T) {
        scheduler::note(|| format!("{what} {name} = {outcome:?}"));
    }

    /// From now on what it counts on may be gone.
    fn doubt(&mut self, name: &str, why: &str) {
        if self.in_doubt.contains_key(name) {
            return;
        }
        let is_known = matches!(why, "a fixed lease" | "force_unlock" | "a panic");
        if self.is_calm && !is_known && !self.may_lose {
            violated(&format!("in calm {name} is in doubt: {why}"));
        }
        let why = || why.to_owned();
        self.in_doubt.entry(name.to_owned()).or_insert_with(why);
    }

    fn enter(
        &mut self,
        target: &Target,
        what: &str,
        bound: Option<Nanos>,
        call: impl FnOnce(&Lock) -> Result<bool>,
    ) {
        let (lock, name) = self.lock(target);
        if target.lease.is_some() {
            self.doubt(&name, "a fixed lease");
        }
        scheduler::note(|| format!("{what} {name} lease {:?}", target.lease));
        let waits = rules::waits_for(&name);
        let outcome = within(what, bound, || call(&lock));
        drop(waits);
        self.note(what, &name, &outcome);
        match outcome {
            Ok(true) => {
                let levels = self.levels.entry(name.clone()).or_default();
                *levels += 1;
                if *levels == 1
                    && let Ok(losses) = lock.lost()
                {
                    self.losses.insert(name, losses);
                }
            }
            Ok(false) => {}
            Err(error) => self.allow(&name, Some(error)),
        }
    }

    fn unlock(&mut self, target: &Target) {
        let (lock, name) = self.lock(target);
        let outcome = within("unlock", Some(self.command), || lock.unlock());
        self.note("unlock", &name, &outcome);
        let levels = self.levels.entry(name.clone()).or_default();
        let had = std::mem::replace(levels, levels.saturating_sub(1));
        match outcome {
            Ok(()) if had == 0 => violated(&format!("I7: {name} was unlocked, and not held")),
            Ok(()) => {}
            Err(Error::NotHeld { .. }) if had == 0 => {}
            Err(Error::NotHeld { .. }) if !self.in_doubt.contains_key(&name) => {
                violated(&format!("I7: {name} is held {had} times, and is not held"));
            }
            Err(error) => self.allow(&name, Some(error)),
        }
    }

    /// Looks whether an error may be here.
    fn allow(&mut self, name: &str, error: Option<Error>) {
        let Some(error) = error else {
            return;
        };
        let is_allowed = match &error {
            Error::Interrupted { .. } | Error::NotReentrant { .. } => true,
            Error::Closed { .. } => self.may_be_closed,
            Error::Exhausted { .. } => true,
            Error::Lost { .. } => true,
            Error::NotHeld { .. } => self.in_doubt.contains_key(name),
            Error::NoQuorum { .. } => {
                // Its nodes say why: the pool may be too small, or this process too slow.
                !self.is_calm || self.may_lose || self.is_crowded
            }
            Error::Unreachable { .. } | Error::Unknown { .. } | Error::Unavailable { .. } => {
                !self.is_calm
            }
            _ => false,
        };
        if !is_allowed {
            violated(&format!("an error that cannot be here: {error:?}"));
        }
        let changes_nothing = matches!(
            error,
            Error::Interrupted { .. }
                | Error::NotReentrant { .. }
                | Error::Exhausted { .. }
                | Error::NoQuorum { .. }
                | Error::Closed { .. }
        );
        if !changes_nothing && !self.in_doubt.contains_key(name) {
            self.doubt(name, &error.to_string());
        }
    }

    fn guarded(&mut self, target: &Target, span: u64, reenters: bool) {
        let (lock, name) = self.lock(target);
        if target.lease.is_some() {
            self.doubt(&name, "a fixed lease");
        }
        let waits = rules::waits_for(&name);
        let outcome = within("guard", None, || lock.guard());
        drop(waits);
        scheduler::note(|| format!("guard {name} = {:?}", outcome.as_ref().map(|_| ())));
        let guard = match outcome {
            Ok(guard) => guard,
            Err(error) => return self.allow(&name, Some(error)),
        };
        if reenters && !target.is_token {
            let inner = within("guard", None, || lock.guard());
            if let Ok(inner) = inner {
                scheduler::sleep_until(scheduler::now() + span * MILLI / 2);
                within("the drop of a guard", Some(self.command), || drop(inner));
            }
        }
        scheduler::sleep_until(scheduler::now() + span * MILLI);
        let outcome = within("the unlock of a guard", Some(self.command), || {
            guard.unlock()
        });
        self.note("unlock of the guard", &name, &outcome);
        self.allow(&name, outcome.err());
    }

    fn closure(&mut self, target: &Target, span: u64, panics: bool) {
        let (lock, name) = self.lock(target);
        if target.lease.is_some() {
            self.doubt(&name, "a fixed lease");
        }
        let waits = rules::waits_for(&name);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            lock.run(|_| {
                drop(waits);
                scheduler::sleep_until(scheduler::now() + span * MILLI);
                assert!(!panics, "on purpose");
            })
        }));
        self.note("run", &name, &outcome);
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let (_, error) = error.into_parts();
                self.allow(&name, Some(error));
            }
            Err(_) => self.doubt(&name, "a panic"),
        }
    }
}
