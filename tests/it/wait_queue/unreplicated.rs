//! Waits where too few replicas acknowledge the master's grants.

use super::*;

const OUTAGE: Duration = ms(2000);

fn open(server: &RedisServer) -> Client {
    Client::builder()
        .wait_replicas(1, ms(1))
        .command_timeout(ms(2000))
        .outage_timeout(OUTAGE)
        .open(&server.url())
        .unwrap()
}

/// How long each of this many clients waits until it gives up.
fn waits(
    clients: &[Client],
    threads: usize,
    wait: fn(&Client) -> redlatch::Result<()>,
) -> Vec<Duration> {
    thread::scope(|scope| {
        let all: Vec<_> = clients
            .iter()
            .flat_map(|client| vec![client; threads])
            .map(|client| {
                scope.spawn(move || {
                    let start = Instant::now();
                    let error = wait(client).unwrap_err();
                    assert!(matches!(error, Error::NotReplicated { .. }), "{error}");
                    start.elapsed()
                })
            })
            .collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

#[track_caller]
fn all_give_up(wait: fn(&Client) -> redlatch::Result<()>) {
    for (count, threads) in [(1, 1), (2, 1), (4, 1), (2, 3)] {
        let server = RedisServer::start();
        let clients: Vec<_> = (0..count).map(|_| open(&server)).collect();
        server.cmd(&["SET", "permits", "1"]);
        let before = server.eval_count();
        let took = waits(&clients, threads, wait);
        println!(
            "{count} x {threads}: {took:?}, {} requests",
            server.eval_count() - before
        );
        assert!(
            took.iter()
                .all(|it| *it >= OUTAGE - ms(300) && *it < OUTAGE * 3),
            "{count} clients: {took:?}"
        );
    }
}

#[test]
fn all_waiters_for_a_lock_give_up() {
    all_give_up(|client| client.lock("orders").lock());
}

#[test]
fn all_waiters_for_permits_give_up() {
    all_give_up(|client| client.semaphore("permits").acquire(1).map(drop));
}

#[test]
fn no_waiter_gives_up_while_the_holder_stays() {
    let server = RedisServer::start();
    let patient = Client::builder().command_timeout(ms(10_000));
    let holder = patient.open(&server.url()).unwrap().lock("orders");
    let waiting = open(&server);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let error = waiting.lock("orders").lock().unwrap_err();
            (Instant::now(), error)
        });
        // It knows that its holds are undone.
        thread::sleep(ms(500));
        holder.lock().unwrap();
        thread::sleep(OUTAGE * 3);
        assert!(!waiter.is_finished(), "it is only refused");
        let freed = Instant::now();
        holder.unlock().unwrap();
        let (ended, error) = waiter.join().unwrap();
        assert!(matches!(error, Error::NotReplicated { .. }), "{error}");
        let took = ended - freed;
        assert!(took > OUTAGE / 3 && took < OUTAGE * 2, "{took:?}");
    });
}
