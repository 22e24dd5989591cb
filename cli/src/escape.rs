//! What errors and answers have in common: the version of their objects, and texts that a terminal does not obey.

/// The version of the JSON objects; within one, fields are only ever added.
pub(crate) const SCHEMA: u32 = 1;

/// A text without signs that a terminal would obey: names are chosen by others.
pub(crate) fn escape(text: &str) -> String {
    let mut escape = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign.is_control() || is_invisible(sign) {
            true => escape.extend(sign.escape_unicode()),
            false => escape.push(sign),
        }
    }
    escape
}

/// Whether a sign changes the order or the place of others.
fn is_invisible(sign: char) -> bool {
    matches!(sign, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_command_the_terminal() {
        assert_eq!(escape("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\u{a}");
        assert_eq!(escape("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escape("ünïcode 鎖"), "ünïcode 鎖");
    }
}
