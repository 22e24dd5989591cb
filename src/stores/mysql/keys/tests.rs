#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;

#[test]
fn names_that_need_quoting_are_refused() {
    for name in ["a", "_a1$", "Tasks"] {
        assert_eq!(Ident::new(name).unwrap().to_string(), format!("`{name}`"));
    }
    let long = "x".repeat(65);
    for name in ["", "1a", "a`b", "a b", "a.b", "a;drop", "é", &long] {
        assert!(matches!(Ident::new(name), Err(Error::InvalidConfig { .. })));
    }
}
