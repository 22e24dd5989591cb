use std::fmt;
use std::sync::Arc;

/// A finding about a server. [`Client::check`](crate::Client::check) returns only findings above [`Severity::Ok`].
/// [`Client::examine`](crate::Client::examine) returns all findings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthWarning {
    /// The name of the server.
    pub node: Arc<str>,
    /// The subject of the finding: `reachable`, `connection`, `version`, `role`, `state`, `rights`, `eviction`,
    /// `persistence`, `replicas`, `cluster-state`, `sentinel-quorum`, `redlock-nodes`, `certificate`, or for a database
    /// `lock-table`. These texts stay the same in later versions.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The description of the finding.
    pub message: String,
    /// What to do about the finding; empty if nothing is to be done.
    pub advice: String,
}

/// The severity of a finding. The variants are in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// The check found no problem. [`Client::check`](crate::Client::check) omits such findings.
    Ok,
    /// A guarantee is weaker than it could be, or the check was not possible.
    Note,
    /// A guarantee is broken in ordinary operation, or locks cannot be acquired.
    Danger,
}

impl HealthWarning {
    pub(crate) fn ok(
        node: &Arc<str>,
        code: &'static str,
        message: impl Into<String>,
    ) -> HealthWarning {
        HealthWarning {
            node: Arc::clone(node),
            code,
            severity: Severity::Ok,
            message: message.into(),
            advice: String::new(),
        }
    }

    pub(crate) fn note(
        node: &Arc<str>,
        code: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> HealthWarning {
        HealthWarning {
            severity: Severity::Note,
            advice: advice.into(),
            ..HealthWarning::ok(node, code, message)
        }
    }

    pub(crate) fn danger(
        node: &Arc<str>,
        code: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> HealthWarning {
        HealthWarning {
            severity: Severity::Danger,
            ..HealthWarning::note(node, code, message, advice)
        }
    }
}

impl Severity {
    /// Returns `ok`, `note` or `danger`. These texts stay the same in later versions.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Danger => "danger",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for HealthWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.message)?;
        match self.advice.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.advice),
        }
    }
}
