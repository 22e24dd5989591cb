//! The statements that users can run in the transaction of a lock.

/// Returns whether a statement can set a user variable or acquire a named lock. Both outlive the transaction. So after
/// a transaction with such a statement, the connection is closed.
pub(crate) fn changes_session(statement: &str) -> bool {
    const GET_LOCK: &[u8] = b"GET_LOCK";
    let bytes = statement.as_bytes();
    let mut words = bytes.windows(GET_LOCK.len());
    bytes.contains(&b'@') || words.any(|word| word.eq_ignore_ascii_case(GET_LOCK))
}

/// The first words of statements that never commit the transaction. A deny list would miss statements of later server
/// versions.
pub(crate) const ALLOWED: [&str; 12] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "SHOW",
    "EXPLAIN", "DESCRIBE", "DESC",
];

pub(crate) fn first_word(statement: &str) -> Option<String> {
    let mut rest = statement;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        if let Some(comment) = rest.strip_prefix("/*") {
            // The server executes the content of `/*!` and `/*M!` comments.
            if comment.starts_with('!') || comment.starts_with("M!") {
                return None;
            }
            rest = comment.split_once("*/")?.1;
        } else if rest.starts_with("-- ") || rest.starts_with("--\n") || rest.starts_with('#') {
            rest = rest.split_once('\n')?.1;
        } else {
            break;
        }
    }
    let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let word: String = rest.chars().take_while(is_part).collect();
    (!word.is_empty()).then(|| word.to_ascii_uppercase())
}

#[cfg(test)]
mod tests;
