//! The time bounds of calls to silent servers.

use super::*;

const COMMAND: Duration = ms(1600);

/// A place (a server, a quorum, a `MultiLock`), and how long `unlock`, a wait of 100 ms and `try_lock` took there.
type Took = (usize, [Duration; 3]);

/// Calls silent servers.
fn calls() -> Vec<Took> {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let clients: Vec<_> = servers
        .iter()
        .map(|one| {
            Client::builder()
                .command_timeout(COMMAND)
                .open(&one.url())
                .unwrap()
        })
        .collect();
    let redlock = redlatch::Redlock::builder()
        .nodes(clients.clone())
        .trust_new_nodes()
        .node_timeout(ms(5000))
        .build()
        .unwrap();
    let lock = |place: usize, name: &str| match place {
        0 => clients[0].lock(&format!("one:{name}")),
        1 => redlock.lock(&format!("many:{name}")),
        _ => {
            let parts = clients.iter().enumerate();
            let parts: Vec<_> = parts
                .map(|(part, one)| one.lock(&format!("{part}:{name}")))
                .collect();
            redlatch::MultiLock::of(&parts).unwrap()
        }
    };
    for place in 0..3 {
        let taken = lock(place, "taken").with_lease_time(MINUTE / 2);
        taken.lock().unwrap();
    }
    // Each thread holds a lock and waits for a taken one when all servers fall silent.
    let ready = std::sync::Barrier::new(10);
    let took = thread::scope(|scope| {
        let threads: Vec<_> = (0..9)
            .map(|number| {
                let (lock, ready, place) = (&lock, &ready, number % 3);
                scope.spawn(move || {
                    let own = lock(place, &format!("own:{number}"));
                    let taken = lock(place, "taken");
                    own.lock().unwrap();
                    ready.wait();
                    ready.wait();
                    let took = |call: &dyn Fn() -> Result<bool, Error>| {
                        let start = Instant::now();
                        let error = call().unwrap_err();
                        assert!(!matches!(error, Error::NotHeld { .. }), "{error}");
                        start.elapsed()
                    };
                    let calls = [
                        took(&|| own.unlock().map(|()| true)),
                        took(&|| taken.try_lock_for(ms(100))),
                        took(&|| taken.try_lock()),
                    ];
                    (place, calls)
                })
            })
            .collect();
        ready.wait();
        servers.iter().for_each(RedisServer::freeze);
        ready.wait();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    servers.iter().for_each(RedisServer::thaw);
    took
}

#[test]
fn the_documented_time_bounds_include_the_round_trip() {
    let took: Vec<Took> = (0..3).flat_map(|_| calls()).collect();
    for place in 0..3 {
        // The minimum counts: the slack of the machine is not part of the bound.
        let quickest = |call: usize| {
            let here = took.iter().filter(|(at, _)| *at == place);
            here.map(|(_, calls)| calls[call]).min().unwrap()
        };
        let [unlock, wait, once] = [0, 1, 2].map(quickest);
        assert!(unlock < COMMAND, "unlock: {unlock:?} in place {place}");
        assert!(wait < ms(100 + 250), "wait: {wait:?} in place {place}");
        assert!(once < COMMAND, "try: {once:?} in place {place}");
    }
}
