//! What follows from each fault.

use super::*;

fn lost(timed_out: bool) -> CallError {
    CallError::NoReply {
        reason: "lost".into(),
        timed_out,
    }
}

fn server(text: &str) -> CallError {
    CallError::Server(text.to_owned())
}

/// One fault of each kind, with the words for its reason.
fn faults() -> [(CallError, &'static str); 7] {
    [
        (CallError::NotSent("cut".into()), "cut"),
        (CallError::Exhausted(3), EXHAUSTED),
        (lost(true), "lost"),
        (lost(false), "lost"),
        (server("ERR no"), "ERR no"),
        (CallError::Untrusted("whose".into()), "whose"),
        (CallError::Unfit("none".to_owned()), "none"),
    ]
}

#[test]
fn each_fault_has_its_reason() {
    for (fault, words) in faults() {
        assert_eq!(fault.reason(), words);
        assert_eq!(&*fault.into_reason(), words);
    }
    // Users do not know the word by which it is known that it passes.
    assert_eq!(&*server("TRYAGAIN later").into_reason(), "later");
    let error = io::Error::from(io::ErrorKind::BrokenPipe);
    let fault = CallError::not_sent(error);
    assert!(matches!(&fault, CallError::NotSent(it) if **it == *"broken pipe"));
}

#[test]
fn nothing_of_a_lock_was_sent_with_a_search() {
    for (fault, words) in faults() {
        let expected = match fault {
            CallError::NoReply { .. } => CallError::NotSent(words.into()),
            ref fault => fault.clone(),
        };
        assert_eq!(fault.of_a_search(), expected);
    }
}

#[test]
fn a_text_is_not_answered_with_the_word_that_it_is_unknown() {
    for (fault, _) in faults() {
        assert_eq!(fault.clone().of_a_text(), fault);
    }
    let reason = "the reply belongs to another request";
    let copy = CallError::NoReply {
        reason: reason.into(),
        timed_out: false,
    };
    assert_eq!(server("NOSCRIPT no").of_a_text(), copy);
}

#[test]
fn a_fault_passes_where_another_server_may_do_it_in_a_moment() {
    for (fault, _) in faults() {
        let passes = matches!(fault, CallError::NotSent(_));
        assert_eq!(fault.is_passing(), passes, "{fault:?}");
    }
    for sign in [
        "READONLY",
        "LOADING",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "TRYAGAIN",
    ] {
        assert!(server(&format!("{sign} it is")).is_passing(), "{sign}");
        assert!(!server(&format!("ERR {sign}")).is_passing(), "{sign}");
    }
}

#[test]
fn the_first_fault_is_kept_unless_a_server_says_something() {
    for (fault, _) in faults() {
        let mut kept = None;
        fault.clone().keep_in(&mut kept);
        assert_eq!(kept, Some(fault.clone()));
        let mut kept = Some(lost(true));
        fault.clone().keep_in(&mut kept);
        let is_told = matches!(fault, CallError::Server(_) | CallError::Untrusted(_));
        let expected = if is_told { fault } else { lost(true) };
        assert_eq!(kept, Some(expected));
    }
}

#[test]
fn a_fault_says_where_it_was_met_and_is_the_same_otherwise() {
    for (fault, words) in faults() {
        let at = fault.clone().at("h:1");
        let said = match fault {
            CallError::Exhausted(_) => words.to_owned(),
            _ => format!("h:1: {words}"),
        };
        assert_eq!(at.reason(), said);
        let (same, timed_out) = (std::mem::discriminant(&fault), lost(true).at("h:1"));
        assert_eq!(std::mem::discriminant(&at), same);
        assert!(matches!(
            timed_out,
            CallError::NoReply {
                timed_out: true,
                ..
            }
        ));
    }
    // What passes passes with other words, too.
    let loading = server("LOADING it is").at("h:1");
    assert_eq!(loading, CallError::NotSent("h:1: LOADING it is".into()));
}
