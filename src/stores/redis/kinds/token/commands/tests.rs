#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;

fn text(text: &str) -> Result<Value, String> {
    Ok(Value::BulkString(text.as_bytes().to_vec()))
}

fn brief(answer: &Value) -> String {
    match answer {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(brief).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Nil => "nothing".to_owned(),
        Value::BulkString(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

const NONE: Result<Value, String> = Ok(Value::Nil);

/// Converts the replies to a request of the token `a`, and returns them as text. A hand-off goes to the token `b`.
fn told(step: Instead, answers: &[Result<Value, String>]) -> String {
    let number = numbered(7, Dialect::DelEx, step);
    let mut all = Answers::default();
    // Some requests need only the first reply.
    let unneeded = Ok(Value::Int(5));
    for answer in answers.iter().chain([&unneeded]).take(COUNT) {
        assert!(all.add(number, answer.clone()).is_none());
    }
    let (answer, is_strange) = all.add(number, text(&format!("{number} a b"))).unwrap();
    assert!(!is_strange);
    match answer {
        Ok(answer) => brief(&answer),
        Err(fault) => fault.reason().to_owned(),
    }
}

#[test]
fn replies_to_commands_read_as_those_of_scripts() {
    let int = |number| Ok(Value::Int(number));
    let wrong = || Err("WRONGTYPE of another type".to_owned());
    let full = || Err("OOM no memory".to_owned());
    for (step, answers, expected) in [
        (Instead::Acquire, vec![NONE, int(900)], "-1"),
        (Instead::Acquire, vec![text("a"), int(900)], "-1"),
        (
            Instead::Acquire,
            vec![text("x"), int(900)],
            "[0, 0, 900, \"x\"]",
        ),
        (
            Instead::Acquire,
            vec![text("x"), full()],
            "[0, 0, -1, \"x\"]",
        ),
        (Instead::Acquire, vec![full(), int(-2)], "OOM no memory"),
        (
            Instead::Acquire,
            vec![wrong(), int(-1)],
            "WRONGTYPE of another type",
        ),
        (Instead::Release, vec![int(1), NONE], "0"),
        (Instead::Release, vec![int(0), text("x")], "[0, \"x\"]"),
        (Instead::Release, vec![int(0), NONE], "[0, \"\"]"),
        (
            Instead::Release,
            vec![wrong(), wrong()],
            "[0, \"a key of another type\"]",
        ),
        (Instead::Renew, vec![text("a")], "[nothing, 1]"),
        (Instead::Renew, vec![NONE], "[nothing, 1, 1, 0]"),
        (Instead::Renew, vec![text("x")], "[nothing, 1, 1, \"x\"]"),
        (Instead::Renew, vec![full()], "OOM no memory"),
        (Instead::Transfer, vec![text("a")], "[1, 0, 0]"),
        (Instead::Transfer, vec![text("b")], "[1, 0, 0]"),
        (Instead::Transfer, vec![text("x")], "[2, 0, \"x\"]"),
        (Instead::Transfer, vec![NONE], "[2, 0, \"\"]"),
        (
            Instead::Withdraw,
            vec![
                int(0),
                Ok(Value::Array(vec![Value::Int(5), Value::Int(6000)])),
            ],
            "5006",
        ),
        (Instead::Withdraw, vec![int(0), full()], "OOM no memory"),
        (Instead::ForceRelease, vec![text("x")], "[1, 0]"),
        (Instead::ForceRelease, vec![NONE], "[0, 0]"),
        (Instead::Inspect, vec![text("a"), int(5)], "[1, \"1\", 5]"),
        (Instead::Inspect, vec![text("x"), int(5)], "[1, \"\", 5]"),
        (Instead::Inspect, vec![NONE, int(-2)], "[0, \"\", -2]"),
    ] {
        assert_eq!(told(step, &answers), expected, "{step:?}");
    }
}

#[test]
fn unsolicited_replies_are_not_answers() {
    let number = numbered(7, Dialect::DelIfEq, Instead::Renew);
    let echo = |number: i64| text(&format!("{number} a "));
    let mut answers = Answers::default();
    // These replies belong to earlier requests.
    let strays = [
        text("x"),
        Ok(Value::Int(5)),
        echo(numbered(6, Dialect::DelIfEq, Instead::Renew)),
    ];
    for answer in strays.into_iter().chain([text("a"), Ok(Value::Int(5))]) {
        assert!(answers.add(number, answer).is_none());
    }
    let (answer, is_strange) = answers.add(number, echo(number)).unwrap();
    assert_eq!(brief(&answer.unwrap()), "[nothing, 1]");
    assert!(is_strange);
    // A server that refuses all commands does not return the number.
    let refusal = || Err("LOADING it is".to_owned());
    for first in [refusal(), text("a")] {
        let is_refused = first.is_err();
        assert!(answers.add(number, first).is_none());
        assert!(answers.add(number, refusal()).is_none());
        let (answer, is_strange) = answers.add(number, refusal()).unwrap();
        let fault = answer.unwrap_err();
        assert_eq!(
            matches!(fault, CallError::Server(_)),
            is_refused,
            "{fault:?}"
        );
        assert!(is_strange);
    }
    assert!(answers.add(number, NONE).is_none());
    assert!(answers.add(number, Ok(Value::Int(-2))).is_none());
    let (answer, is_strange) = answers.add(number, echo(number)).unwrap();
    assert_eq!(brief(&answer.unwrap()), "[nothing, 1, 1, 0]");
    assert!(!is_strange);
    assert!(!Answers::are_of(7));
}
