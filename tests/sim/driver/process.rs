//! What one process does: its client, its threads, and its end.

use std::time::Duration;

use redlatch_sim::{Client, Lock, MultiLock, Redlock};
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::machine::host;
use crate::plan::{Plan, Process};
use crate::run::{expect, violated};
use crate::topology::{Home, Parts, Topology};
use crate::worker::Worker;

/// The place of the locks: one server, or a majority of several.
#[derive(Clone)]
pub(crate) enum Place {
    One(Client),
    Many(Redlock),
    Parts(Several),
}

/// Locks on several servers, and some that are made of them.
#[derive(Clone)]
pub(crate) struct Several {
    clients: Vec<Client>,
    redlock: Option<Redlock>,
    locks: Vec<Lock>,
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
        if let Topology::Parts(parts) = &plan.topology {
            return Place::Parts(Several::of(parts, clients, plan));
        }
        match plan.redlock {
            Some(node_timeout) => Place::Many(redlock(clients, node_timeout, plan)),
            None => Place::One(clients.remove(0)),
        }
    }

    /// Lock number `number` of a program, and its name.
    pub(crate) fn lock(&self, number: usize, is_token: bool) -> (Lock, String) {
        let kind = if is_token { "token" } else { "lock" };
        let name = format!("{kind}{number}");
        match self {
            Place::One(client) if is_token => (client.token_lock(&name), name),
            Place::One(client) => (client.lock(&name), name),
            Place::Many(redlock) => (redlock.lock(&name), name),
            Place::Parts(several) => {
                let lock = several.locks[number].clone();
                let name = lock.name().to_owned();
                (lock, name)
            }
        }
    }

    fn shut_down(&self) {
        match self {
            Place::One(client) => client.shutdown(),
            Place::Many(redlock) => redlock.shutdown(),
            Place::Parts(several) => {
                several.clients.iter().for_each(Client::shutdown);
                several.redlock.iter().for_each(Redlock::shutdown);
            }
        }
    }
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
    fn of(parts: &Parts, clients: Vec<Client>, plan: &Plan) -> Several {
        let redlock = plan
            .redlock
            .map(|node_timeout| redlock(clients[..parts.nodes].to_vec(), node_timeout, plan));
        let single = parts.parts.iter().map(|part| match (part.home, &redlock) {
            (Home::Quorum, Some(redlock)) => redlock.lock(&part.name),
            (Home::Server(server), _) if part.is_token => clients[server].token_lock(&part.name),
            (Home::Server(server), _) => clients[server].lock(&part.name),
            (Home::Quorum, None) => violated("a part of a Redlock that is not there"),
        });
        let mut locks: Vec<Lock> = single.collect();
        for multi in &parts.multis {
            match MultiLock::of(multi.iter().map(|part| &locks[*part])) {
                Ok(lock) => locks.push(lock),
                Err(error) => violated(&format!("the MultiLock cannot be made: {error}")),
            }
        }
        Several {
            clients,
            redlock,
            locks,
        }
    }
}

/// What one process does from its beginning to its end.
pub(crate) fn live(process: &Process, plan: &Plan) {
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
    let clients = (plan.topology).ends(plan.servers.len(), plan.redlock.is_some());
    let bound = clients as u64 * (command + 250 * MILLI);
    within("the end of the client", Some(bound), || drop(place));
}

/// Does something that has to end within a time, apart from that for which its process is kept from running.
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
