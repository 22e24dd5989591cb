//! Forks of a holder: F51.

use super::*;

#[test]
fn a_forked_child_owns_nothing_and_harms_nothing() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let mut child = Child::spawn("forking holder", &[("URL", &server.url())]);
    child.expect_line("unlocked early", CHILD);
    let id = child.expect_line("holds", CHILD)["holds ".len()..].to_owned();
    // The first script of the new client reads the existing field.
    let sent = || {
        let mut lines = monitor.lines_containing(&id);
        // The parent checks the server's settings once, on a connection named after it.
        lines.retain(|line| !line.contains(" lua] ") && !line.contains("\"SETNAME\""));
        lines
    };
    let sent_before = sent().len();
    assert!(sent_before > 0);
    child.send_line("fork");
    let report = child.expect_line("forked", CHILD);
    assert_eq!(
        report,
        "forked valid=false,false remaining=0ns try_lock=Forked unlock=Forked guard=Forked lost=Forked \
         question=Forked force=Forked open=InvalidConfig"
    );
    child.expect_line("joined", CHILD);
    let sent = sent();
    assert_eq!(sent.len(), sent_before, "{sent:#?}");
    assert_eq!(server.text(&["HGET", "orders", &id]), Some("2".into()));
    child.send_line("go on");
    assert_eq!(
        child.expect_line("parent", CHILD),
        "parent valid=true count=2 renewed=true () ()"
    );
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

pub(super) fn forking_holder() {
    let url = arg("URL");
    fork_before_the_first_client(&url);
    // No renewal happens during the life of the forked child.
    let client = Client::builder()
        .watchdog_timeout(Duration::from_secs(45))
        .open(&url)
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let second = lock.guard().unwrap();
    let lost_before = guard.lost();
    say(&format!("holds {}", guard.visitor()));
    listen();
    match fork::fork().unwrap() {
        Fork::Child => {
            let valid = (guard.is_valid(), lock.is_valid());
            let remaining = guard.remaining_validity();
            let tried = outcome(lock.try_lock());
            let unlocked = outcome(lock.unlock());
            let freed = outcome(second.unlock());
            let lost = outcome(lock.lost().map(drop));
            let cause = guard.lost().recv_timeout(SLACK).unwrap().cause;
            assert_eq!(cause, LossCause::Forked);
            for losses in [&lost_before, &lost_before.clone()] {
                assert!(!losses.is_valid());
                assert_eq!(losses.recv().unwrap().cause, LossCause::Forked);
                for _ in 0..2 {
                    let told = losses.as_receiver().recv_timeout(SLACK).unwrap();
                    assert_eq!(told.cause, LossCause::Forked);
                }
            }
            let opened = outcome(Client::open(&url));
            let question = outcome(lock.is_locked());
            let force = outcome(lock.force_unlock());
            drop(guard);
            client.shutdown();
            drop((lock, client));
            say(&format!(
                "forked valid={},{} remaining={remaining:?} try_lock={tried} unlock={unlocked} guard={freed} \
                 lost={lost} question={question} force={force} open={opened}",
                valid.0, valid.1
            ));
            std::process::exit(0);
        }
        Fork::Parent(pid) => {
            fork::waitpid(pid).unwrap();
            say("joined");
            listen();
            let valid = guard.is_valid() && second.is_valid() && lost_before.try_recv().is_err();
            let count = lock.hold_count().unwrap();
            let short = client.lock("orders").with_lease_time(MINUTE);
            let renewed = short.try_lock().unwrap() && short.unlock().is_ok();
            let freed = (outcome(second.unlock()), outcome(guard.unlock()));
            say(&format!(
                "parent valid={valid} count={count} renewed={renewed} {} {}",
                freed.0, freed.1
            ));
        }
    }
}

fn fork_before_the_first_client(url: &str) {
    match fork::fork().unwrap() {
        Fork::Child => {
            let lock = Client::open(url).unwrap().lock("early");
            assert!(lock.try_lock().unwrap());
            lock.unlock().unwrap();
            say("unlocked early");
            std::process::exit(0);
        }
        Fork::Parent(pid) => fork::waitpid(pid).unwrap(),
    }
}
