//! One process: its client, its threads, and its end.

use std::time::Duration;

use redlatch_sim::{Builder, Client, Interrupt, Lock, MultiLock, Redlock};
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::machine::host;
use crate::plan::{Flavour, Plan, Process};
use crate::queues;
use crate::rules;
use crate::run::{expect, violated};
use crate::sentinels::MASTER;
use crate::sides;
use crate::topology::{Kind, Location, Parts, Replicated, Topology};
use crate::worker::Worker;

/// Where the locks are: one server, or a quorum of several.
#[derive(Clone)]
pub(crate) struct Place {
    locks: Locks,
    clients: Vec<Client>,
    flavours: Vec<Flavour>,
}

#[derive(Clone)]
enum Locks {
    One(Client),
    Many(Redlock),
    Parts(Several),
}

/// Locks on several servers, and some that are made of them.
#[derive(Clone)]
pub(crate) struct Several {
    redlock: Option<Redlock>,
    locks: Vec<Lock>,
}

impl Place {
    pub(crate) fn open(plan: &Plan) -> Place {
        let clients = clients(plan);
        queues::note_client(clients[0].id());
        Place {
            locks: Locks::of(clients.clone(), plan),
            clients,
            flavours: plan.flavours.to_vec(),
        }
    }

    /// Lock number `number` of a program, and its name.
    pub(crate) fn lock(&self, number: usize, is_token: bool) -> (Lock, String) {
        let flavour = self.flavours.get(number).copied();
        let flavour = flavour.unwrap_or(Flavour::Plain);
        let is_mixed = flavour == Flavour::Mixed && scheduler::process() % 2 == 1;
        let kind = match flavour {
            _ if is_token => "token",
            Flavour::Plain | Flavour::Mixed => "lock",
            Flavour::Fenced => "fenced",
            Flavour::Spin => "spin",
            Flavour::Fair => queues::KIND,
        };
        let name = format!("{kind}{number}");
        match &self.locks {
            Locks::One(client) if is_token => (client.token_lock(&name), name),
            Locks::One(client) if flavour == Flavour::Fenced => (client.fenced_lock(&name), name),
            Locks::One(client) if flavour == Flavour::Fair => (client.fair_lock(&name), name),
            Locks::One(client) if flavour == Flavour::Spin || is_mixed => {
                (client.spin_lock(&name), name)
            }
            Locks::One(client) => (client.lock(&name), name),
            Locks::Many(redlock) => (redlock.lock(&name), name),
            Locks::Parts(several) => {
                let lock = several.locks[number].clone();
                let name = lock.name().to_owned();
                (lock, name)
            }
        }
    }

    /// A side of the read-write lock of this number.
    pub(crate) fn side(&self, number: usize, writes: bool) -> (Lock, String) {
        let name = sides::name_of(number, writes);
        let lock = self.client().read_write_lock(sides::lock_of(&name));
        let side = if writes { lock.write() } else { lock.read() };
        (side, name)
    }

    /// Whether data can be written beside its locks.
    pub(crate) fn has_data(&self) -> bool {
        matches!(self.locks, Locks::One(_))
    }

    /// The client of the first server, where semaphores and latches are.
    pub(crate) fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// Shuts its clients down in order; each may take a command timeout and slightly more.
    fn shut_down(&self, command: Nanos) {
        let in_time = |call: &dyn Fn()| within("shutdown", Some(command + 250 * MILLI), call);
        match &self.locks {
            Locks::One(client) => in_time(&|| client.shutdown()),
            Locks::Many(redlock) => in_time(&|| redlock.shutdown()),
            Locks::Parts(several) => {
                (self.clients.iter()).for_each(|client| in_time(&|| client.shutdown()));
                (several.redlock.iter()).for_each(|redlock| in_time(&|| redlock.shutdown()));
            }
        }
    }
}

impl Locks {
    fn of(mut clients: Vec<Client>, plan: &Plan) -> Locks {
        if let Topology::Parts(parts) = &plan.topology {
            return Locks::Parts(Several::of(parts, &clients, plan));
        }
        match plan.redlock {
            Some(node_timeout) => Locks::Many(redlock(clients, node_timeout, plan)),
            None => Locks::One(clients.remove(0)),
        }
    }
}

/// The settings of a client.
fn builder(plan: &Plan) -> Builder {
    Client::builder()
        .watchdog_timeout(Duration::from_millis(plan.lease))
        .command_timeout(Duration::from_millis(plan.command))
        .connect_timeout(Duration::from_millis(plan.command / 2))
        .outage_timeout(Duration::from_millis(plan.outage))
        .pool_size(plan.pool)
        .fair_lock_wait_timeout(Duration::from_millis(plan.patience))
}

/// The client of masters with replicas.
fn client_of(shape: &Replicated, plan: &Plan) -> Client {
    let mut builder = builder(plan);
    if let Some((replicas, millis)) = shape.wait {
        builder = builder.wait_replicas(replicas, Duration::from_millis(millis));
    }
    let servers = 0..shape.servers();
    let (sentinels, data): (Vec<usize>, Vec<usize>) =
        servers.partition(|it| shape.is_sentinel(*it));
    let urls = |of: &[usize]| -> Vec<String> {
        of.iter()
            .map(|it| format!("redis://{}:6379", host(*it)))
            .collect()
    };
    let client = match shape.kind {
        Kind::Fixed => builder.master_replicas(urls(&data)),
        Kind::Sentinels => builder.sentinel(MASTER, urls(&sentinels)),
        Kind::Cluster if shape.has_sharded_messages => builder.cluster(urls(&data)),
        Kind::Cluster => builder.sharded_pubsub(false).cluster(urls(&data)),
    };
    match client {
        Ok(client) => client,
        Err(error) => violated(&format!("the client cannot be made: {error}")),
    }
}

fn clients(plan: &Plan) -> Vec<Client> {
    if let Topology::Replicated(shape) = &plan.topology {
        return vec![client_of(shape, plan)];
    }
    let clients = (0..plan.servers.len()).map(|number| {
        match builder(plan).open(&format!("redis://{}:6379", host(number))) {
            Ok(client) => client,
            Err(error) => violated(&format!("the client cannot be made: {error}")),
        }
    });
    clients.collect()
}

fn redlock(clients: Vec<Client>, node_timeout: u64, plan: &Plan) -> Redlock {
    let builder = Redlock::builder()
        .nodes(clients)
        .max_lease(Duration::from_millis(plan.longest_lease()))
        .watchdog_timeout(Duration::from_millis(plan.lease))
        .outage_timeout(Duration::from_millis(plan.outage))
        .node_timeout(Duration::from_millis(node_timeout));
    match builder.build() {
        Ok(redlock) => redlock,
        Err(error) => violated(&format!("the Redlock cannot be made: {error}")),
    }
}

impl Several {
    fn of(parts: &Parts, clients: &[Client], plan: &Plan) -> Several {
        let redlock = plan
            .redlock
            .map(|node_timeout| redlock(clients[..parts.nodes].to_vec(), node_timeout, plan));
        let single = parts.parts.iter().map(|part| match (part.home, &redlock) {
            (Location::Quorum, Some(redlock)) => redlock.lock(&part.name),
            (Location::Server(server), _) if part.is_token => {
                clients[server].token_lock(&part.name)
            }
            (Location::Server(server), _) => clients[server].lock(&part.name),
            _ => violated("a part that is nowhere"),
        });
        let mut locks: Vec<Lock> = single.collect();
        for multi in &parts.multis {
            match MultiLock::of(multi.iter().map(|part| &locks[*part])) {
                Ok(lock) => locks.push(lock),
                Err(error) => violated(&format!("the MultiLock cannot be made: {error}")),
            }
        }
        Several { redlock, locks }
    }
}

/// Runs one process from its start to its end.
pub(crate) fn live(process: &Process, plan: &Plan) {
    scheduler::sleep_until(process.begins_at);
    let place = Place::open(plan);
    let threads = process.threads.iter().enumerate().map(|(number, thread)| {
        let worker = Worker::new(&place, thread.clone(), process.shut_down_at, plan);
        expect(scheduler::spawn(&format!("t{number}"), None, move || {
            worker.run()
        }))
    });
    let threads: Vec<_> = threads.collect();
    let command = plan.command * MILLI;
    if let Some(at) = process.shut_down_at {
        scheduler::sleep_until(at);
        place.shut_down(command);
        queues::note_shutdown(plan);
    }
    for thread in threads {
        if thread.join().is_err() {
            violated("a thread has panicked");
        }
    }
    if plan.lingers() {
        let patience = rules::patience(command);
        scheduler::sleep_until(plan.calm_at + plan.settle + patience);
        scheduler::sleep_until(scheduler::now() + patience);
    }
    let clients = (plan.topology).ends(plan.servers.len(), plan.redlock.is_some());
    let bound = clients as u64 * (command + 250 * MILLI);
    within("the end of the client", Some(bound), || drop(place));
}

/// An interrupt raised after this many ms, whether a thread waits for it by then or not.
pub(crate) fn interrupt_after(millis: u64) -> Interrupt {
    let interrupt = Interrupt::new();
    let raised = interrupt.clone();
    let raiser = scheduler::spawn("raiser", None, move || {
        scheduler::sleep_until(scheduler::now() + millis * MILLI);
        raised.raise();
    });
    drop(expect(raiser));
    interrupt
}

/// Runs `what`, which has to end within a time, not counting the time for which its process is kept from running.
pub(crate) fn within<T>(what: &str, bound: Option<Nanos>, call: impl FnOnce() -> T) -> T {
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
