//! A frozen shard of three must not delay the others.

use super::*;

// A frozen shard of three

#[test]
#[ignore = "needs several servers: make topologies"]
fn holds_on_a_frozen_shard_are_lost_in_time() {
    let cluster = Cluster::with(
        false,
        Access::default(),
        &["--cluster-require-full-coverage", "no"],
    );
    let client = client(&cluster, KEPT);
    let guards: Vec<_> = (0..3)
        .map(|node| {
            client
                .lock(&cluster.name_at(node, "orders"))
                .guard()
                .unwrap()
        })
        .collect();
    thread::sleep(KEPT);
    cluster.nodes[2].freeze();
    let left = guards[2].remaining_validity();
    let (took, loss) = timed(|| guards[2].lost().recv_timeout(KEPT + SLACK).unwrap());
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    assert!(took + ms(20) >= left, "{took:?} of {left:?}");
    assert!(took < left + SLACK, "{took:?} of {left:?}");
    for guard in &guards[..2] {
        is_renewed(guard);
    }
    cluster.nodes[2].thaw();
    all_works(&client.lock(&cluster.name_at(2, "invoices")));
    let mut guards = guards.into_iter();
    guards.next().unwrap().unlock().unwrap();
    guards.next().unwrap().unlock().unwrap();
    assert!(guards.next().unwrap().unlock().unwrap_err().is_lost());
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_frozen_shard_costs_no_short_hold_elsewhere() {
    let cluster = Cluster::with(
        false,
        Access::default(),
        &["--cluster-require-full-coverage", "no"],
    );
    let names = [0, 1, 2].map(|node| cluster.name_at(node, "orders"));
    for is_in_use in [false, true] {
        let builder = Client::builder().command_timeout(ms(5000));
        let client = open(builder.watchdog_timeout(ms(900)), &cluster);
        // A hold there that is renewed with the others, or a connection that is opened only while it is frozen.
        let frozen = client.lock(&names[2]);
        let frozen = is_in_use.then(|| frozen.guard().unwrap());
        if !is_in_use {
            assert!(!client.lock(&names[0]).is_locked().unwrap());
        }
        cluster.nodes[2].freeze();
        let kept = [0, 1].map(|node| client.lock(&names[node]).guard().unwrap());
        let end = Instant::now() + ms(2700);
        while Instant::now() < end {
            for guard in &kept {
                assert!(guard.is_valid(), "{:?}", guard.lost().try_recv());
            }
            thread::sleep(ms(5));
        }
        cluster.nodes[2].thaw();
        for guard in kept {
            guard.unlock().unwrap();
        }
        if let Some(frozen) = frozen {
            assert!(frozen.unlock().unwrap_err().is_lost());
        }
        client.shutdown();
    }
}

pub(crate) fn one_shard_of_three_frozen() {
    let cluster = Cluster::with(
        true,
        Access::default(),
        &["--cluster-require-full-coverage", "no"],
    );
    let (client, other) = (client(&cluster, KEPT), client(&cluster, KEPT));
    let kept: Vec<_> = (0..2)
        .map(|node| client.lock(&cluster.name_at(node, "kept")).guard().unwrap())
        .collect();
    let still = client.lock(&cluster.name_at(2, "kept")).guard().unwrap();
    // Computed now: the fixture queries all nodes, and waits for frozen ones.
    let busy = [0, 1].map(|node| cluster.name_at(node, "busy"));
    let wanted = cluster.name_at(2, "wanted");
    let healthy = sample(&busy, &client, &other);
    cluster.nodes[2].freeze();
    cluster.nodes[5].freeze();
    let (done, tried) = (AtomicBool::new(false), AtomicU32::new(0));
    let beside = thread::scope(|scope| {
        // The same clients request locks there as well, with and without waiting.
        for number in 0..6 {
            let lock = [&client, &other][number % 2].lock(&wanted);
            let (done, tried) = (&done, &tried);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let taken = if number < 3 {
                        lock.try_lock()
                    } else {
                        lock.try_lock_for(ms(700))
                    };
                    assert!(taken.is_err(), "nobody grants it");
                    thread::sleep(ms(5));
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _end = SetAtEnd(&done);
        thread::sleep(ms(1500));
        let beside = sample(&busy, &client, &other);
        for guard in &kept {
            assert!(
                guard.is_valid(),
                "a hold elsewhere was not renewed: {:?}",
                guard.lost().recv()
            );
        }
        beside
    });
    assert!(!still.is_valid());
    assert!(tried.into_inner() > 0);
    report(&format!(
        "a pair and a wake-up, p99: {healthy:.1?}, and beside a frozen shard {beside:.1?}"
    ));
    assert!(
        beside.0 < healthy.0 * 10 + ms(50),
        "{healthy:?}, {beside:?}"
    );
    // A waiter without messages polls after a second.
    assert!(beside.1 < ms(600), "{healthy:?}, {beside:?}");
    cluster.nodes[2].thaw();
    cluster.nodes[5].thaw();
    cluster.wait_until_healthy();
    all_works(&client.lock(&wanted));
}

/// Is set also when the test fails, so that its threads end.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The 99th percentile of a pair, and of a wake-up, on the shards 0 and 1.
fn sample(names: &[String; 2], holder: &Client, waiter: &Client) -> (Duration, Duration) {
    let at = |client: &Client, node: usize| client.lock(&names[node]);
    let p99 = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[(times.len() - 1) * 99 / 100]
    };
    let mut pairs = Vec::new();
    let locks = [at(holder, 0), at(holder, 1)];
    let start = Instant::now();
    while start.elapsed() < ms(3000) {
        for lock in &locks {
            let pair = || {
                lock.lock().unwrap();
                lock.unlock().unwrap();
            };
            pairs.push(timed(pair).0);
        }
    }
    let woken = (0..30)
        .map(|round| {
            let node = round % 2;
            hand_over(&at(holder, node), &at(waiter, node), || {
                thread::sleep(ms(10))
            })
        })
        .collect();
    (p99(pairs), p99(woken))
}
