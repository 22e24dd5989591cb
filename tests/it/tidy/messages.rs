//! The messages that a user can see: none is longer than 200 characters, without its parameters.
//!
//! `cargo test --all-features --test it messages -- --nocapture` prints them all, to be read in one sitting.

use std::fs;

use super::{below, files, root, sources};

const LONGEST: usize = 200;

/// Texts that are no messages: SQL, Lua, and what `redlatch --help` prints below its options.
fn is_message(text: &str) -> bool {
    text.split_whitespace().count() >= 3
        && ![
            "SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ", "SET ",
        ]
        .iter()
        .any(|sql| text.contains(sql))
        && !text.contains("\\n")
}

/// The string literals of some code; a literal over several lines has them joined as the compiler joins them.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(next) = chars.next() {
        match next {
            '/' if chars.peek() == Some(&'/') => while chars.next_if(|it| *it != '\n').is_some() {},
            // A character, not a lifetime: 'a', '\n', '"'.
            '\'' => {
                let mut ahead = chars.clone();
                let first = ahead.next();
                let closes = match first {
                    Some('\\') => ahead.nth(1) == Some('\''),
                    _ => ahead.next() == Some('\''),
                };
                if closes {
                    chars = ahead;
                }
            }
            '"' => {
                let mut text = String::new();
                while let Some(next) = chars.next() {
                    match next {
                        '"' => break,
                        '\\' if chars.peek() == Some(&'\n') => {
                            while chars.next_if(|it| it.is_whitespace()).is_some() {}
                        }
                        '\\' => text.extend(['\\'].into_iter().chain(chars.next())),
                        next => text.push(next),
                    }
                }
                found.push(text);
            }
            _ => {}
        }
    }
    found
}

/// The length without `{parameters}`.
fn length(message: &str) -> usize {
    let mut depth = 0_usize;
    let counts = |next: &char| {
        match next {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    message.chars().filter(counts).count()
}

#[test]
fn messages_have_at_most_200_characters() {
    let mut all = sources();
    let of_command = files(&root().join("cli/src")).into_iter();
    all.extend(of_command.filter(|path| !path.iter().any(|part| part == "tests")));
    let mut too_long = Vec::new();
    let mut count = 0;
    for path in all {
        let name = below(root(), &path);
        let text = fs::read_to_string(&path).expect("a source");
        // Unit tests are at the end of a file.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
        for message in literals(code).iter().filter(|it| is_message(it)) {
            println!("{name}: {message}");
            count += 1;
            if length(message) > LONGEST {
                too_long.push(format!("{name}: {message}"));
            }
        }
    }
    assert!(count > 500, "only {count} messages were found");
    assert!(too_long.is_empty(), "{}", too_long.join("\n"));
}
