//! What one process does: its client, its threads, and its end.

use std::time::Duration;

use redlatch_sim::{Client, Lock, Redlock};
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::machine::host;
use crate::plan::{Plan, Process};
use crate::run::{expect, violated};
use crate::worker::Worker;

/// The place of the locks: one server, or a majority of several.
#[derive(Clone)]
pub(crate) enum Place {
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

    pub(crate) fn lock(&self, name: &str, is_token: bool) -> Lock {
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
    // A Redlock has a client of its own beside those of its nodes.
    let clients = plan.servers.len() as u64 + u64::from(plan.redlock.is_some());
    let bound = clients * (command + 250 * MILLI);
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
