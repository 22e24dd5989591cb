//! A master that sentinels watch over, and replace.
//!
//! A sentinel is asked before every connection, and what it names has to call itself master on the connection itself. A
//! server that comes back and calls itself master is not asked, because no sentinel names it.
//!
//! A sentinel may be behind the others, or wrong, and those that know better may be silent when it is asked. So the
//! latest failover that is known here is kept. If a sentinel tells of another one, all are asked:
//!
//! | what is told | it is believed from |
//! |---|---|
//! | a later failover | two sentinels, or one where fewer than three are configured |
//! | a later failover, by one of three or more | that one, if the master known last is none any more (below) |
//! | another master by no later failover | most of those that are configured |
//! | nothing, by none of them | the master known last goes on being used, as long as it calls itself master |
//!
//! The word of one sentinel is enough if the master known last says that it is none, and no two sentinels agree on
//! another server; or if it cannot be reached, and every sentinel that answers names the same server. In either case
//! the server that is named has to call itself master. Without this rule the last sentinel that is alive could move no
//! client that knows a master, while a new client works with what it says.
//!
//! So that a master is left that still answers but was replaced, the thread of this page listens for `+switch-master`
//! and asks all sentinels once in a third of a lease. It sleeps while nobody uses the client.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::backoff::Backoff;
use crate::ground::error::Reason;
use crate::ground::events;
use crate::ground::sync::{Condvar, Mutex};
use crate::stores::redis::subscriber::ListenerThread;
use crate::stores::redis::topology::connector::{
    Connector, Hook, KnownMaster, Role, role_of, share,
};
use crate::stores::redis::transport::connection::{
    Address, CallError, Connection, Writer, name_of,
};
use crate::stores::redis::{Settings, text_of};

const CHANNEL: &str = "+switch-master";

/// So many checks in a row that nobody needed put the thread to sleep.
const IDLE_CHECKS: u32 = 3;

/// A sentinel that has not answered after this time is asked once more, and for longer, behind the others: a silent one
/// must not take the time of those that answer.
const FIRST_ASK: Duration = Duration::from_millis(200);

/// How often the master is checked: once in a third of a lease, within reason.
const CHECKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

pub(crate) struct Sentinels {
    shared: Arc<Shared>,
    ear: ListenerThread,
}

struct Shared {
    /// What the sentinels call the master.
    name: String,
    /// Those that gave a usable answer last come first.
    sentinels: Mutex<Vec<Arc<Sentinel>>>,
    /// How many there are.
    configured: usize,
    /// The latest failover that was believed; it outlives doubts about the server.
    believed: Mutex<Option<Named>>,
    /// How the master is to be talked to.
    credentials: Address,
    mastership: KnownMaster,
    command_timeout: Duration,
    check_every: Duration,
    /// Whether anybody has needed the master since the last check.
    is_used: AtomicBool,
    state: Mutex<State>,
    wanted: Condvar,
}

struct Sentinel {
    address: Address,
    /// A connection not in use.
    idle: Mutex<Option<Connection>>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// The writing end of the connection that listens.
    writer: Option<Writer>,
}

/// Why a server cannot be used as the master.
#[derive(Debug)]
struct Miss {
    standing: Standing,
    fault: CallError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It says that it is no master.
    NoMaster,
    /// It could not be asked.
    Silent,
    /// Neither: it has refused the connection in words, or somebody else has found another master.
    Unclear,
}

/// What a sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    host: String,
    port: u16,
    /// Of the failover that made it master; the higher one is the later one.
    epoch: i64,
}

impl Named {
    fn node(&self) -> String {
        name_of(&self.host, self.port)
    }

    /// Whether it changes nothing for somebody who knows this much.
    fn is_no_news(&self, known: &Named) -> bool {
        self.epoch <= known.epoch && self.node() == known.node()
    }

    /// The same server, made master by another failover.
    fn since(&self, epoch: i64) -> Named {
        Named {
            epoch,
            ..self.clone()
        }
    }
}

impl Sentinels {
    pub(crate) fn new(
        name: &str,
        sentinels: Vec<Address>,
        credentials: Address,
        settings: &Settings,
    ) -> Sentinels {
        let names: Vec<&str> = sentinels.iter().map(|address| &*address.node).collect();
        let group = format!("the master {name} of the sentinels {}", names.join(", "));
        let sentinels: Vec<_> = sentinels
            .into_iter()
            .map(|address| {
                Arc::new(Sentinel {
                    address: address.of_sentinel(),
                    idle: Mutex::default(),
                })
            })
            .collect();
        Sentinels {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                configured: sentinels.len(),
                sentinels: Mutex::new(sentinels),
                believed: Mutex::default(),
                credentials,
                mastership: KnownMaster::new(group),
                command_timeout: settings.command_timeout,
                check_every: (settings.lease / 3).clamp(CHECKS.0, CHECKS.1),
                is_used: AtomicBool::new(false),
                state: Mutex::default(),
                wanted: Condvar::default(),
            }),
            ear: ListenerThread::default(),
        }
    }
}

impl Connector for Sentinels {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        if self.shared.wake() {
            let shared = Arc::clone(&self.shared);
            self.ear
                .ensure_running("redlatch-sentinel", move || shared.run());
        }
        self.shared.connect(deadline)
    }

    fn node(&self) -> Arc<str> {
        self.shared.mastership.node()
    }

    fn generation(&self) -> u64 {
        self.shared.is_used.store(true, Ordering::Relaxed);
        self.shared.mastership.generation()
    }

    fn can_fail_over(&self) -> bool {
        true
    }

    fn suspect(&self, generation: u64) {
        self.shared.mastership.suspect(generation);
    }

    fn on_change(&self, hook: Hook) {
        self.shared.mastership.on_change(hook);
    }

    fn on_takeover(&self, hook: Hook) {
        self.shared.mastership.on_takeover(hook);
    }

    fn close(&self) {
        {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            if let Some(writer) = state.writer.take() {
                writer.shut_down();
            }
        }
        self.shared.wanted.notify_one();
        self.ear.join();
        for sentinel in self.shared.order() {
            *sentinel.idle.lock() = None;
        }
    }
}

impl Sentinel {
    /// Asks for the master of this name; `None` if this sentinel does not know it.
    fn ask(&self, name: &str, deadline: Instant) -> Result<Option<Named>, CallError> {
        let kept = self
            .idle
            .lock()
            .take()
            .filter(|connection| !connection.is_stale());
        if let Some(mut connection) = kept {
            // A fresh connection may do where the kept one does not.
            if let Ok(named) = ask_on(&mut connection, name, share(deadline, 2)) {
                *self.idle.lock() = Some(connection);
                return Ok(named);
            }
        }
        let mut connection = Connection::connect(&self.address, deadline)?;
        let named = ask_on(&mut connection, name, deadline)?;
        *self.idle.lock() = Some(connection);
        Ok(named)
    }
}

fn ask_on(
    connection: &mut Connection,
    name: &str,
    deadline: Instant,
) -> Result<Option<Named>, CallError> {
    let mut packed = Vec::new();
    let mut place = redis::cmd("SENTINEL");
    place.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    place.write_packed_command(&mut packed);
    let mut master = redis::cmd("SENTINEL");
    master.arg("MASTER").arg(name);
    master.write_packed_command(&mut packed);
    connection.send(&packed, deadline)?;
    let address = connection.receive(deadline);
    let details = match connection.receive(deadline) {
        // Whoever may not ask for it, or asks for a name unknown there, has the address alone.
        Err(CallError::Server(_)) => Value::Nil,
        details => details.map_err(CallError::of_a_search)?,
    };
    let address = address.map_err(CallError::of_a_search)?;
    Ok(named_in(&address, &details))
}

fn named_in(address: &Value, details: &Value) -> Option<Named> {
    let Value::Array(parts) = address else {
        return None;
    };
    let [host, port] = parts.as_slice() else {
        return None;
    };
    let epoch = match details {
        Value::Array(fields) => fields
            .chunks(2)
            .find_map(|field| match field {
                [name, value] if text_of(name) == "config-epoch" => text_of(value).parse().ok(),
                _ => None,
            })
            .unwrap_or(0),
        _ => 0,
    };
    Some(Named {
        host: text_of(host),
        port: text_of(port).parse().ok()?,
        epoch,
    })
}

/// Keeps the first fault, or what a server says, such as that the password is wrong: somebody has to hear of that.
fn note(kept: &mut Option<CallError>, fault: CallError) {
    if kept.is_none() || matches!(fault, CallError::Server(_) | CallError::Untrusted(_)) {
        *kept = Some(fault);
    }
}

/// What one sentinel tells of that would be news after `known`: the latest failover, to another server.
fn told_by_one(known: &Named, answers: &[Named]) -> Option<Named> {
    let is_news = |it: &&Named| it.epoch > known.epoch && it.node() != known.node();
    let latest = answers.iter().filter(is_news);
    latest.max_by_key(|it| it.epoch).cloned()
}

/// Why a failover that one sentinel alone tells of is not to be believed, where the master known last was missed.
fn doubt_about(
    lone: &Named,
    answers: &[Named],
    configured: usize,
    missed: Standing,
) -> Option<String> {
    let other = match missed {
        Standing::Unclear => return Some("the master known last has answered".to_owned()),
        // As somebody who knows no master would choose.
        Standing::NoMaster => {
            let ranked = ranked(answers, configured);
            let is_one = ranked.iter().any(|it| it.node() == lone.node());
            ranked.into_iter().next().filter(|_| !is_one)
        }
        Standing::Silent => {
            let mut others = answers.iter().filter(|it| it.node() != lone.node());
            others.next().cloned()
        }
    };
    other.map(|it| format!("others name {}", it.node()))
}

/// The masters that were named to somebody who knows none, the best one first: of the latest failover, then the one
/// named most often. Those named by too few sentinels count only if all are.
fn ranked(answers: &[Named], configured: usize) -> Vec<Named> {
    let enough = enough_of(configured);
    let mut ranked: Vec<(Named, usize)> = Vec::new();
    for one in answers {
        if ranked.iter().all(|(named, _)| named.node() != one.node()) {
            let epochs = epochs_of(answers, &one.node());
            let epoch = epochs.get(enough - 1).or(epochs.last());
            ranked.push((one.since(epoch.copied().unwrap_or_default()), epochs.len()));
        }
    }
    if ranked.iter().any(|(_, votes)| *votes >= enough) {
        ranked.retain(|(_, votes)| *votes >= enough);
    }
    ranked.sort_by_key(|(named, votes)| Reverse((named.epoch, *votes)));
    ranked.into_iter().map(|(named, _)| named).collect()
}

/// How many sentinels have to tell of a later failover.
fn enough_of(configured: usize) -> usize {
    if configured < 3 { 1 } else { 2 }
}

/// The epochs with which this node was named, the highest first.
fn epochs_of(answers: &[Named], node: &str) -> Vec<i64> {
    let naming = answers.iter().filter(|it| it.node() == node);
    let mut epochs: Vec<i64> = naming.map(|it| it.epoch).collect();
    epochs.sort_unstable_by_key(|epoch| Reverse(*epoch));
    epochs
}

/// The master after these answers, if it is another one than `believed`, or the failover another one. A master of a
/// failover that is not the latest is told only if `may_go_back`.
fn overruled(
    believed: &Named,
    answers: &[Named],
    configured: usize,
    may_go_back: bool,
) -> Option<Named> {
    let enough = enough_of(configured);
    let later = answers.iter().filter_map(|one| {
        let epochs = epochs_of(answers, &one.node());
        let epoch = epochs.get(enough - 1).copied()?;
        (epoch > believed.epoch).then(|| one.since(epoch))
    });
    if let Some(later) = later.max_by_key(|one| one.epoch) {
        return Some(later);
    }
    answers.iter().filter(|_| may_go_back).find_map(|one| {
        let epoch = epochs_of(answers, &one.node())
            .get(configured / 2)
            .copied()?;
        let is_other = one.node() != believed.node() || epoch < believed.epoch;
        is_other.then(|| one.since(epoch))
    })
}

impl Shared {
    /// Notes that somebody needs the master. Returns false if the client is closed.
    fn wake(&self) -> bool {
        let state = self.state.lock();
        self.is_used.store(true, Ordering::Relaxed);
        self.wanted.notify_one();
        !state.is_closed
    }

    fn order(&self) -> Vec<Arc<Sentinel>> {
        self.sentinels.lock().clone()
    }

    /// Puts a sentinel behind the others, because it cost time for nothing.
    fn put_last(&self, sentinel: &Arc<Sentinel>) {
        let mut sentinels = self.sentinels.lock();
        if let Some(index) = sentinels.iter().position(|it| Arc::ptr_eq(it, sentinel)) {
            let sentinel = sentinels.remove(index);
            sentinels.push(sentinel);
        }
    }

    fn ask(&self, sentinel: &Arc<Sentinel>, deadline: Instant) -> Result<Named, CallError> {
        let named = match sentinel.ask(&self.name, deadline) {
            Ok(Some(named)) => return Ok(named),
            Ok(None) => CallError::NotSent(format!("it knows no master {}", self.name).into()),
            Err(fault) => fault,
        };
        self.put_last(sentinel);
        let fault = named.at(&format!("the sentinel {}", sentinel.address.node));
        events::sentinel_failed(&sentinel.address.node, &fault.reason());
        Err(fault)
    }

    /// The masters that are worth a try after these answers, the best one first. `before` is what was believed when the
    /// first sentinel was asked: answers from before a later failover do not undo it.
    fn believe(&self, answers: &[Named], before: Option<&Named>) -> Vec<Named> {
        let mut believed = self.believed.lock();
        let Some(known) = &*believed else {
            return ranked(answers, self.configured);
        };
        let may_go_back = before == Some(known);
        if let Some(other) = overruled(known, answers, self.configured, may_go_back) {
            *believed = Some(other);
        }
        believed.iter().cloned().collect()
    }

    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        let order = self.order();
        let began = self.mastership.generation();
        let before = self.believed.lock().clone();
        let mut last_fault = None;
        let mut missed: Option<Miss> = None;
        let mut answers = Vec::with_capacity(order.len());
        let mut rest = order.len();
        let mut left: VecDeque<(&Arc<Sentinel>, bool)> =
            order.iter().map(|sentinel| (sentinel, true)).collect();
        while let Some((sentinel, is_first)) = left.pop_front() {
            let mut by = share(deadline, rest + 1);
            let soon = Instant::now() + FIRST_ASK;
            let is_cut_short = is_first && soon < by;
            if is_cut_short {
                by = soon;
            }
            let outcome = self.ask(sentinel, by);
            let asks_again = is_cut_short && outcome.is_err() && Instant::now() >= by;
            match asks_again {
                true => left.push_back((sentinel, false)),
                false => rest -= 1,
            }
            let named = match outcome {
                Ok(named) => named,
                Err(fault) => {
                    note(&mut last_fault, fault);
                    continue;
                }
            };
            answers.push(named.clone());
            match &before {
                Some(known) if named.is_no_news(known) && missed.is_none() => {
                    match self.reach(known, None, began, share(deadline, rest + 1)) {
                        Ok(connection) => return Ok(connection),
                        // The others may know of a failover.
                        Err(miss) => missed = Some(miss),
                    }
                    self.put_last(sentinel);
                }
                Some(known) if !named.is_no_news(known) => self.put_last(sentinel),
                _ => {}
            }
        }
        let mut candidates = self.believe(&answers, before.as_ref());
        // What only one tells of comes last, after what is believed.
        let lone = before
            .as_ref()
            .filter(|known| candidates.first() == Some(known))
            .and_then(|known| Some((known, told_by_one(known, &answers)?)));
        candidates.retain(|it| missed.is_none() || Some(it) != before.as_ref());
        for (tried, named) in candidates.iter().enumerate() {
            let rest = candidates.len() - tried + usize::from(lone.is_some());
            match self.reach(named, None, began, share(deadline, rest)) {
                Ok(connection) => return Ok(connection),
                Err(miss) if Some(named) == before.as_ref() => missed = Some(miss),
                Err(miss) => note(&mut last_fault, miss.fault),
            }
        }
        let Some(missed) = missed.filter(|_| !answers.is_empty()) else {
            return Err(
                last_fault.unwrap_or_else(|| CallError::NotSent("no sentinel to ask".into()))
            );
        };
        // A sentinel that is dead is not what is wrong while another one answers.
        match lone {
            Some((known, lone)) => {
                self.reach_lone(known, &missed, &lone, &answers, began, deadline)
            }
            None => Err(missed.fault),
        }
    }

    /// Connects to the one that was named, if it calls itself master, and is the one that is believed in. It becomes that
    /// one if nobody is, or if `instead_of` still is.
    fn reach(
        &self,
        named: &Named,
        instead_of: Option<&Named>,
        began: u64,
        deadline: Instant,
    ) -> Result<Connection, Miss> {
        let address = self.credentials.elsewhere(&named.host, named.port);
        let silent = |fault: CallError| Miss {
            standing: match fault {
                CallError::NotSent(_) => Standing::Silent,
                _ => Standing::Unclear,
            },
            fault: fault.at(&address.node),
        };
        let mut connection = Connection::connect(&address, deadline).map_err(silent)?;
        match role_of(&mut connection, deadline).map_err(silent)? {
            Role::Master { .. } => {}
            Role::Other(role) => {
                let reason = format!("{}, which a sentinel calls master, is {role}", address.node);
                return Err(Miss {
                    standing: Standing::NoMaster,
                    fault: CallError::NotSent(reason.into()),
                });
            }
        }
        let is_believed = {
            let mut believed = self.believed.lock();
            if believed.is_none() || instead_of.is_some_and(|it| Some(it) == believed.as_ref()) {
                *believed = Some(named.clone());
            }
            believed.as_ref().map(Named::node) == Some(named.node())
        };
        let generation = is_believed.then(|| self.mastership.found(&address.node, began));
        connection.generation = generation.flatten().ok_or_else(|| Miss {
            standing: Standing::Unclear,
            fault: CallError::NotSent("the master changed while it was looked for".into()),
        })?;
        Ok(connection)
    }

    /// Connects to a master that one sentinel alone tells of, if that is to be believed after the known one was missed.
    fn reach_lone(
        &self,
        known: &Named,
        missed: &Miss,
        lone: &Named,
        answers: &[Named],
        began: u64,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let why = match doubt_about(lone, answers, self.configured, missed.standing) {
            Some(doubt) => doubt,
            None => match self.reach(lone, Some(known), began, deadline) {
                Ok(connection) => return Ok(connection),
                Err(miss) => miss.fault.reason().to_owned(),
            },
        };
        if matches!(missed.fault, CallError::Server(_) | CallError::Untrusted(_)) {
            // Somebody has to hear of that.
            return Err(missed.fault.clone());
        }
        let told = format!(
            "{}; one sentinel names {} since failover {}, but is not believed: {why}",
            missed.fault.reason(),
            lone.node(),
            lone.epoch,
        );
        Err(CallError::NotSent(told.into()))
    }

    /// Leaves the present master if the sentinels name another one. Returns whether too few of them have told of a later
    /// failover.
    fn check(&self) -> bool {
        let deadline = Instant::now() + self.command_timeout;
        let began = self.mastership.generation();
        let before = self.believed.lock().clone();
        let Some(known) = self.mastership.master() else {
            // Whoever connects next looks for it.
            return false;
        };
        let order = self.order();
        let half = share(deadline, 2);
        let ask = |(tried, sentinel): (usize, &Arc<Sentinel>)| {
            self.ask(sentinel, share(half, order.len() - tried)).ok()
        };
        let answers: Vec<Named> = order.iter().enumerate().filter_map(ask).collect();
        let Some(named) = self.believe(&answers, before.as_ref()).into_iter().next() else {
            return false;
        };
        let lone = told_by_one(&named, &answers);
        let missed = match &lone {
            None if *named.node() == *known => None,
            None => self.reach(&named, None, began, deadline).err(),
            Some(_) => self.reach(&named, None, began, share(deadline, 2)).err(),
        };
        let outcome = match (lone, missed) {
            (Some(lone), Some(missed)) => {
                let reached = self.reach_lone(&named, &missed, &lone, &answers, began, deadline);
                reached.map(drop).map_err(|fault| (lone, fault))
            }
            (None, Some(missed)) => Err((named, missed.fault)),
            (_, None) => Ok(()),
        };
        if let Err((named, fault)) = outcome {
            events::sentinel_failed(&named.node(), &fault.reason());
        }
        let believed = self.believed.lock();
        let epoch = believed.as_ref().map_or(0, |it| it.epoch);
        answers.iter().any(|answer| answer.epoch > epoch)
    }

    fn run(&self) {
        let mut backoff = Backoff::default();
        let mut unused = 0;
        while self.until_used(&mut unused) {
            let Some(sentinel) = self.order().into_iter().next() else {
                return;
            };
            let heard = self.listen(&sentinel, &mut unused);
            let mut state = self.state.lock();
            state.writer = None;
            if state.is_closed {
                return;
            }
            match heard {
                Ok(()) => backoff = Backoff::default(),
                Err(fault) => {
                    drop(state);
                    events::sentinel_failed(&sentinel.address.node, &fault.reason());
                    self.put_last(&sentinel);
                    state = self.state.lock();
                    if !state.is_closed {
                        let again_at = Instant::now() + backoff.next();
                        drop(self.wanted.wait(state, Some(again_at)));
                    }
                }
            }
        }
    }

    /// Sleeps while nobody uses the client; false when it is closed.
    fn until_used(&self, unused: &mut u32) -> bool {
        let is_idle = *unused >= IDLE_CHECKS;
        if is_idle {
            // Nobody looks after the master from here on, so that the next one to use it has to find it.
            self.mastership.suspect(self.mastership.generation());
        }
        let mut state = self.state.lock();
        while is_idle && !state.is_closed && !self.is_used.load(Ordering::Relaxed) {
            state = self.wanted.wait(state, None);
        }
        if is_idle {
            *unused = 0;
        }
        !state.is_closed
    }

    /// Listens to one sentinel until its connection ends, or nobody uses the client any more.
    fn listen(&self, sentinel: &Sentinel, unused: &mut u32) -> Result<(), CallError> {
        let deadline = Instant::now() + self.command_timeout;
        let mut connection = Connection::connect(&sentinel.address, deadline)?;
        let mut writer = connection
            .writer()
            .map_err(|error| CallError::NotSent(Reason::of_io(error.to_string(), error)))?;
        let send = |writer: &mut Writer, command: redis::Cmd| {
            let sent = writer.send(&command.get_packed_command());
            sent.map_err(|error| CallError::NotSent(Reason::of_io(error.to_string(), error)))
        };
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(CHANNEL);
        send(&mut writer, subscribe)?;
        {
            let mut state = self.state.lock();
            if state.is_closed {
                return Ok(());
            }
            state.writer = Some(writer);
        }
        // Whether it still answers is seen by its answer to a PING, one check later.
        let mut pinged_at: Option<Instant> = None;
        let mut check_at = Instant::now();
        // The others may hear of a failover a moment later than this one.
        let mut pause = CHECKS.0;
        loop {
            match connection.receive(check_at) {
                Ok(message) => {
                    pinged_at = None;
                    if self.concerns_us(&message) {
                        check_at = Instant::now();
                    }
                }
                Err(CallError::NoReply {
                    timed_out: true, ..
                }) => {
                    match pinged_at {
                        Some(at) if at.elapsed() >= self.check_every => {
                            return Err(CallError::NotSent("no answer to PING".into()));
                        }
                        Some(_) => {}
                        None => {
                            let mut state = self.state.lock();
                            match &mut state.writer {
                                Some(writer) => send(writer, redis::cmd("PING"))?,
                                None => return Ok(()),
                            }
                            pinged_at = Some(Instant::now());
                        }
                    }
                    let is_unsure = self.check();
                    if self.is_used.swap(false, Ordering::Relaxed) {
                        *unused = 0;
                    } else if !is_unsure {
                        *unused += 1;
                    }
                    if *unused >= IDLE_CHECKS {
                        return Ok(());
                    }
                    pause = self
                        .check_every
                        .min(if is_unsure { pause * 2 } else { CHECKS.0 });
                    let next = if is_unsure { pause } else { self.check_every };
                    check_at = Instant::now() + next;
                }
                Err(fault) => return Err(fault.of_a_search()),
            }
        }
    }

    /// Whether a message tells of another master of ours: `name old-host old-port new-host new-port`.
    fn concerns_us(&self, message: &Value) -> bool {
        let Value::Array(parts) = message else {
            return false;
        };
        match parts.as_slice() {
            [kind, _, text] if text_of(kind) == "message" => {
                text_of(text).split(' ').next() == Some(&*self.name)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn named(host: &str, epoch: i64) -> Named {
        Named {
            host: host.to_owned(),
            port: 1,
            epoch,
        }
    }

    #[test]
    fn the_answers_of_a_sentinel_are_read() {
        let address = Value::Array(vec![text("10.0.0.1"), text("6379")]);
        let details = ["name", "m", "config-epoch", "7", "flags", "master"];
        let details = Value::Array(details.into_iter().map(text).collect());
        let expected = Named {
            host: "10.0.0.1".to_owned(),
            port: 6379,
            epoch: 7,
        };
        assert_eq!(named_in(&address, &details), Some(expected));
        assert_eq!(named_in(&Value::Nil, &Value::Nil), None);
        assert_eq!(named_in(&address, &Value::Nil).map(|it| it.epoch), Some(0));
    }

    #[test]
    fn the_first_master_is_that_of_the_latest_failover_and_then_of_the_majority() {
        let of = |named: &[Named]| ranked(named, 3).first().map(|it| it.host.clone());
        assert_eq!(of(&[]), None);
        let late = [named("old", 1), named("new", 2), named("new", 2)];
        assert_eq!(of(&late), Some("new".to_owned()));
        let even = [named("b", 0), named("a", 0), named("b", 0)];
        assert_eq!(of(&even), Some("b".to_owned()));
        // One alone is not enough if others agree.
        let lone = [named("a", 1), named("b", 9), named("a", 1)];
        assert_eq!(ranked(&lone, 3), [named("a", 1)]);
        let two = [named("a", 1), named("b", 9)];
        assert_eq!(ranked(&two, 3), [named("b", 9), named("a", 1)]);
        assert_eq!(ranked(&two, 2), [named("b", 9), named("a", 1)]);
    }

    #[test]
    fn who_overrules_what_is_believed() {
        let (old, new, other) = (named("old", 4), named("new", 5), named("other", 6));
        let over = |answers: &[&Named], configured| {
            let answers: Vec<Named> = answers.iter().copied().cloned().collect();
            overruled(&new, &answers, configured, true)
        };
        // Nobody, or those who know no more.
        for answers in [
            &[][..],
            &[&new],
            &[&old],
            &[&old, &new],
            &[&new, &new, &old],
        ] {
            assert_eq!(over(answers, 3), None, "{answers:?}");
        }
        // A later failover: from two, or from one of few.
        assert_eq!(over(&[&other], 3), None);
        assert_eq!(over(&[&other, &new, &new], 3), None);
        assert_eq!(over(&[&other, &new, &other], 3), Some(other.clone()));
        assert_eq!(over(&[&other, &new], 2), Some(other.clone()));
        let later = other.since(7);
        assert_eq!(over(&[&other, &later], 5), Some(other.clone()));
        // The same server after a later failover.
        let again = new.since(8);
        assert_eq!(over(&[&again, &again], 3), Some(again));
        // An earlier one: from most of those that there are.
        assert_eq!(over(&[&old, &old], 3), Some(old.clone()));
        assert_eq!(over(&[&old, &old], 5), None);
        assert_eq!(over(&[&old], 2), None);
        assert_eq!(over(&[&old], 1), Some(old.clone()));
        let answers = [old.clone(), old];
        assert_eq!(overruled(&new, &answers, 3, false), None);
        // Sentinels that were set up anew begin to count anew.
        let anew = new.since(0);
        assert_eq!(over(&[&anew, &anew], 3), Some(anew));
    }

    #[test]
    fn one_alone_is_believed_only_if_the_known_master_is_none_any_more() {
        let (old, new, other) = (named("old", 4), named("new", 5), named("other", 6));
        assert_eq!(
            told_by_one(&old, &[old.clone(), new.clone()]),
            Some(new.clone())
        );
        assert_eq!(told_by_one(&new, &[old.clone(), new.clone()]), None);
        assert_eq!(told_by_one(&new, &[new.since(7)]), None);
        let doubt = |answers: &[&Named], missed| {
            let answers: Vec<Named> = answers.iter().copied().cloned().collect();
            doubt_about(&new, &answers, 3, missed)
        };
        assert_eq!(doubt(&[&new], Standing::NoMaster), None);
        assert_eq!(doubt(&[&new, &old], Standing::NoMaster), None);
        assert!(doubt(&[&new, &old, &old], Standing::NoMaster).is_some());
        assert_eq!(doubt(&[&new], Standing::Silent), None);
        assert!(doubt(&[&new, &old], Standing::Silent).is_some());
        assert!(doubt(&[&new, &other], Standing::Silent).is_some());
        assert!(doubt(&[&new], Standing::Unclear).is_some());
    }
}
