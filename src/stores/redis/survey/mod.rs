//! Queries of operators about one lock, and about all locks with a prefix.
//!
//! The queries write nothing and run no script, because the server may be in trouble. Masters are scanned one after the
//! other with `SCAN`, because `KEYS` blocks a server.

mod connected;
mod queries;
mod strings;

use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::ground::claim::{Form, LockId};
use crate::ground::error::Result;
use crate::store::{LockInfo, LockKind, Position, Scope, fill_in_processes};
use crate::stores::redis::Redis;
use crate::stores::redis::replies::{item_at, text_of};
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{CallError, Connection};
use queries::{FoundLocks, KeyQueries};

const KEYS_AT_ONCE: u32 = 512;

impl Redis {
    pub(super) fn describe_lock(&self, lock: &LockId, deadline: Instant) -> Result<Vec<LockInfo>> {
        let name = &lock.name;
        let form = lock.kind.rules().form;
        let looked = self.topology.with(name, deadline, |node, connection| {
            let mut queries = KeyQueries::new(node, connection, true, deadline);
            let one = vec![Arc::clone(name)];
            let looked = match form {
                Form::Hash | Form::ReadWrite => queries.hashes(one)?,
                Form::Text => queries.strings(one, true, false)?,
                Form::Number => queries.strings(one, false, true)?,
            };
            // If the slot has moved, `with` follows the redirection in this error.
            match looked.others.into_iter().next() {
                Some((_, text)) => Err(CallError::Server(text)),
                None => Ok(looked.found),
            }
        });
        let failed = |fault| self.error_about(self.topology.name(name), name, &[name], fault);
        let mut found = looked.map_err(failed)?;
        if found.iter().any(|info| !is_of(info.kind, form)) {
            return Err(failed(CallError::Server(NO_LOCK.to_owned())));
        }
        if found.iter().any(|info| !info.holders.is_empty()) {
            let connected = self.topology.with(name, deadline, |_, connection| {
                connected::of_this_library(connection, deadline)
            });
            // If CLIENT LIST fails, the result has no processes of the holders.
            fill_in_processes(&mut found, &connected.unwrap_or_default());
        }
        Ok(found)
    }

    pub(super) fn survey_page(
        &self,
        scope: &Scope,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        let (at, cursor) = (position.at.clone(), position.cursor);
        let page = |node: &Node, connection: &mut Connection, name: &Arc<str>| {
            let generation = connection.generation;
            let goes_on = at.as_ref() == Some(&(Arc::clone(name), generation));
            // A cursor is valid only at the server that returned it.
            let cursor = if goes_on { cursor } else { 0 };
            read_page(node, connection, scope, cursor, deadline)
        };
        let begins = position.at.is_none() && position.done.is_empty();
        let (topology, done) = (&self.topology, &mut position.done);
        let Some((name, told)) = topology.at_next(done, begins, deadline, page) else {
            position.is_over = true;
            return Ok(Vec::new());
        };
        let (generation, cursor, mut found) = told.map_err(|fault| {
            position.is_over = true;
            let all = format!("{}*", scope.prefix).into();
            // In a Cluster, `name` is the address of the master. Elsewhere it is not an address.
            let node = match &self.topology {
                Topology::One(node) => node.name(),
                Topology::Cluster(_) => Arc::clone(&name),
            };
            self.error_about(node, &all, &[], fault)
        })?;
        if at.is_none() {
            let connected = topology.at_next(done, false, deadline, |_, connection, _| {
                connected::of_this_library(connection, deadline)
            });
            let connected = connected.and_then(|(_, told)| told.ok());
            position.connected = connected.unwrap_or_default();
        }
        fill_in_processes(&mut found, &position.connected);
        position.cursor = cursor;
        position.at = Some((Arc::clone(&name), generation));
        if cursor == 0 {
            position.at = None;
            done.push(name);
        }
        Ok(found)
    }
}

const NO_LOCK: &str = "WRONGTYPE this hash is not a lock, or is a lock of another kind";

fn is_of(kind: LockKind, form: Form) -> bool {
    let is_side = matches!(kind, LockKind::Read | LockKind::Write);
    match form {
        Form::ReadWrite => is_side,
        Form::Hash => !is_side,
        Form::Text | Form::Number => true,
    }
}

/// Returns the connection's generation, the next cursor, and the next locks. A new generation invalidates the cursor.
fn read_page(
    node: &Node,
    connection: &mut Connection,
    scope: &Scope,
    cursor: u64,
    deadline: Instant,
) -> Result<(u64, u64, Vec<LockInfo>), CallError> {
    let has_strings = scope.has_tokens || scope.has_counters;
    let (next, names) = scan(connection, scope, cursor, !has_strings, deadline)?;
    let generation = connection.generation;
    let mut queries = KeyQueries::new(node, connection, false, deadline);
    let mut looked = FoundLocks::default();
    let [hashes, strings] = match has_strings {
        true => queries.sorted(names, &mut looked)?,
        false => [names, Vec::new()],
    };
    looked.extend(queries.hashes(hashes)?);
    if has_strings {
        looked.extend(queries.strings(strings, scope.has_tokens, scope.has_counters)?);
    }
    // Locks have a TTL, except for the counters of semaphores and latches. So other keys without a TTL are skipped.
    let is_lock = |info: &LockInfo| {
        info.available.is_some() || !info.holders.is_empty() && info.expires.is_some()
    };
    looked.found.retain(is_lock);
    Ok((generation, next, looked.found))
}

fn scan(
    connection: &mut Connection,
    scope: &Scope,
    cursor: u64,
    of_hashes: bool,
    deadline: Instant,
) -> Result<(u64, Vec<Arc<str>>), CallError> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern(&scope.prefix));
    scan.arg("COUNT").arg(KEYS_AT_ONCE);
    if of_hashes {
        scan.arg("TYPE").arg("hash");
    }
    let reply = connection.call(&scan.get_packed_command(), deadline)?;
    let next = item_at(&reply, 0).and_then(|next| text_of(next).parse().ok());
    let (Some(next), Some(Value::Array(keys))) = (next, item_at(&reply, 1)) else {
        return Err(CallError::Server("unexpected reply to SCAN".to_owned()));
    };
    // Names of locks are UTF-8, so other keys are skipped.
    let name = |key: &Value| match key {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().map(Arc::from),
        _ => None,
    };
    Ok((next, keys.iter().filter_map(name).collect()))
}

fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for sign in prefix.chars() {
        if matches!(sign, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            pattern.push('\\');
        }
        pattern.push(sign);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
mod tests;
