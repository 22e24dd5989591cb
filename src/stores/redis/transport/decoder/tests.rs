use super::*;
use crate::stores::redis::random_replies::{ERRORS, changed, draws, weight};

fn decoded(bytes: &[u8], cut_at: usize) -> (io::Result<bool>, Option<Value>) {
    let mut decoder = Decoder {
        block: bytes.to_vec(),
        end: bytes.len(),
        ..Decoder::default()
    };
    let begun = decoder.frame.is_whole(bytes.split_at(cut_at).0);
    let whole = match begun {
        Ok(false) => decoder.frame.is_whole(bytes),
        begun => begun,
    };
    let value = matches!(whole, Ok(true)).then(|| decoder.take()).flatten();
    (whole, value)
}

#[test]
fn replies_may_be_cut_anywhere() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let array = |items: &[Value]| Value::Array(items.to_vec());
    let replies: [(&[u8], Value); 9] = [
        (b"+OK\r\n", Value::Okay),
        (b"+PONG\r\n", Value::SimpleString("PONG".to_owned())),
        (b":-7\r\n", Value::Int(-7)),
        (b"$-1\r\n", Value::Nil),
        (b"*-1\r\n", Value::Nil),
        (b"$0\r\n\r\n", text("")),
        (b"$4\r\na\r\nb\r\n", text("a\r\nb")),
        (b"*0\r\n", array(&[])),
        (
            b"*3\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n+OK\r\n",
            array(&[Value::Int(1), array(&[text("x"), Value::Nil]), Value::Okay]),
        ),
    ];
    for (bytes, expected) in replies {
        let both = [bytes, b":8\r\n"].concat();
        for cut_at in 0..=both.len() {
            let (whole, value) = decoded(&both, cut_at);
            assert!(matches!(whole, Ok(true)), "{expected:?} cut at {cut_at}");
            assert_eq!(value.as_ref(), Some(&expected), "cut at {cut_at}");
        }
        for end in 0..bytes.len() {
            let short = bytes.get(..end).unwrap_or_default();
            assert!(matches!(decoded(short, end).0, Ok(false)), "{short:?}");
        }
    }
}

#[test]
fn malformed_replies_are_errors() {
    for bad in [
        "$1048577\r\n",
        "*9223372036854775807\r\n",
        "*x\r\n",
        "*1\r\n_\r\n",
    ] {
        assert!(decoded(bad.as_bytes(), bad.len()).0.is_err(), "{bad}");
    }
    let deep = [&b"*1\r\n".repeat(200_000)[..], b":1\r\n"].concat();
    for no_reply in [&deep[..], b"$1\r\nabc\r\n", b":1x\r\n", b":\n"] {
        let (whole, value) = decoded(no_reply, no_reply.len());
        assert!(matches!(whole, Ok(true)) && value.is_none());
    }
}

const REPLIES: [&[u8]; 9] = [
    b"+OK\r\n",
    b":1790000000000\r\n",
    b"$-1\r\n",
    b"$4\r\na\r\nb\r\n",
    b"*3\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n+OK\r\n",
    b"*3\r\n$7\r\nmessage\r\n$6\r\norders\r\n$1\r\n0\r\n",
    b"*2\r\n$10\r\n1790000000\r\n$6\r\n123456\r\n:7\r\n:8\r\n",
    b"*2\r\n:8\r\n*4\r\n:0\r\n:1790000000000\r\n:-1\r\n$4\r\na:1:\r\n",
    b"*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n",
];

/// The largest ratio of a value's size in memory to the number of its encoded bytes.
const LARGER: usize = 2 * size_of::<Value>();

#[test]
fn random_bytes_may_be_cut_anywhere() {
    let samples = [&REPLIES[..], &ERRORS].concat();
    draws("resp", |draw| {
        let bytes = changed(draw, &samples);
        let (whole, value) = decoded(&bytes, draw.usize(..=bytes.len()));
        let (at_once, same) = decoded(&bytes, bytes.len());
        assert_eq!(
            (whole.as_ref().ok(), &value),
            (at_once.as_ref().ok(), &same),
            "{bytes:?}"
        );
        if let Some(value) = &value {
            let size = weight(value);
            assert!(size <= LARGER * (bytes.len() + 1), "{size}: {bytes:?}");
        }
    });
}

#[test]
fn other_protocols_fail_before_their_line_ends() {
    for strange in [&b"HTTP/1.1 400"[..], b"\x15\x03\x01", b"\0", b"%1"] {
        assert!(Frame::default().is_whole(strange).is_err());
    }
}

#[test]
fn a_partial_reply_is_kept_after_a_time_out() {
    let mut decoder = Decoder {
        block: b":1\r\n:2\r\n".to_vec(),
        end: 8,
        ..Decoder::default()
    };
    assert!(decoder.has_unread());
    for expected in [1, 2] {
        assert!(matches!(
            decoder.frame.is_whole(
                decoder
                    .block
                    .get(decoder.begin..decoder.end)
                    .unwrap_or_default()
            ),
            Ok(true)
        ));
        assert_eq!(decoder.take(), Some(Value::Int(expected)));
    }
    assert!(!decoder.has_unread());
    assert_eq!((decoder.begin, decoder.end), (0, 0));
    decoder.end = 2;
    assert!(decoder.has_unread());
    decoder.is_within = true;
    assert!(
        !decoder.has_unread(),
        "it is the beginning of one that was waited for"
    );
}

#[test]
fn memory_of_large_replies_is_freed() {
    let body = vec![b'x'; 3 * MOST_KEPT];
    let bytes = [format!("${}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat();
    let mut decoder = Decoder {
        end: bytes.len(),
        block: bytes.clone(),
        ..Decoder::default()
    };
    assert!(matches!(decoder.frame.is_whole(&bytes), Ok(true)));
    assert_eq!(decoder.take(), Some(Value::BulkString(body)));
    assert_eq!(decoder.block.len(), MOST_KEPT);
}

#[test]
fn a_missing_reply_is_reported_with_its_cause() {
    use io::ErrorKind::{
        BrokenPipe, ConnectionReset, InvalidData, TimedOut, UnexpectedEof, WouldBlock,
    };
    for (kind, late, words) in [
        (TimedOut, true, "no reply in time"),
        (WouldBlock, true, "no reply in time"),
        (
            UnexpectedEof,
            false,
            "the connection was closed before the reply",
        ),
        (
            ConnectionReset,
            false,
            "the connection was closed before the reply",
        ),
        (
            BrokenPipe,
            false,
            "the connection was closed before the reply",
        ),
        (
            InvalidData,
            false,
            "the reply could not be read: invalid data",
        ),
    ] {
        match no_reply(kind.into()) {
            CallError::NoReply { timed_out, reason } => {
                assert_eq!((timed_out, &*reason.to_string()), (late, words));
            }
            other => unreachable!("{other:?}"),
        }
    }
}

#[test]
fn time_outs_are_set_if_too_long_or_much_too_short() {
    let ms = Duration::from_millis;
    for (current, left, expected) in [
        (None, 100, true),
        (Some(100), 100, false),
        (Some(120), 100, false),
        (Some(121), 100, true),
        (Some(13), 100, false),
        (Some(12), 100, true),
        (Some(20), 160, false),
    ] {
        assert_eq!(must_set(current.map(ms), ms(left)), expected, "{current:?}");
    }
}

#[test]
fn an_error_in_an_array_is_part_of_the_reply() {
    let bytes = b"*2\r\n-ERR no\r\n:1\r\n";
    let (_, value) = decoded(bytes, bytes.len());
    let Some(Value::Array(items)) = value else {
        unreachable!("it is an array: {value:?}");
    };
    assert!(
        matches!(&*items, [Value::ServerError(_), Value::Int(1)]),
        "{items:?}"
    );
}

#[test]
fn lengths_are_bounded_numbers() {
    for (text, length) in [
        (&b"0"[..], Some(Some(0))),
        (b"-1", Some(None)),
        (b"1048576", Some(Some(1 << 20))),
        (b"1048577", None),
        (b"x", None),
        (b"", None),
    ] {
        assert_eq!(length_in(text).ok(), length, "{text:?}");
    }
}
