use std::sync::Arc;

use crate::store::HealthWarning;
use crate::stores::redis::transport::CallError;

pub(super) struct Findings {
    pub(super) node: Arc<str>,
    pub(super) all: Vec<HealthWarning>,
}

impl Findings {
    pub(super) fn about(node: &Arc<str>) -> Findings {
        Findings {
            node: Arc::clone(node),
            all: Vec::new(),
        }
    }

    pub(super) fn ok(&mut self, code: &'static str, message: impl Into<String>) {
        self.all.push(HealthWarning::ok(&self.node, code, message));
    }

    pub(super) fn note(&mut self, code: &'static str, message: impl Into<String>, advice: &str) {
        let found = HealthWarning::note(&self.node, code, message, advice);
        self.all.push(found);
    }

    pub(super) fn danger(&mut self, code: &'static str, message: impl Into<String>, advice: &str) {
        let found = HealthWarning::danger(&self.node, code, message, advice);
        self.all.push(found);
    }

    /// If the server replied to an earlier query of this check, reports a note with the code `answered`, else a danger.
    pub(super) fn unreachable(&mut self, fault: &CallError, answered: Option<&'static str>) {
        let reason = fault.reason();
        let is_refused = match fault {
            CallError::Server(text) => text.contains("NOAUTH") || text.contains("WRONGPASS"),
            fault => matches!(fault, CallError::Untrusted(_)),
        };
        match answered {
            _ if is_refused => self.danger(
                "connection",
                format!("it refuses connections: {reason}"),
                "correct the password, the user or the certificate; without a connection its locks cannot be \
                    acquired",
            ),
            Some(code) => self.note(
                code,
                format!("it answered only a part of the check: {reason}"),
                "check again, with a longer command_timeout if the server is slow or far away; check that it \
                    accepts more connections (its maxclients, the open files of this process), as waiters need one",
            ),
            None => self.danger(
                "reachable",
                format!("it could not be checked: {reason}"),
                "check that it runs, answers PING and can be reached from here; until then its locks cannot be \
                    acquired",
            ),
        }
    }
}
