//! Requests of a quorum, sent now and answered later.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use super::*;
use crate::ground::claim::{Claim, LockId};
use crate::store::{EXPIRY_SLACK, Granted, Outcome, Refusal};
use crate::stores::quorum::node::Node as _;
use crate::stores::redis::calls::Acquire;
use crate::stores::redis::tests::stub::{GRANTED, Request, Says, StubServer, claim, soon, within};

type Acquiring<'a> = Pending<'a, Outcome<Granted, Refusal>>;

struct Scene {
    node: RedisNode,
    claim: Claim,
    server: StubServer,
}

/// A node with one connection, to a server that answers so.
fn scene(answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> Scene {
    scene_of(StubServer::start(answers), |_| {})
}

fn scene_of(server: StubServer, set: impl FnOnce(&mut crate::stores::redis::Settings)) -> Scene {
    let node = server.store_with(set).as_node().unwrap();
    let pool = &node.server.pool;
    pool.keep(pool.connector().connect(soon()).unwrap());
    Scene {
        node,
        claim: claim("lock"),
        server,
    }
}

/// The same where a hold needs one replica.
fn replicated(answers: impl FnMut(&Request) -> Option<Says> + Send + 'static) -> Scene {
    scene_of(StubServer::start(answers), |settings| {
        settings.replication = Some(Replication {
            replicas: 1,
            timeout: Duration::from_millis(20),
        });
    })
}

fn granted(request: &Request) -> Option<Says> {
    request.is_script().then(|| Says::int(GRANTED)).flatten()
}

fn silent(request: &Request) -> Option<Says> {
    request.is_script().then_some(Says::Nothing)
}

impl Scene {
    fn acquire(&self, deadline: Instant) -> Acquiring<'_> {
        self.node.carry_out(Acquire::new(&self.claim), deadline)
    }

    fn lost_until(&self) -> Option<i64> {
        let visitor = Some(&self.claim.visitor);
        self.node.server.pool.lost_until(visitor)
    }

    /// The connections that lie idle, and those that owe answers.
    fn connections(&self) -> (usize, usize) {
        let pool = &self.node.server.pool;
        // It looks at what has come.
        pool.is_warm(None, |_| true);
        (pool.idle(), pool.late())
    }

    fn commands(&self) -> Vec<String> {
        let asked = self.server.asked();
        asked.iter().map(|request| request[0].clone()).collect()
    }

    fn look(&self) -> LockId {
        LockId {
            kind: self.claim.kind,
            name: Arc::clone(&self.claim.name),
        }
    }
}

fn receive<T>(pending: Pending<'_, T>, deadline: Instant) -> Result<T> {
    let Pending::Sent(sent) = pending else {
        panic!("it was not sent");
    };
    sent.receive(deadline).unwrap()
}

fn is_granted(pending: Acquiring<'_>) -> bool {
    matches!(receive(pending, soon()), Ok(Outcome::Done(_)))
}

#[test]
fn the_server_knows_a_script_once_a_connection_has_sent_it() {
    let scene = scene(granted);
    assert!(is_granted(scene.acquire(soon())));
    assert!(is_granted(scene.acquire(soon())));
    assert_eq!(scene.commands(), ["EVAL", "EVALSHA"]);
    assert_eq!(scene.connections(), (1, 0));
    assert_eq!(scene.server.connected(), 1);
}

#[test]
fn a_request_that_expires_says_when() {
    let scene = scene(silent);
    let Pending::Sent(sent) = scene.acquire(soon()) else {
        panic!("it was not sent");
    };
    assert!(sent.source().is_some());
    scene.server.until_asked(Request::is_script);
    let asked = scene.server.asked();
    let expiry: i64 = asked[0].args().last().unwrap().parse().unwrap();
    assert_eq!(sent.not_after(), Some(expiry));
    let lock = scene.look();
    let other = scene_of(StubServer::start(silent), |_| {});
    let Pending::Sent(look) = other.node.send_inspect(&lock, None, soon()) else {
        panic!("it was not sent");
    };
    assert_eq!(look.not_after(), None);
}

#[test]
fn a_request_without_an_answer_leaves_its_connection_to_its_visitor() {
    let scene = scene(silent);
    drop(scene.acquire(soon()));
    assert_eq!(scene.connections(), (0, 1));
    let second = scene.acquire(soon());
    assert!(matches!(second, Pending::Sent(_)));
    drop(second);
    assert_eq!(scene.connections(), (0, 1));
    assert_eq!(scene.server.connected(), 1);
    assert_eq!(scene.lost_until(), None);
}

#[test]
fn the_answer_of_the_replicas_is_due_as_well() {
    let scene = replicated(|request| match request.is("WAIT") {
        true => Some(Says::Nothing),
        false => granted(request),
    });
    drop(scene.acquire(soon()));
    scene.server.until_asked(|request| request.is("WAIT"));
    assert_eq!(scene.connections(), (0, 1));
}

#[test]
fn a_connection_is_kept_after_the_replicas_answered_and_no_other_one() {
    for (answers, connected) in [(true, 1), (false, 2)] {
        let scene = replicated(move |request| match request.is("WAIT") {
            true if answers => Some(Says::Reply(Value::Int(1))),
            true => Some(Says::Nothing),
            false => granted(request),
        });
        let sent = scene.acquire(soon());
        scene.server.until_asked(|request| request.is("WAIT"));
        let deadline = if answers { soon() } else { within(200) };
        let outcome = receive(sent, deadline);
        assert_eq!(matches!(outcome, Ok(Outcome::Done(_))), answers);
        // Where they did not, the hold was given back over another one.
        assert_eq!(scene.node.server.pool.idle(), 1);
        assert_eq!(scene.server.connected(), connected);
    }
}

#[test]
fn a_late_answer_is_waited_for_somewhat_longer_than_the_request() {
    let scene = scene(silent);
    let deadline = within(15);
    let sent = scene.acquire(deadline);
    let is_sent = matches!(sent, Pending::Sent(_));
    drop(sent);
    let late = scene.connections().1;
    let is_over = Instant::now() >= deadline;
    assert!(is_sent || is_over);
    assert!(late == 1 || is_over, "{late}");
}

#[test]
fn requests_before_one_without_an_answer_may_still_come() {
    let scene = scene(silent);
    let Pending::Sent(first) = scene.acquire(soon()) else {
        panic!("it was not sent");
    };
    let expiry = first.not_after();
    drop(first);
    let second = scene.acquire(soon());
    assert_eq!(scene.lost_until(), None);
    let outcome = receive(second, within(20));
    assert!(
        matches!(outcome, Ok(Outcome::Unknown { .. })),
        "{outcome:?}"
    );
    assert_eq!(scene.lost_until(), expiry);
    assert_eq!(scene.connections(), (0, 0));
}

#[test]
fn a_withdrawal_behind_a_request_settles_it_and_no_other_one_does() {
    for (is_behind, settled) in [(true, true), (false, false)] {
        let mut withdrawn = 0;
        let scene = scene(move |request| {
            withdrawn += u32::from(request.is_script());
            match is_behind && withdrawn == 1 {
                true => silent(request),
                // It is 1970 there.
                false => request.is_script().then(|| Says::int(1000)).flatten(),
            }
        });
        let in_doubt = scene.claim.in_doubt(i64::MAX);
        if is_behind {
            drop(scene.acquire(soon()));
            scene.server.until_asked(Request::is_script);
            scene.server.answer(|request| {
                // The answer to the one before comes first.
                let both = Says::Both(
                    Box::new(Says::Bytes(b":1\r\n".to_vec())),
                    Box::new(Says::int(1000)?),
                );
                request.is_script().then_some(both)
            });
        }
        let withdrawal = scene.node.send_resolve(in_doubt, soon());
        assert_eq!(receive(withdrawal, soon()).unwrap(), settled, "{is_behind}");
    }
}

#[test]
fn a_script_that_was_forgotten_is_sent_once_more() {
    let scene = scene(granted);
    assert!(is_granted(scene.acquire(soon())));
    let mut is_first = true;
    scene.server.answer(move |request| {
        match request.is("EVALSHA") && std::mem::take(&mut is_first) {
            true => Says::error("NOSCRIPT No matching script."),
            false => granted(request),
        }
    });
    assert!(is_granted(scene.acquire(soon())));
    // By its hash again: who sent it first had no text with him.
    assert_eq!(scene.commands(), ["EVAL", "EVALSHA", "EVALSHA"]);
    assert!(is_granted(scene.acquire(soon())));
    assert_eq!(scene.commands()[3..], ["EVAL"]);
    assert_eq!(scene.server.connected(), 1);
}

#[test]
fn any_other_error_is_the_answer() {
    let scene = scene(granted);
    assert!(is_granted(scene.acquire(soon())));
    for error in ["ERR odd", "ERR unknown command 'EVAL'"] {
        scene
            .server
            .answer(move |request| request.is_script().then(|| Says::Error(error.to_owned())));
        let outcome = receive(scene.acquire(soon()), soon());
        assert!(outcome.is_err(), "{outcome:?}");
    }
    scene.server.answer(granted);
    assert!(is_granted(scene.acquire(soon())));
    // Besides, the rights of the user were looked at.
    let asked = scene.server.asked();
    let calls = asked.iter().filter(|call| call[1] == asked[1][1]);
    assert_eq!(calls.count(), 3, "{asked:?}");
}

#[test]
fn an_error_to_the_text_of_a_script_is_the_answer() {
    let scene = scene(|request| {
        request
            .is_script()
            .then(|| Says::Error("ERR odd".to_owned()))
    });
    assert!(receive(scene.acquire(soon()), soon()).is_err());
    assert_eq!(scene.commands(), ["EVAL"]);
}

#[test]
fn a_script_is_called_by_its_hash_where_its_text_may_not_be_sent() {
    let scene = scene(|request| match request.is("EVAL") {
        true => Says::error("NOPERM User x has no permissions to run the 'eval' command"),
        false => granted(request),
    });
    assert!(is_granted(scene.acquire(soon())));
    assert_eq!(scene.commands(), ["EVAL", "EVALSHA"]);
}

#[test]
fn a_request_after_its_time_is_not_sent_on_another_connection() {
    let scene = scene(granted);
    let late = scene.acquire(Instant::now());
    assert!(matches!(late, Pending::Ready(Err(_))));
}

/// A deadline so long ago that a request which was lost then is of account for 30 ms more, with the end of that.
fn long_ago() -> (Instant, Instant) {
    let deadline = within(10) - EXPIRY_SLACK;
    (deadline, deadline + LATENESS + EXPIRY_SLACK)
}

#[test]
fn a_lost_request_is_of_account_somewhat_longer_than_it_may_take() {
    let scene = scene(silent);
    let (deadline, end) = long_ago();
    let checked_out = scene.node.server.pool.check_out(None, |_| true);
    let mut request = SentRequest {
        node: &scene.node,
        checked_out: checked_out.ok().flatten(),
        visitor: Some(scene.claim.visitor.clone()),
        copies: SentCopies::new(deadline),
        number: 1,
        expires: true,
        replication: None,
        by_text: false,
    };
    request.copies.is_behind = true;
    request.lose_earlier(Some(7));
    let lost = scene.lost_until();
    assert!(lost == Some(7) || Instant::now() >= end, "{lost:?}");
    assert!(!request.copies.is_behind);
    assert_eq!(request.copies.earlier_until, Some(7));
    // What is known of others before that stays.
    request.lose_earlier(Some(5));
    assert_eq!(request.copies.earlier_until, Some(7));
}

#[test]
fn so_is_one_behind_which_nothing_could_be_sent() {
    let scene = scene(silent);
    drop(scene.acquire(soon()));
    let (deadline, end) = long_ago();
    assert!(matches!(scene.acquire(deadline), Pending::Ready(Err(_))));
    let lost = scene.lost_until();
    assert!(lost.is_some() || Instant::now() >= end);
}

/// Has the only connection be one that takes nothing any more, which is not known as yet.
fn broken(scene: &Scene) {
    let pool = &scene.node.server.pool;
    let mut connection = pool.take(soon()).unwrap();
    scene.server.cut_all();
    let ping = redis::cmd("PING").get_packed_command();
    scene.server.until(|_| connection.is_reset());
    // The first one is still taken.
    while connection.send(&ping, soon()).is_ok() {}
    pool.keep(connection);
    assert_eq!(pool.idle(), 1);
}

#[test]
fn a_connection_that_was_closed_meanwhile_leaves_the_request_to_another_one() {
    let scene = scene(granted);
    broken(&scene);
    assert!(matches!(scene.acquire(soon()), Pending::NotConnected));
    assert_eq!(scene.node.server.pool.idle(), 0);
}

#[test]
fn no_other_connection_comes_behind_the_answer_that_is_due() {
    let scene = scene(granted);
    broken(&scene);
    let visitor = Some(&scene.claim.visitor);
    let checked_out = scene.node.server.pool.check_out(visitor, |_| true);
    let mut checked_out = checked_out.ok().flatten().unwrap();
    (checked_out.replies_due, checked_out.due_until) = (1, Some(7));
    let acquire = Acquire::new(&scene.claim);
    let sent = scene
        .node
        .transmit(checked_out, &acquire.call(), None, soon());
    assert!(matches!(
        sent,
        Transmission::Failed(CallError::NotSent(_), _)
    ));
    assert_eq!(scene.lost_until(), Some(7));
}
