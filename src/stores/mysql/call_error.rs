use std::io::{self, ErrorKind};
use std::sync::Arc;

use ::mysql::{DriverError, Error as Cause, Value};

use super::values::literal;
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Reason};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The request was not executed.
    NotSent(Reason),
    /// No connection of the pool became free in time. Nothing was sent. The value is the pool's size.
    Exhausted(u32),
    /// The request was sent, and may have been executed.
    NoReply { reason: Reason, timed_out: bool },
    /// The server replied with an error: the request was not executed.
    Server { code: u16, text: String },
    /// TLS failed and needs a change of the configuration. Nothing was sent.
    Untrusted(Reason),
    /// A value does not have the requested type, or the parameters do not fit the statement.
    Usage(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Another transaction has locked a row, or the server's time limit was exceeded. The statement was rolled back.
    WaitTimeout,
    /// The server rolled the transaction back because of a deadlock or a conflict.
    Deadlock,
    /// The user or password is wrong, or a right is missing.
    Permission,
    Schema,
    /// The server refuses writes: another server may be the primary now.
    ReadOnly,
    /// A temporary failure.
    Passing,
    /// The session was killed; the statement may have taken effect.
    Killed,
    /// A NOT NULL column got NULL. If `Statements::acquire` runs too late, it inserts a NULL name.
    Late,
    Other,
}

/// Returns the class of an error code of MySQL 5.7, 8.x or MariaDB 10.x, 11.x.
pub(crate) fn class_of(code: u16) -> Class {
    match code {
        // 1205 is the lock wait timeout of both products, and a failed NOWAIT on MariaDB. A failed NOWAIT is 3572 on MySQL
        // 8, and 5010 on a fork of 5.7. Codes 3024 and 1969 mean that a statement exceeded a time limit of the server.
        1205 | 3572 | 5010 | 3024 | 1969 => Class::WaitTimeout,
        // 1020 is a snapshot conflict of MariaDB. 3058 is a deadlock of user locks and metadata locks.
        1213 | 1020 | 3058 | 3101 => Class::Deadlock,
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1410 | 1698 | 1251 | 1275 | 1820 | 1862
        | 3118 | 3159 | 4151 | 3955 => Class::Permission,
        1146 | 1054 | 1049 | 1051 | 1109 | 1286 | 1364 | 1932 => Class::Schema,
        1290 | 1836 | 1792 | 3100 => Class::ReadOnly,
        1040 | 1203 | 1226 | 1129 | 1041 | 1037 | 1114 | 1021 | 1206 | 1461 | 1047 | 1158
        | 1159 | 1160 | 1161 | 1317 | 1180 | 1181 | 1030 | 1015 => Class::Passing,
        1053 | 1927 | 4031 | 1152 | 1184 | 2006 | 2013 | 1080 | 3169 => Class::Killed,
        1048 => Class::Late,
        _ => Class::Other,
    }
}

impl CallError {
    /// Whether the server accepts no further connection.
    pub(crate) fn is_at_limit(&self) -> bool {
        matches!(
            self,
            CallError::Server {
                code: 1040 | 1203 | 1226,
                ..
            }
        )
    }

    /// Converts an error of the `mysql` crate for a request that may have been sent.
    pub(crate) fn of(error: Cause) -> CallError {
        let (timed_out, reason) = match error {
            Cause::MySqlError(error) if class_of(error.code) == Class::Killed => {
                let reason = format!("the server ended the session: {}", error.message);
                (false, reason.into())
            }
            Cause::MySqlError(error) => return CallError::server(error.code, error.message),
            Cause::CodecError(error) => {
                let source = std::error::Error::source(&error);
                let Some(cause) = source.and_then(|cause| cause.downcast_ref::<io::Error>()) else {
                    return CallError::of(io::Error::other(error.to_string()).into());
                };
                let copy = || io::Error::new(cause.kind(), cause.to_string());
                let code = cause.raw_os_error().map(io::Error::from_raw_os_error);
                return CallError::of(code.unwrap_or_else(copy).into());
            }
            Cause::IoError(error) => {
                let timed_out = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                let words = match timed_out {
                    true => "no reply in time".to_owned(),
                    false => error.to_string(),
                };
                (timed_out, Reason::of_io(words, error))
            }
            Cause::DriverError(DriverError::CouldNotConnect(Some((address, words, kind)))) => {
                let text = format!("could not connect to {address}: {words}");
                return CallError::of(io::Error::new(kind, text).into());
            }
            Cause::DriverError(
                error @ (DriverError::MismatchedStmtParams(..)
                | DriverError::Params(_)
                | DriverError::MixedParams
                | DriverError::PacketTooLarge),
            ) => return CallError::Usage(error.to_string()),
            // The texts of these errors contain values of the row, so the texts are not used.
            Cause::FromValueError(_) | Cause::FromRowError(_) => {
                return CallError::Usage(
                    "a row of the reply does not have the expected types".into(),
                );
            }
            error => (false, error.to_string().into()),
        };
        CallError::NoReply { reason, timed_out }
    }

    fn server(code: u16, text: String) -> CallError {
        CallError::Server { code, text }
    }

    pub(crate) fn of_connecting(error: Cause) -> CallError {
        match error {
            Cause::MySqlError(error) => CallError::server(error.code, error.message),
            Cause::DriverError(
                error @ (DriverError::UnknownAuthPlugin(_)
                | DriverError::OldMysqlPasswordDisabled
                | DriverError::CleartextPluginDisabled),
            ) => CallError::server(1251, error.to_string()),
            error => match CallError::of(error) {
                CallError::NoReply { reason, timed_out } => {
                    CallError::NotSent(reason.reworded(|reason| match timed_out {
                        true => "connecting timed out".to_owned(),
                        false => format!("connecting failed: {reason}"),
                    }))
                }
                error => error,
            },
        }
    }

    /// Converts the error of a step before the request: the request was not sent.
    pub(crate) fn before_sending(self) -> CallError {
        match self {
            CallError::NoReply { reason, .. } => CallError::NotSent(
                reason.reworded(|reason| format!("before the request was sent: {reason}")),
            ),
            error => error,
        }
    }

    /// Returns whether the request may be repeated on a new connection. `may_run_twice` allows a repeat after a lost reply.
    pub(crate) fn was_broken(&self, may_run_twice: bool) -> bool {
        match self {
            CallError::NotSent(_) => true,
            CallError::NoReply { timed_out, .. } => may_run_twice && !timed_out,
            _ => false,
        }
    }

    pub(crate) fn keeps_connection(&self) -> bool {
        match self {
            CallError::NotSent(_) | CallError::NoReply { .. } | CallError::Untrusted(_) => false,
            // If the server is read-only, a new connection may reach the primary.
            CallError::Server { code, .. } => class_of(*code) != Class::ReadOnly,
            CallError::Usage(_) | CallError::Exhausted(_) => true,
        }
    }

    pub(crate) fn class(&self) -> Option<Class> {
        match self {
            CallError::Server { code, .. } => Some(class_of(*code)),
            _ => None,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.class(), Some(Class::WaitTimeout | Class::Deadlock))
    }

    pub(crate) fn into_reason(self) -> Reason {
        match self {
            CallError::NotSent(reason)
            | CallError::NoReply { reason, .. }
            | CallError::Untrusted(reason) => reason,
            CallError::Usage(reason) => reason.into(),
            CallError::Exhausted(of) => {
                format!("all {of} connections were in use until the deadline").into()
            }
            CallError::Server { code, text } => format!("error {code}: {text}").into(),
        }
    }

    pub(crate) fn reason(self) -> String {
        self.into_reason().into_words()
    }

    /// `subject` is the name of a lock or a row.
    pub(crate) fn into_error(self, subject: &Arc<str>, node: &Arc<str>, advice: &str) -> Error {
        let (lock, node) = (Arc::clone(subject), Arc::clone(node));
        let (code, text) = match self {
            CallError::Exhausted(connections) => {
                return Error::Exhausted {
                    lock,
                    node,
                    connections,
                };
            }
            CallError::NotSent(reason) | CallError::NoReply { reason, .. } => {
                return Error::unreachable(lock, node, reason);
            }
            CallError::Untrusted(reason) => return Error::untrusted(lock, node, reason),
            CallError::Usage(reason) => return Error::Unsupported { lock, reason },
            CallError::Server { code, text } => (code, text),
        };
        let class = class_of(code);
        let hint = match (class, code) {
            (Class::Schema, _) => advice,
            (Class::ReadOnly, _) => "connect to the primary, which takes writes",
            (_, 1040 | 1203 | 1226) => "raise the server's limit of connections or lower pool_size",
            // On MariaDB, 1045 means a wrong password, no TLS or no client certificate. On MySQL, 3159 means no TLS.
            (_, 1045 | 3159) => {
                "correct the password; if the user or the server demands TLS (REQUIRE SSL, require_secure_transport), use \
                 mysqls:// in place of mysql://, and with REQUIRE X509 Builder::client_certificate"
            }
            (_, 1665) => {
                "the server logs statements (binlog_format=STATEMENT), which excludes READ COMMITTED; use \
                    Isolation::RepeatableRead"
            }
            _ => "",
        };
        let separator = if hint.is_empty() { "" } else { "; " };
        let text = format!("{text}{separator}{hint}");
        let reason = format!("error {code}: {text}");
        match class {
            Class::WaitTimeout => DatabaseError::WaitTimeout { lock, node, reason }.into(),
            Class::Deadlock => DatabaseError::Deadlock { lock, node, reason }.into(),
            Class::Schema => DatabaseError::Schema { lock, node, reason }.into(),
            Class::Permission => Error::Permission {
                lock,
                node,
                reason,
                missing: Vec::new(),
            },
            Class::ReadOnly | Class::Passing | Class::Killed => {
                Error::Unavailable { lock, node, reason }
            }
            Class::Late | Class::Other => Error::Database(DatabaseError::Sql {
                lock,
                node,
                code,
                reason: text,
            }),
        }
    }
}

pub(crate) fn row_not_found(subject: &Arc<str>, node: &Arc<str>, key: &Value) -> Error {
    Error::Database(DatabaseError::RowNotFound {
        lock: Arc::clone(subject),
        node: Arc::clone(node),
        key: literal(key),
    })
}

#[cfg(test)]
mod tests;
