use super::*;
use crate::stores::redis::drawn::{ERRORS, changed, draws, weight};

/// The outcome of a decoder for `bytes`, which come in two pieces.
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
fn a_reply_reads_alike_wherever_it_is_cut() {
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
fn nothing_that_a_server_says_makes_it_panic_or_wait_for_what_is_too_much() {
    for bad in [
        "$1048577\r\n",
        "*9223372036854775807\r\n",
        "$-2\r\n",
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

/// Replies of all sorts, several at once.
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

/// A value is at most this much larger than its bytes: an empty string is sent as three of them.
const LARGER: usize = 2 * size_of::<Value>();

#[test]
fn drawn_bytes_are_read_alike_wherever_they_are_cut_and_within_bounds() {
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
        // What is no reply ends a connection, so its bytes are described.
        let decoder = Decoder {
            end: bytes.len(),
            block: bytes,
            ..Decoder::default()
        };
        if decoder.is_strange() {
            assert!(decoder.stranger().len() < 4 * MOST_OF_A_STRANGER + 200);
        }
    });
}
