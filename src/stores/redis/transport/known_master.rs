//! The last known master, and the role that a server reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use redis::Value;

use crate::ground::events;
use crate::ground::sync::Mutex;
use crate::stores::redis::replies::{integer_at, item_at, text_of};
use crate::stores::redis::transport::{CallError, Connection, encode};

/// Must not block.
pub(crate) type Hook = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(crate) struct Hooks(Mutex<Vec<Hook>>);

impl Hooks {
    pub(crate) fn add(&self, hook: Hook) {
        self.0.lock().push(hook);
    }

    pub(crate) fn call(&self) {
        for hook in self.0.lock().iter() {
            hook();
        }
    }
}

pub(crate) struct KnownMaster {
    /// The name of all servers together, for messages while no master is known. It contains no password.
    group: Arc<str>,
    master: Mutex<Option<Arc<str>>>,
    /// The last known master, if `master` is `None`.
    former: Mutex<Option<Arc<str>>>,
    generation: AtomicU64,
    /// Called when the generation has increased.
    pub(crate) on_change: Hooks,
    /// Called when another server has become the master.
    pub(crate) on_takeover: Hooks,
}

impl KnownMaster {
    pub(crate) fn new(group: impl Into<Arc<str>>) -> KnownMaster {
        KnownMaster {
            group: group.into(),
            master: Mutex::default(),
            former: Mutex::default(),
            generation: AtomicU64::new(0),
            on_change: Hooks::default(),
            on_takeover: Hooks::default(),
        }
    }

    /// Increases when the master changes or may have been replaced. Connections of earlier generations are closed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn master(&self) -> Option<Arc<str>> {
        self.master.lock().clone()
    }

    /// While no master is known, returns the previous master.
    pub(crate) fn last(&self) -> Option<Arc<str>> {
        let master = self.master.lock();
        master.clone().or_else(|| self.former.lock().clone())
    }

    pub(crate) fn node(&self) -> Arc<str> {
        self.master().unwrap_or_else(|| Arc::clone(&self.group))
    }

    /// `began` is the generation at the start of the search for the master. Returns the generation for connections to
    /// `node`. Returns `None` if the generation is no longer `began`, unless `node` is the known master.
    pub(crate) fn found(&self, node: &Arc<str>, began: u64) -> Option<u64> {
        let mut master = self.master.lock();
        let generation = self.generation();
        match &*master {
            Some(known) if known == node => return Some(generation),
            _ if generation != began => return None,
            None => {
                *master = Some(Arc::clone(node));
                drop(master);
                let former = self.former.lock().take();
                if former.is_some_and(|former| former != *node) {
                    self.on_takeover.call();
                }
                return Some(generation);
            }
            Some(known) => events::master_changed(known, node),
        }
        *master = Some(Arc::clone(node));
        self.generation.store(generation + 1, Ordering::Release);
        drop(master);
        self.on_change.call();
        self.on_takeover.call();
        Some(generation + 1)
    }

    /// Records that the master of this generation may have been replaced.
    pub(crate) fn suspect(&self, generation: u64) {
        let mut master = self.master.lock();
        if generation != self.generation() {
            return;
        }
        if let Some(former) = master.take() {
            *self.former.lock() = Some(former);
        }
        self.generation.store(generation + 1, Ordering::Release);
        drop(master);
        self.on_change.call();
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Master { replicas: usize, offset: i64 },
    Other(String),
}

pub(crate) fn role_of(connection: &mut Connection, deadline: Instant) -> Result<Role, CallError> {
    let reply = connection.call(&encode(&["ROLE"]), deadline);
    reply.map(|it| role_in(&it)).map_err(CallError::of_query)
}

fn role_in(reply: &Value) -> Role {
    let text_at = |at| item_at(reply, at).map(text_of).unwrap_or_default();
    match &*text_at(0) {
        "master" => Role::Master {
            offset: integer_at(reply, 1).unwrap_or_default(),
            replicas: match item_at(reply, 2) {
                Some(Value::Array(replicas)) => replicas.len(),
                _ => 0,
            },
        },
        "" => Role::Other("of no known role".to_owned()),
        role => Role::Other(format!("a {role} ({})", text_at(3))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::stores::redis::random_replies::{altered, draws};

    #[test]
    fn a_new_master_begins_a_new_generation() {
        let known_master = KnownMaster::new("a, b".to_owned());
        let counter = || {
            let told = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&told);
            let hook: Hook = Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
            (told, hook)
        };
        let (told, hook) = counter();
        known_master.on_change.add(hook);
        let (taken_over, hook) = counter();
        known_master.on_takeover.add(hook);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert_eq!(&*known_master.node(), "a, b");
        assert_eq!(known_master.found(&a, 0), Some(0));
        assert_eq!(known_master.found(&a, 0), Some(0));
        assert_eq!(known_master.found(&b, 0), Some(1));
        // A search that began in an earlier generation changes nothing.
        assert_eq!(known_master.found(&a, 0), None);
        assert_eq!(known_master.found(&b, 0), Some(1));
        assert_eq!((&*known_master.node(), known_master.generation()), ("b", 1));
        known_master.suspect(0);
        assert_eq!(known_master.generation(), 1);
        known_master.suspect(1);
        assert_eq!(
            (&*known_master.node(), known_master.generation()),
            ("a, b", 2)
        );
        assert_eq!(known_master.last(), Some(Arc::clone(&b)));
        assert_eq!(known_master.found(&b, 2), Some(2));
        assert_eq!(told.load(Ordering::Relaxed), 2);
        // If the found master is the previous master, this is no takeover.
        assert_eq!(taken_over.load(Ordering::Relaxed), 1);
        known_master.suspect(2);
        assert_eq!(known_master.found(&a, 3), Some(3));
        assert_eq!(taken_over.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn random_replies_are_masters_only_by_their_first_word() {
        let roles: [&[u8]; 3] = [
            b"*3\r\n$6\r\nmaster\r\n:3129659\r\n*1\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n9001\r\n$7\r\n3129242\r\n",
            b"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:9000\r\n$9\r\nconnected\r\n:3167038\r\n",
            b"*2\r\n$8\r\nsentinel\r\n*1\r\n$6\r\nmaster\r\n",
        ];
        draws("role", |draw| {
            let reply = altered(draw, &roles);
            let said = match &reply {
                Value::Array(parts) => parts.first().map(text_of),
                _ => None,
            };
            let is_master = matches!(role_in(&reply), Role::Master { .. });
            assert_eq!(is_master, said.as_deref() == Some("master"), "{reply:?}");
        });
    }

    #[test]
    fn the_role_of_a_server_is_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let replica = Value::Array(vec![text("10.0.0.1"), text("6379"), text("7")]);
        let master = |replicas: Vec<Value>| {
            Value::Array(vec![text("master"), Value::Int(42), Value::Array(replicas)])
        };
        let of = |replicas, offset| Role::Master { replicas, offset };
        assert_eq!(role_in(&master(vec![])), of(0, 42));
        assert_eq!(role_in(&master(vec![replica.clone(), replica])), of(2, 42));
        assert_eq!(role_in(&Value::Array(vec![text("master")])), of(0, 0));
        let slave = ["slave", "10.0.0.1", "6379", "connect"].map(text);
        let told = Role::Other("a slave (connect)".to_owned());
        assert_eq!(role_in(&Value::Array(slave.to_vec())), told);
        assert_eq!(
            role_in(&Value::Nil),
            Role::Other("of no known role".to_owned())
        );
    }
}
