use ::mysql::MySqlError;

use super::*;
use crate::ground::error::database::DatabaseError;

fn error_of(code: u16) -> Error {
    let cause = Cause::MySqlError(MySqlError {
        state: "HY000".to_owned(),
        message: "words".to_owned(),
        code,
    });
    CallError::of(cause).into_error(&"orders".into(), &"db:3306".into(), "call create_tables()")
}

#[test]
fn codes_of_both_products_become_typed_errors() {
    for code in [1205, 3572, 5010, 3024, 1969] {
        assert!(
            matches!(
                error_of(code),
                Error::Database(DatabaseError::WaitTimeout { .. })
            ),
            "{code}"
        );
    }
    for code in [1213, 1020, 3058] {
        assert!(
            matches!(
                error_of(code),
                Error::Database(DatabaseError::Deadlock { .. })
            ),
            "{code}"
        );
    }
    for code in [1045, 1044, 1142, 1698, 3118] {
        assert!(matches!(error_of(code), Error::Permission { .. }), "{code}");
    }
    for code in [1146, 1054, 1049] {
        assert!(
            matches!(
                error_of(code),
                Error::Database(DatabaseError::Schema { .. })
            ),
            "{code}"
        );
    }
    for code in [1290, 1836, 1040, 1203, 1226] {
        assert!(
            matches!(error_of(code), Error::Unavailable { .. }),
            "{code}"
        );
    }
    for code in [1927, 4031, 1053, 2006, 2013] {
        assert!(
            matches!(error_of(code), Error::Unreachable { .. }),
            "{code}"
        );
    }
    assert!(matches!(
        error_of(1062),
        Error::Database(DatabaseError::Sql { code: 1062, .. })
    ));
}

#[test]
fn messages_name_the_lock_and_the_remedy() {
    for code in [1205, 1213, 1045, 1146, 1290, 1040, 1665] {
        let text = error_of(code).to_string();
        assert!(
            text.contains("orders") && text.contains("db:3306"),
            "{text}"
        );
    }
    assert!(error_of(1146).to_string().contains("create_tables()"));
    assert!(error_of(1290).to_string().contains("primary"));
    assert!(error_of(1040).to_string().contains("pool_size"));
    assert!(error_of(1665).to_string().contains("RepeatableRead"));
}

#[test]
fn a_timed_out_connection_is_closed() {
    let silent = Cause::IoError(std::io::ErrorKind::WouldBlock.into());
    let error = CallError::of(silent);
    assert!(matches!(
        error,
        CallError::NoReply {
            timed_out: true,
            ..
        }
    ));
    assert!(!error.keeps_connection());
    let read_only = CallError::Server {
        code: 1290,
        text: String::new(),
    };
    assert!(!read_only.keeps_connection());
}
