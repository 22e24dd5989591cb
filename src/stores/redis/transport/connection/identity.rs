//! The identity of a server. A change of the identity shows Redlock that the server restarted or replaced its keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use super::{Connection, encode};
use crate::ground::clock::BootInstant;
use crate::stores::redis::replies::{field_of, info_field, text_of};
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::tls::Session;

#[derive(Debug)]
pub(crate) struct Identity {
    /// `run_id`, which changes with each start of the server.
    pub(crate) run: Arc<str>,
    /// `master_replid`, which changes if the server may have copied another server's keys. Empty if not reported.
    pub(crate) history: Arc<str>,
    /// Whether `master_replid2` shows that the server may have been a replica.
    pub(crate) has_followed: bool,
    /// Whether the server is a replica. A replica may discard its keys to copy those of its master.
    pub(crate) follows: bool,
    /// Whether the server is a Cluster node, whose slots may move to other nodes.
    pub(crate) is_in_cluster: bool,
    /// The server had run for at least this long when the reply arrived.
    pub(crate) age: Duration,
    /// Whether every write is synced to the append-only file, so that locks survive a crash of the server.
    pub(crate) remembers: bool,
    /// `asked`: when the query was sent. `told`: when the reply arrived.
    pub(crate) asked: BootInstant,
    pub(crate) told: BootInstant,
}

impl Connection {
    pub(crate) fn ending_certificates(&self) -> Vec<(&'static str, u64)> {
        let session = self.stream.session.as_ref();
        session.map(Session::ending).unwrap_or_default()
    }

    pub(crate) fn identify(&mut self, deadline: Instant) -> Result<Arc<Identity>, CallError> {
        if let Some(identity) = &self.identity {
            return Ok(Arc::clone(identity));
        }
        let info = ["server", "persistence", "replication"].map(|it| encode(&["INFO", it]));
        let packed = [info.concat(), encode(&["CONFIG", "GET", "*appendfsync*"])].concat();
        let asked = self.timeline.now();
        self.ask(&packed, deadline)?;
        let mut next = || match self.receive(deadline) {
            Err(CallError::NoReply { reason, .. }) => {
                Err(CallError::NotSent(reason.reworded(|reason| {
                    format!("while asking for its identity: {reason}")
                })))
            }
            reply => Ok(reply),
        };
        let (server, persistence, replication, fsync) = (next()?, next()?, next()?, next()?);
        let (at, persistence, fsync) = ([asked, self.timeline.now()], persistence.ok(), fsync.ok());
        let identity = identity_in(&server?, persistence, &replication?, fsync, at)?;
        let identity = Arc::new(identity);
        if !identity.follows {
            // Only the identity of a master is cached, because a replica may become a master.
            self.identity = Some(Arc::clone(&identity));
        }
        Ok(identity)
    }
}

pub(super) fn identity_in(
    server: &Value,
    persistence: Option<Value>,
    replication: &Value,
    fsync: Option<Value>,
    [asked, told]: [BootInstant; 2],
) -> Result<Identity, CallError> {
    let (server, replication) = (text_of(server), text_of(replication));
    let run = info_field(&server, "run_id");
    // The server reports a negative uptime if its clock was set back.
    let up = info_field(&server, "uptime_in_seconds").and_then(|up| up.parse::<i64>().ok());
    let up = up.map(|up| u64::try_from(up).unwrap_or_default());
    let (Some(run), Some(up)) = (run, up) else {
        return Err(CallError::Server("INFO server has no run_id".to_owned()));
    };
    // If the user has no right to query the persistence, locks are assumed not to survive a crash.
    let persistence = persistence.as_ref().map(text_of).unwrap_or_default();
    let is_set = |name, to| fsync.as_ref().and_then(|it| field_of(it, name)).as_deref() == Some(to);
    let says = |field, what| info_field(&persistence, field) == Some(what);
    let remembers = says("aof_enabled", "1")
        && is_set("appendfsync", "always")
        // During a rewrite of the append-only file, writes may not be synced.
        && is_set("no-appendfsync-on-rewrite", "no")
        && !says("aof_rewrite_in_progress", "1")
        && !says("aof_rewrite_scheduled", "1");
    let is_cluster = |field| info_field(&server, field) == Some("cluster");
    let history = info_field(&replication, "master_replid").unwrap_or_default();
    let id_before = info_field(&replication, "master_replid2").unwrap_or_default();
    Ok(Identity {
        run: run.into(),
        history: history.into(),
        has_followed: id_before.bytes().any(|digit| digit != b'0'),
        follows: info_field(&replication, "role").is_some_and(|role| role != "master"),
        // Redis names the field `redis_mode`, Valkey `server_mode`.
        is_in_cluster: is_cluster("redis_mode") || is_cluster("server_mode"),
        // Redis computes the uptime from two timestamps in whole seconds, so the uptime may be up to 1 s too long.
        age: Duration::from_secs(up.saturating_sub(1)),
        remembers,
        asked,
        told,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::redis::random_replies::{altered, bulk, draws};

    const SERVER: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\
                          run_id:6b1bf486c81ceb7edf3c093f4c48582e38c0e791\r\nuptime_in_seconds:77\r\n";
    const PERSISTENCE: &str = "# Persistence\r\nloading:0\r\naof_enabled:1\r\naof_rewrite_in_progress:0\r\n\
                               aof_rewrite_scheduled:0\r\n";
    const REPLICATION: &str = "# Replication\r\nrole:master\r\n\
                               master_replid:6b1bf486c81ceb7edf3c093f4c48582e38c0e791\r\n\
                               master_replid2:0000000000000000000000000000000000000000\r\n";
    const FSYNC: &[u8] = b"*4\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n$25\r\nno-appendfsync-on-rewrite\r\n$2\r\nno\r\n";

    #[test]
    fn random_replies_identify_a_server_only_by_run_id() {
        let info = [SERVER, PERSISTENCE, REPLICATION].map(bulk);
        let [server, persistence, replication] = info.each_ref().map(|info| [&**info]);
        draws("identity", |draw| {
            let (server, persistence) = (altered(draw, &server), altered(draw, &persistence));
            let (replication, fsync) = (altered(draw, &replication), altered(draw, &[FSYNC]));
            let now = BootInstant::now();
            let read = identity_in(
                &server,
                Some(persistence),
                &replication,
                Some(fsync),
                [now, now],
            );
            if let Ok(identity) = read {
                let text = text_of(&server);
                assert!(text.contains("run_id:") && text.contains(&*identity.run));
            }
        });
    }
}
