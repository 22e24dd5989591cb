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
    assert_eq!(&*server("TRYAGAIN later").into_reason(), "later");
    let error = io::Error::from(io::ErrorKind::BrokenPipe);
    let fault = CallError::not_sent(error);
    assert!(matches!(&fault, CallError::NotSent(it) if **it == *"broken pipe"));
}

#[test]
fn a_failed_query_counts_as_not_sent() {
    for (fault, words) in faults() {
        let expected = match fault {
            CallError::NoReply { .. } => CallError::NotSent(words.into()),
            ref fault => fault.clone(),
        };
        assert_eq!(fault.of_query(), expected);
    }
}

#[test]
fn noscript_is_no_reply_to_eval() {
    for (fault, _) in faults() {
        assert_eq!(fault.clone().of_eval(), fault);
    }
    let reason = "the reply belongs to another request";
    let copy = CallError::NoReply {
        reason: reason.into(),
        timed_out: false,
    };
    assert_eq!(server("NOSCRIPT no").of_eval(), copy);
}

#[test]
fn unexecuted_requests_may_be_retried() {
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
fn error_replies_are_kept_over_other_failures() {
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
fn the_node_is_added_to_the_reason() {
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
    let loading = server("LOADING it is").at("h:1");
    assert_eq!(loading, CallError::NotSent("h:1: LOADING it is".into()));
}
