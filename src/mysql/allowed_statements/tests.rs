use super::*;

#[test]
fn statements_that_may_commit_are_refused() {
    let refused = [
        "COMMIT",
        " commit",
        "/* harmless */ rollback",
        "/*! COMMIT */",
        "/*M!100100 COMMIT */",
        "-- a\nCREATE TABLE t (a INT)",
        "# a\nbegin",
        "SET autocommit = 1",
        "LOCK TABLES t READ",
        "CALL p()",
        "EXECUTE s",
        "XA COMMIT 'x'",
        "",
        "/* open",
        ";COMMIT",
    ];
    for statement in refused {
        let word = first_word(statement);
        assert!(
            !word.is_some_and(|word| ALLOWED.contains(&&*word)),
            "{statement}"
        );
    }
    for statement in [
        "SELECT 1",
        "(select 1)",
        "\n/* a */ -- b\nUpdate t SET a = 1",
        "with c as (select 1) select * from c",
        "#\nINSERT INTO t VALUES (1)",
    ] {
        let word = first_word(statement);
        assert!(
            word.is_some_and(|word| ALLOWED.contains(&&*word)),
            "{statement}"
        );
    }
}
