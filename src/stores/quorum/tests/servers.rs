//! A quorum of servers that answer as told, over their connections.

use super::*;
use crate::store::Delivery;
use crate::stores::redis::tests::stub::{Request, Says, StubServer, voter};

/// Says who a server is, and grants all that is asked.
fn grants(run: usize) -> impl FnMut(&Request) -> Option<Says> + Send + 'static {
    move |request| {
        if request.is_script() {
            return Says::int(1);
        }
        voter::identity(&format!("run{run}"), request)
    }
}

fn three() -> (Vec<StubServer>, Quorum) {
    let servers: Vec<_> = (0..3).map(|run| StubServer::start(grants(run))).collect();
    let nodes: Vec<_> = servers
        .iter()
        .map(|server| Arc::new(server.store().as_node().unwrap()))
        .collect();
    let quorum = quorum_of(&nodes, Some(Duration::from_secs(2)));
    (servers, quorum)
}

fn delivery(quorum: &Quorum, kind: Kind) -> Delivery {
    let lock = LockId { kind, ..lock() };
    quorum.subscribe(&lock, None, 0, &Arc::default()).delivery
}

#[test]
fn messages_come_once_a_majority_sends_them() {
    let (servers, quorum) = three();
    let held = quorum.subscribe(&lock(), None, 0, &Arc::default());
    assert_eq!(held.delivery, Delivery::Pending);
    assert_eq!(held.sources, 3);
    let is_live = |index: usize| {
        let store = quorum.nodes[index].node.store();
        let seen = store.subscribe(&lock(), None, 0, &Arc::default());
        seen.delivery == Delivery::Live
    };
    servers[0].until(|_| (0..3).all(is_live));
    assert_eq!(delivery(&quorum, Kind::Reentrant), Delivery::Live);
    assert_eq!(delivery(&quorum, Kind::Token), Delivery::Polling);
}

#[test]
fn the_connections_of_all_nodes_are_told_together() {
    let (servers, quorum) = three();
    assert_eq!(quorum.connections().idle, 3);
    let granted = quorum.acquire(&claim("me", 0), soon()).unwrap();
    assert!(matches!(granted, Outcome::Done(_)), "{granted:?}");
    for server in &servers {
        server.until_asked(Request::is_script);
        assert_eq!(server.connected(), 1);
    }
}

#[test]
fn a_vote_is_asked_of_a_server_that_is_known_on_that_connection() {
    let (servers, quorum) = three();
    quorum.acquire(&claim("me", 0), soon()).unwrap();
    for server in &servers {
        server.until_asked(Request::is_script);
        let asked = server.asked();
        let questions = asked.iter().filter(|it| it.is("INFO server")).count();
        assert_eq!(questions, 1, "{asked:?}");
    }
}

#[test]
fn a_lock_is_described_where_a_majority_answers() {
    for (dead, answers) in [(0, true), (1, true), (2, false), (3, false)] {
        let stores = (0..3).map(|index| {
            let node: Arc<dyn Node> = if index < dead {
                let gone = StubServer::start(|_| None).store();
                Arc::new(gone.as_node().unwrap())
            } else {
                node_in_memory()
            };
            (node, Arc::new(()) as _)
        });
        let quorum = Quorum::new(stores.collect(), settings(), soon()).unwrap();
        let told = quorum.describe(&lock(), Instant::now() + LEASE);
        assert_eq!(told.is_ok(), answers, "{dead} are dead: {told:?}");
    }
}

#[test]
fn two_nodes_of_one_server_make_no_quorum() {
    let servers: Vec<_> = [1, 2, 1].map(|run| StubServer::start(grants(run))).into();
    let stores = servers.iter().map(|server| {
        let node: Arc<dyn Node> = Arc::new(server.store().as_node().unwrap());
        (node, Arc::new(()) as _)
    });
    let refused = Quorum::new(stores.collect(), settings(), soon()).unwrap_err();
    assert!(
        refused.to_string().contains("are the same server"),
        "{refused}"
    );
}

/// What is said of the settings of servers of which `INFO` tells this.
fn told(info: &'static str) -> Vec<(&'static str, Severity, String)> {
    let servers: Vec<_> = (0..3)
        .map(|run| {
            let mut known = grants(run);
            StubServer::start(
                move |request| match request.is("INFO") && request.len() == 1 {
                    true => Says::text(info),
                    false => known(request),
                },
            )
        })
        .collect();
    let nodes: Vec<_> = servers
        .iter()
        .map(|server| Arc::new(server.store().as_node().unwrap()))
        .collect();
    let quorum = quorum_of(&nodes, Some(Duration::from_secs(2)));
    let found = quorum.check(soon()).unwrap();
    let found = found
        .into_iter()
        .map(|it| (it.code, it.severity, it.message));
    found.collect()
}

#[test]
fn what_a_restart_forgets_matters_to_no_quorum() {
    let of = |info, code| {
        let found = told(info);
        let found = found.into_iter().filter(|it| it.0 == code);
        found.map(|it| (it.1, it.2)).collect::<Vec<_>>()
    };
    let forgetful = of("redis_version:7.0.15\r\naof_enabled:0\r\n", "persistence");
    assert_eq!(forgetful.len(), 3);
    for (severity, message) in forgetful {
        assert_eq!(severity, Severity::Ok);
        assert!(
            message.ends_with("no vote for one max_lease then"),
            "{message}"
        );
    }
    // It grants nothing, and that matters.
    let broken = "redis_version:7.0.15\r\naof_enabled:1\r\naof_last_write_status:err\r\n";
    let dangers = of(broken, "persistence");
    let dangers = dangers.iter().filter(|it| it.0 == Severity::Danger);
    assert_eq!(dangers.count(), 3);
    let unknown = of("aof_enabled:0\r\n", "version");
    assert!(
        unknown.iter().all(|it| it.0 == Severity::Note),
        "{unknown:?}"
    );
}
