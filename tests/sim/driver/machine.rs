//! The simulated Redis servers on the network, and the holds that they were made to forget.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redlatch_server_checks::{Config, Persistence, Server, Unread, Value, scripts};
use redlatch_world::events;
use redlatch_world::network::{self, Machine};
use redlatch_world::scheduler;

use crate::causes;
use crate::counters;
use crate::epochs;
use crate::plan::Plan;
use crate::queues;
use crate::replication::bytes;
use crate::shards;
use crate::sides;
use crate::topology::Topology;
use crate::writes;

/// The visitors whose hold the server was made to forget, as the README allows: they may be valid beside others.
static EXCUSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The most members of a hold.
const MOST_PARTS: usize = 3;

pub(crate) fn excuse(visitors: impl IntoIterator<Item = String>) {
    let mut excused = EXCUSED.lock().unwrap_or_else(PoisonError::into_inner);
    excused.extend(visitors);
}

pub(crate) fn is_excused(visitor: &str) -> bool {
    let excused = EXCUSED.lock().unwrap_or_else(PoisonError::into_inner);
    // The tokens of a hold with members are derived from its visitor.
    let of_part = |part| excused.contains(&format!("{}-{part}", visitor.replace(':', "-")));
    excused.contains(visitor) || !excused.is_empty() && (0..MOST_PARTS).any(of_part)
}

/// A server and its address in the network.
#[derive(Clone)]
pub(crate) struct Redis {
    pub(crate) place: usize,
    machine: Arc<Mutex<Simulated>>,
    /// Whether it is a node of a Redlock, which survives its restart.
    is_one_of_many: bool,
}

pub(crate) struct Simulated {
    pub(crate) server: Server,
    number: usize,
    /// Whether its changes have to be carried to other servers.
    has_others: bool,
    /// Whether another server is now the master of its keys.
    pub(crate) is_stale: bool,
    /// When its timeouts are processed next.
    pub(crate) ticks_at: Option<i64>,
    /// The scripts of forced unlocks, as requests name them, if the programs use them.
    force: Vec<Vec<u8>>,
    /// By connection, the incomplete request.
    begun: BTreeMap<u64, Vec<u8>>,
}

/// How the names of locks begin.
const LOCKS: [&[u8]; 6] = [b"lock", b"token", b"fenced", b"spin", b"rw", b"fair"];

impl Machine for Simulated {
    fn connect(&mut self, connection: u64) {
        self.server.connect(connection);
    }

    fn disconnect(&mut self, connection: u64) {
        self.server.disconnect(connection);
        self.begun.remove(&connection);
    }

    fn feed(&mut self, now: i64, connection: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        scheduler::note_news();
        let mut input = self.begun.remove(&connection).unwrap_or_default();
        input.extend(bytes);
        let (mut at, mut answers) = (0, Vec::new());
        loop {
            match redlatch_server_checks::next(&input, &mut at) {
                Ok(request) => answers.extend(self.run(now, connection, &request)),
                Err(Unread::More) => {
                    self.begun.insert(connection, input.split_off(at));
                    break;
                }
                // The rest of a request, after the end of its connection.
                Err(Unread::Wrong(_)) => {
                    self.server.disconnect(connection);
                    break;
                }
            }
        }
        if self.has_others {
            let number = self.number;
            scheduler::at(scheduler::now(), move || shards::fed(number));
        }
        answers
    }
}

impl Simulated {
    /// Runs a request, and shows its effect to all checkers.
    fn run(&mut self, now: i64, connection: u64, request: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
        let script = request.get(1);
        if script.is_some_and(|script| self.force.contains(script)) {
            excuse(self.visitors(now).into_iter().map(|(_, visitor)| visitor));
        }
        let answers = bytes(self.server.command(now, connection, request));
        let visitors = self.visitors(now).into_iter();
        causes::note_visitors(visitors.map(|(_, visitor)| visitor));
        writes::ran(&mut self.server);
        let own = answers.iter().find(|(to, _)| *to == connection);
        if let Some((_, answer)) = own {
            queues::ran(&self.server, now, request, answer);
        }
        if self.is_stale {
            let visitors = self.visitors(now).into_iter().map(|(_, visitor)| visitor);
            excuse(visitors.filter(|it| !epochs::knows_better(self.number, it)));
        }
        answers
    }

    /// Every lock key and its visitor, and the owners of permits.
    fn visitors(&mut self, now: i64) -> Vec<(String, String)> {
        let millis = now.div_euclid(1_000);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut visitors = Vec::new();
        let keys = self.server.keys();
        let entries = keys.iter();
        let stands = |end: &i64| millis <= *end;
        // In one pass, because this runs at each request.
        for ((_, key), entry) in entries.filter(|(_, it)| it.expires.as_ref().is_none_or(stands)) {
            match &entry.value {
                Value::Sorted(owners) => {
                    let key = text(key);
                    let Some(semaphore) = counters::semaphore_of(&key) else {
                        continue;
                    };
                    let living = owners.iter().filter(|(_, end)| millis < end.whole());
                    let owner = |owner: &[u8]| counters::owner_text(semaphore, owner);
                    visitors.extend(living.map(|(it, _)| (semaphore.to_owned(), owner(it))));
                }
                _ if !LOCKS.iter().any(|kind| key.starts_with(kind)) => {}
                Value::Hash(fields) => {
                    // Readers have a timeout key of their own.
                    let ends = |field: &[u8]| {
                        let end = [b"{", &**key, b"}:", field, b":rwlock_timeout:1"].concat();
                        keys.get(&(0, end), millis).is_some()
                    };
                    let reads = fields.iter().any(|(_, it)| it == b"read");
                    let fields = fields.iter().map(|(field, _)| field);
                    let standing = fields.filter(|it| *it != b"mode" && (!reads || ends(it)));
                    visitors.extend(standing.map(|field| (text(key), text(field))));
                }
                Value::String(token) => visitors.push((text(key), text(token))),
                Value::Set(_) | Value::List(_) => {}
            }
        }
        visitors
    }
}

impl Redis {
    /// Adds server number `number` of a plan to the network.
    pub(crate) fn start(number: usize, seed: u64, plan: &Plan) -> Redis {
        let clock = plan.servers[number];
        let config = Config {
            seed: seed.wrapping_mul(0x9e37_79b9).wrapping_add(number as u64),
            ..Config::default()
        };
        // It was started an hour before.
        let started = 1_790_000_000_000_000 + clock.0 - 3_600_000_000;
        let shape = match &plan.topology {
            Topology::Replicated(shape) => Some(shape),
            _ => None,
        };
        let server = match shape {
            Some(shape) if shape.is_sentinel(number) => Server::sentinel(config, started),
            _ => Server::new(config, started),
        };
        let machine = Arc::new(Mutex::new(Simulated {
            server,
            number,
            has_others: shape.is_some(),
            is_stale: false,
            ticks_at: None,
            force: if plan.forces() { forcing() } else { Vec::new() },
            begun: BTreeMap::new(),
        }));
        let dynamic: Arc<Mutex<dyn Machine>> = machine.clone();
        let name = format!("s{number}");
        let place = network::add_server(&name, &host(number), 6379, dynamic, clock);
        Redis {
            place,
            machine,
            is_one_of_many: plan.is_node(number),
        }
    }

    /// The server, to change it.
    pub(crate) fn machine(&self) -> MutexGuard<'_, Simulated> {
        scheduler::note_news();
        self.glimpse()
    }

    /// The server, for inspection.
    pub(crate) fn glimpse(&self) -> MutexGuard<'_, Simulated> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hold count of a visitor and the ms left of the lock's key, if it exists.
    pub(crate) fn look(&self, name: &str, visitor: &str) -> Option<(u32, i64)> {
        let now = network::time_of(self.place);
        let machine = self.glimpse();
        if counters::is_semaphore(name) {
            let living = counters::living_owners(&machine, now, name);
            let mut least = i64::MAX;
            for owner in counters::owners_in(name, visitor) {
                let (_, left) = living.iter().find(|(it, _)| it == owner)?;
                least = least.min(*left);
            }
            return Some((1, least));
        }
        let (value, left) = machine.server.look(now, name)?;
        match value {
            Value::Hash(fields) => {
                let mut fields = fields.iter();
                let (_, count) = fields.find(|(field, _)| field == visitor.as_bytes())?;
                let end = format!("{{{name}}}:{visitor}:rwlock_timeout:1");
                let own = machine.server.look(now, &end).map(|(_, left)| left);
                let is_reader = name.starts_with(sides::KIND) && !visitor.ends_with(":write");
                // A reader without its own timeout has none.
                let left = if is_reader { left.min(own?) } else { left };
                Some((std::str::from_utf8(count).ok()?.parse().ok()?, left))
            }
            Value::String(token) => (token == visitor.as_bytes()).then_some((1, left)),
            Value::Set(_) | Value::Sorted(_) | Value::List(_) => None,
        }
    }

    /// Whether a token exists that belongs to a hold with members.
    pub(crate) fn has_token_of(&self, name: &str, visitor: &str) -> bool {
        let of_part = |part| {
            let token = format!("{}-{part}", visitor.replace(':', "-"));
            self.look(name, &token).is_some()
        };
        (0..MOST_PARTS).any(of_part)
    }

    /// The TTL of the lock, in ms; `None` if it is free.
    pub(crate) fn left(&self, name: &str) -> Option<i64> {
        let now = network::time_of(self.place);
        self.glimpse().server.look(now, name).map(|(_, left)| left)
    }

    /// Every lock that is held.
    pub(crate) fn standing(&self) -> Vec<(String, String)> {
        let now = network::time_of(self.place);
        self.glimpse().visitors(now)
    }

    /// The members of a list or a set.
    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        let now = network::time_of(self.place);
        let text = |item: &[u8]| String::from_utf8_lossy(item).into_owned();
        match self.glimpse().server.look(now, key) {
            Some((Value::List(items), _)) => items.iter().map(|it| text(it)).collect(),
            Some((Value::Sorted(items), _)) => items.iter().map(|(it, _)| text(it)).collect(),
            _ => Vec::new(),
        }
    }

    /// The number of requests that it records to execute each only once.
    pub(crate) fn remembered(&self) -> usize {
        let now = network::time_of(self.place);
        let mut machine = self.machine();
        let keys = machine.server.keys().iter();
        let keys = keys.map(|(key, _)| String::from_utf8_lossy(&key.1).into_owned());
        let once: Vec<String> = keys.filter(|it| it.starts_with("redlatch_once")).collect();
        let remembered = once
            .iter()
            .filter(|it| machine.server.look(now, it).is_some());
        remembered.count()
    }

    /// Its connections, and the subscriptions on them.
    pub(crate) fn clients(&self) -> (usize, usize) {
        self.glimpse().server.clients()
    }

    pub(crate) fn go_down(&self) {
        network::take_down(self.place);
        let now = network::time_of(self.place);
        self.machine().server.stop(now);
    }

    pub(crate) fn come_back(&self, persistence: Persistence) {
        let now = network::time_of(self.place);
        let mut machine = self.machine();
        if persistence != Persistence::All && !self.is_one_of_many {
            let visitors = machine.visitors(now);
            excuse(visitors.into_iter().map(|(_, visitor)| visitor));
        }
        machine.server.restart(now, persistence);
        drop(machine);
        network::bring_up(self.place);
    }

    /// A replica replaces this server, without the changes that were not replicated.
    pub(crate) fn is_replaced(&self) {
        let now = network::time_of(self.place);
        let mut machine = self.machine();
        let hour = 3_600_000_000;
        let mut follower = Server::new(
            Config {
                seed: 77,
                ..Config::default()
            },
            now - hour,
        );
        follower.follow("10.0.0.9", 6379, None);
        follower.promote();
        machine.server = follower;
        drop(machine);
        network::bring_up(self.place);
    }

    pub(crate) fn flush(&self) {
        let now = network::time_of(self.place);
        let mut machine = self.machine();
        let visitors = machine.visitors(now);
        excuse(visitors.into_iter().map(|(_, visitor)| visitor));
        machine.server.flush(now);
    }

    /// Sets its clock; if that is ahead, keys expire early.
    pub(crate) fn set_clock(&self, micros: i64) {
        events::count(if micros > 0 {
            "clock set ahead"
        } else {
            "clock set back"
        });
        if micros > 0 {
            excuse(self.standing().into_iter().map(|(_, visitor)| visitor));
        }
        network::step_clock(self.place, micros);
    }

    pub(crate) fn forget_scripts(&self) {
        self.machine().server.forget_scripts();
    }
}

/// The scripts of forced unlocks, by hash and by text.
fn forcing() -> Vec<Vec<u8>> {
    let scripts = ["plain/force_release", "token/force_release"];
    let scripts = scripts.into_iter().filter_map(scripts::named);
    let texts = scripts.flat_map(|it| [it.text.to_owned(), it.sharded_text()]);
    let names = texts.flat_map(|text| [scripts::hash(text.as_bytes()), text]);
    names.map(String::into_bytes).collect()
}

pub(crate) fn host(number: usize) -> String {
    format!("10.0.0.{number}")
}
