use super::*;
use crate::ground::claim::{COUNTS_AS_WAITING, Queueing};
use crate::stores::redis::layout::Layout;

/// The words of a packed request, and whether their number is the one that it begins with.
fn words(packed: &[u8]) -> (Vec<String>, bool) {
    let text = String::from_utf8(packed.to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let count: usize = lines.next().unwrap()[1..].parse().unwrap();
    let words: Vec<_> = lines
        .by_ref()
        .collect::<Vec<_>>()
        .chunks(2)
        .filter(|pair| pair.len() == 2)
        .map(|pair| pair[1].to_owned())
        .collect();
    let fits = words.len() == count;
    (words, fits)
}

fn packed(call: Call<'_>, by_text: bool, limit: Limit<'_>) -> Request {
    let mut into = Vec::new();
    call.pack(by_text, limit, 77, &mut into);
    let (words, fits) = words(&into);
    assert!(fits, "{words:?}");
    let request = Request(words);
    assert_eq!(request.number(), 77);
    request
}

#[test]
fn a_vote_names_the_history_of_the_server_behind_the_expiry() {
    let claim = claim(0);
    let acquire = Call::of(&claim, |layout| &layout.acquire);
    let args = |call: Call<'_>, history: Option<&str>| {
        let identity = history.map(|history| voter::seen("run", history));
        let limit = Limit {
            expiry: 9,
            voting: identity.as_ref(),
        };
        packed(call, false, limit).args().to_vec()
    };
    let own = [claim.visitor.as_str(), "30000", "0", "0", "9"].map(str::to_owned);
    assert_eq!(args(acquire, None), own);
    assert_eq!(args(acquire, Some("")), own);
    let with_history = [&own[..], &["history".to_owned()]].concat();
    assert_eq!(args(acquire, Some("history")), with_history);
    // What does not expire is asked for nobody's vote.
    let resolve = Call::of(&claim, |layout| &layout.resolve);
    assert_eq!(args(resolve, Some("history")).len(), 2);
}

#[test]
fn calls_packed_together_have_keys_first_and_one_limit() {
    let claims = [
        claim(0),
        Claim {
            name: "other".into(),
            ..claim(0)
        },
    ];
    let calls = claims
        .iter()
        .map(|claim| Call::of(claim, |layout| &layout.renew));
    let script = &Layout::of(Kind::Reentrant).renew;
    let limit = Limit {
        expiry: 9,
        voting: None,
    };
    let mut into = Vec::new();
    pack(script, calls, true, limit, 77, &mut into);
    let (words, fits) = words(&into);
    assert!(words[1].contains("redis.call") && fits, "{words:?}");
    let request = Request(
        [
            &["EVAL".to_owned(), String::new()],
            &words[words.len() - 9..],
        ]
        .concat(),
    );
    assert_eq!(request.keys(), ["lock", "other"]);
    let visitor = claims[0].visitor.as_str();
    assert_eq!(request.args(), [visitor, "30000", visitor, "30000", "9"]);
}

/// The arguments of an acquisition of this kind that is queued so.
fn queued(kind: Kind, queueing: Queueing) -> Vec<String> {
    let claim = Claim {
        queueing,
        ..claim_of(kind, 0)
    };
    let call = Call::of(&claim, |layout| &layout.acquire);
    packed(call, false, Limit::default()).args().to_vec()
}

fn waits(memo: Option<&str>, takes_place: bool, had_place: bool) -> Queueing {
    Queueing::Waits {
        need: ms(450),
        memo: memo.map(Into::into),
        takes_place,
        had_place,
    }
}

#[test]
fn a_reader_tells_what_it_was_refused_with_and_how_long_it_needs() {
    let read = |queueing| {
        let args = queued(Kind::Read, queueing);
        args[5..7].to_vec()
    };
    assert_eq!(read(Queueing::Barges), ["*", "0"]);
    assert_eq!(read(Queueing::Tries), ["", "0"]);
    assert_eq!(read(waits(None, true, false)), ["", "450"]);
    assert_eq!(read(waits(Some("memo"), true, false)), ["memo", "450"]);
}

#[test]
fn a_writer_tells_for_how_long_it_counts_as_waiting() {
    let write = |queueing| queued(Kind::Write, queueing)[4].clone();
    assert_eq!(write(Queueing::Barges), "-2");
    assert_eq!(write(Queueing::Tries), "-1");
    assert_eq!(write(waits(None, false, true)), "0");
    let announced = COUNTS_AS_WAITING.as_millis().to_string();
    assert_eq!(write(waits(None, true, false)), announced);
}

#[test]
fn a_waiter_in_order_tells_which_place_it_wants() {
    let wish = |queueing| queued(Kind::Fair, queueing)[5].clone();
    assert_eq!(wish(Queueing::Barges), "never");
    assert_eq!(wish(Queueing::Tries), "never");
    assert_eq!(wish(waits(None, true, false)), "join");
    assert_eq!(wish(waits(None, true, true)), "rejoin");
}

#[test]
fn a_call_is_completed_with_what_its_client_is_set_to() {
    let server = answering(vec![Says::int(1)]);
    let store = server.store_with(|settings| settings.patience = ms(1234));
    store.acquire(&claim_of(Kind::Fair, 0), soon()).unwrap();
    let args = calls(&server)[0].args().to_vec();
    assert_eq!(args[6..8], ["1234", "1"]);
    let claim = claim_of(Kind::Fair, 0);
    let call = Call {
        is_in_cluster: true,
        ..Call::of(&claim, |layout| &layout.acquire)
    };
    let hears_all = |call| packed(call, false, Limit::default()).args()[7].clone();
    assert_eq!(hears_all(call), "0");
    // Sharded messages go to those who listen at this server, all of them.
    assert_eq!(hears_all(call.for_shards(true)), "1");
    assert_eq!(hears_all(call.for_shards(false)), "0");
}

#[test]
fn the_writer_within_whose_hold_a_thread_reads_is_named() {
    let writer = VisitorId::new("client", 5, 5);
    let claim = Claim {
        inside: Some(writer.clone()),
        ..claim_of(Kind::Read, 0)
    };
    let call = Call::of(&claim, |layout| &layout.acquire);
    let request = packed(call, true, Limit::default());
    assert_eq!(request.args()[4], writer.as_str());
    assert_eq!(request.keys().len(), 3);
}

#[test]
fn a_sharded_call_has_the_script_that_publishes_so() {
    let claim = claim(1);
    let call = Call::of(&claim, |layout| &layout.release);
    let text = |call: Call<'_>| packed(call, true, Limit::default())[1].len();
    let hash = |call: Call<'_>| packed(call, false, Limit::default())[1].clone();
    assert!(call.for_shards(true).script.text.contains("SPUBLISH"));
    assert_ne!(hash(call.for_shards(true)), hash(call));
    assert_eq!(hash(call.for_shards(false)), hash(call));
    assert!(text(call) > 0);
    let batch = crate::ground::batch::Batch::default();
    let work = Call {
        work: Some(crate::ground::batch::Work::Commands(&batch)),
        is_quiet: true,
        ..call
    };
    assert!(
        work.for_shards(true).is_quiet,
        "its user says what it publishes"
    );
}

#[test]
fn a_length_of_time_that_is_too_long_is_the_longest() {
    let claim = Claim {
        lease: Duration::MAX,
        ..claim(0)
    };
    let call = Call::of(&claim, |layout| &layout.acquire);
    let args = packed(call, false, Limit::default()).args().to_vec();
    assert_eq!(args[1], i64::MAX.to_string());
}
