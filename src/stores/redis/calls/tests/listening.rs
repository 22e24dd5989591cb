use super::*;
use crate::ground::notify::Parker;
use crate::store::{ConditionOp, ConditionStep, Delivery};

fn parker() -> Arc<Parker> {
    Arc::default()
}

/// Whether the delivery is one that comes, and the channels that the server was asked for then.
fn listened(kind: Kind, place: Option<&VisitorId>) -> (bool, Vec<String>) {
    let server = answering(Vec::new());
    let store = server.store();
    let lock = id_of(&claim_of(kind, 0));
    let subscription = store.subscribe(&lock, place, 0, &parker());
    if matches!(subscription.delivery, Delivery::Polling) {
        assert!(subscription.keep.is_none());
        assert_eq!(server.connected(), 0);
        return (false, Vec::new());
    }
    assert!(subscription.keep.is_some());
    server.until_asked(|request| request.is("SUBSCRIBE"));
    let asked = server.asked();
    let channels = asked.iter().filter(|it| it.is("SUBSCRIBE"));
    let channels = channels.flat_map(|it| it[1..].to_vec()).collect();
    (true, channels)
}

#[test]
fn a_waiter_listens_to_the_channel_of_its_lock_or_of_its_place() {
    let place = VisitorId::new("client", 1, 7);
    let (comes, channels) = listened(Kind::Reentrant, None);
    assert!(comes);
    assert_eq!(channels, ["redisson_lock__channel:{lock}"]);
    let (comes, channels) = listened(Kind::Reentrant, Some(&place));
    assert!(comes);
    assert_eq!(channels, ["redisson_lock__channel:{lock}"]);
    let (comes, channels) = listened(Kind::Fair, Some(&place));
    assert!(comes);
    let own = format!("redisson_lock__channel:{{lock}}:{}", place.as_str());
    assert_eq!(channels, [own]);
    assert!(
        !listened(Kind::Fair, None).0,
        "nobody tells one without a place"
    );
    assert!(!listened(Kind::Token, None).0, "a token has no messages");
    assert!(!listened(Kind::Token, Some(&place)).0);
}

#[test]
fn a_place_on_a_condition_has_a_channel_of_its_own() {
    let server = answering(Vec::new());
    let store = server.store();
    let (lock, condition) = (id_of(&claim(1)), Arc::from("room"));
    let ticket = VisitorId::new("client", 1, 7);
    let op = ConditionOp {
        lock: &lock,
        condition: &condition,
        visitor: &ticket,
        step: ConditionStep::Look,
    };
    let subscription = store.subscribe_place(&op, &parker());
    assert!(subscription.keep.is_some());
    server.until_asked(|request| request.is("SUBSCRIBE"));
    let asked = server.asked();
    let asked = asked.iter().find(|it| it.is("SUBSCRIBE")).unwrap();
    let channel = format!("redlatch_condition:{{lock}}:room:{}", ticket.as_str());
    assert_eq!(asked[1], channel);
}

#[test]
fn the_second_waiter_hears_messages_from_now_on() {
    let server = answering(Vec::new());
    let store = server.store();
    let lock = id_of(&claim(0));
    let first = store.subscribe(&lock, None, 0, &parker());
    assert!(matches!(first.delivery, Delivery::Pending));
    server.until(|_| store.messages(&claim(0)).is_some());
    let second = store.subscribe(&lock, None, 0, &parker());
    assert!(matches!(second.delivery, Delivery::Live));
    drop((first, second));
}

#[test]
fn a_store_tells_its_connections_and_closes_them() {
    let server = answering(vec![Says::int(1)]);
    let store = server.store();
    assert_eq!(store.connections().idle, 0);
    store.acquire(&claim(0), soon()).unwrap();
    assert_eq!(store.connections().idle, 1);
    store.prepare_renewal(&id_of(&claim(0)), soon());
    assert_eq!(store.connections().idle, 2);
    server.until_asked(|request| request.is("EVAL"));
    store.close();
    assert_eq!(store.connections().idle, 0);
}

#[test]
fn a_store_has_the_name_of_its_server() {
    let server = answering(Vec::new());
    let store = server.store();
    assert_eq!(&*store.node(None), server.address());
    assert_eq!(&*store.node(Some("lock")), server.address());
    assert!(format!("{store:?}").contains(&server.address()));
    assert_eq!(store.facts().area, "0");
}
