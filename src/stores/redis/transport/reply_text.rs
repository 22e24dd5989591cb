//! Replies as text for error messages.

use redis::Value;

/// The longest server text in a message, in bytes.
pub(super) const MOST_WORDS: usize = 256;

pub(super) fn cut(text: &str) -> String {
    let (kept, rest) = text.split_at(text.floor_char_boundary(MOST_WORDS));
    let visible = |sign: char| if sign.is_control() { '\u{fffd}' } else { sign };
    let mut kept: String = kept.chars().map(visible).collect();
    if !rest.is_empty() {
        kept.push('…');
    }
    kept
}

/// Removes the hash and the line number of a script from an error reply, so that the reply begins with its code.
///
/// Redis 7 and later append both: `READONLY … script: 6b1b…, on @user_script:12.` Valkey 9 appends only the line
/// number. Redis before 7 puts both before the code: `ERR Error running script (call to f_6b1b…): @user_script:12:
/// @user_script: 12: -READONLY …`.
pub(super) fn without_script(text: &str) -> String {
    let text = match text.rsplit_once(" script: ") {
        Some((text, script)) if script.contains("@user_script:") => text,
        _ => text,
    };
    let Some((code, rest)) = text.split_once("user_script:") else {
        return text.strip_prefix('-').unwrap_or(text).to_owned();
    };
    let code = match code.contains("Error running script") {
        true => "",
        false => code.trim_end_matches('@'),
    };
    // The message follows the last `user_script: 12: `.
    let line = rest.rsplit("user_script:").next().unwrap_or(rest);
    let message = line.split_once(": ").map_or(line, |(_, message)| message);
    format!("{code}{}", message.strip_prefix('-').unwrap_or(message))
}

/// Removes the script's position and the code `TRYAGAIN`, which mean nothing to users.
pub(crate) fn plain(text: &str) -> String {
    let text = without_script(text);
    text.strip_prefix("TRYAGAIN ").unwrap_or(&text).to_owned()
}

pub(crate) fn brief(value: &Value) -> String {
    cut(&format!("{value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error replies of Redis 6.2.5, 7.0.15, 8.0.2 and Valkey 9.1.2.
    #[test]
    fn script_errors_begin_with_their_code() {
        let of_6 = "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:";
        let of_7 = " script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:25.";
        for text in [
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "NOPERM User app has no permissions",
            "WRONGTYPE Operation against a key",
        ] {
            for said in [
                format!("{of_6}12: @user_script: 12: -{text}"),
                format!("{of_6}12: {text}"),
                format!("@user_script: 12: -{text}"),
                format!("{text}{of_7}"),
                format!("{text} script: on @user_script:1."),
                text.to_owned(),
            ] {
                assert_eq!(without_script(&said), text, "{said}");
            }
        }
        for (said, text) in [
            (
                "ERR user_script:30: attempt to compare nil script: 6b1b, on @user_script:30.",
                "ERR attempt to compare nil",
            ),
            ("ERR no such script: named", "ERR no such script: named"),
        ] {
            assert_eq!(without_script(said), text);
        }
    }

    #[test]
    fn long_replies_are_shortened() {
        let told = brief(&Value::BulkString(vec![b'x'; 1000]));
        assert!(told.ends_with('…') && told.contains("xxx"), "{told}");
        assert_eq!(told.chars().count(), MOST_WORDS + 1);
        let exact = "x".repeat(MOST_WORDS);
        assert_eq!(cut(&exact), exact);
        assert_eq!(cut(&(exact.clone() + "y")), exact.clone() + "…");
        let wide = "x".repeat(MOST_WORDS - 1) + "ü";
        assert_eq!(cut(&wide), "x".repeat(MOST_WORDS - 1) + "…");
        assert_eq!(cut("a\r\nb"), "a\u{fffd}\u{fffd}b");
    }
}
