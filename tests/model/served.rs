//! The reply of a node to one request, as computed by the scripts.

use std::array;
use std::sync::{LazyLock, OnceLock};

use redlatch_server::{Engine, Entry, Execution, Keyspace, Reply, Script, Surroundings, Value};
use redlatch_server_checks::scripts;

use crate::quorum::{CLIENTS, Key, LEASE};

/// A request to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// It requests the lock, or restores the key of a hold.
    Acquire,
    /// It extends a hold.
    Extend,
    /// It releases a hold.
    Release,
}

/// The key of a node after a request, and whether the reply reports success.
pub(crate) type Served = (Option<Key>, bool);

/// A tick in ms.
const TICK: i64 = 1000;

/// A key may have from 0 to one tick more than its lease left: its node's clock may be set back.
const LIVES: usize = LEASE as usize + 2;

/// As many states as the key of a node has.
const KEYS: usize = 1 + CLIENTS * 2 * LIVES;

/// Executes a request of a hold of this client, the present or an old one, on a node with this key.
///
/// The cases are few, so each runs the scripts only once.
pub(crate) fn served(key: Option<Key>, request: Request, client: usize, is_old: bool) -> Served {
    static TABLE: OnceLock<Vec<Served>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let keys = (0..KEYS).map(key_of);
        let asked = keys.flat_map(|key| {
            [Request::Acquire, Request::Extend, Request::Release].map(|request| (key, request))
        });
        asked
            .flat_map(|(key, request)| {
                let cases: [Served; CLIENTS * 2] =
                    array::from_fn(|case| specified(key, request, case / 2, case % 2 == 1));
                cases
            })
            .collect()
    });
    let case = number_of(key) * 3 + request as usize;
    table[(case * CLIENTS + client) * 2 + usize::from(is_old)]
}

fn number_of(key: Option<Key>) -> usize {
    key.map_or(0, |key| {
        1 + (key.owner * 2 + usize::from(key.old)) * LIVES + usize::from(key.left)
    })
}

fn key_of(number: usize) -> Option<Key> {
    let rest = number.checked_sub(1)?;
    let (whose, left) = (rest / LIVES, rest % LIVES);
    Some(Key {
        owner: whose / 2,
        old: whose % 2 == 1,
        left: u8::try_from(left).unwrap_or(LEASE),
    })
}

static ENGINE: LazyLock<Engine> = LazyLock::new(Engine::new);

/// Runs the script of a request at a server with this key.
fn specified(key: Option<Key>, request: Request, client: usize, is_old: bool) -> Served {
    const NAME: &[u8] = b"orders";
    let lease = (i64::from(LEASE) * TICK).to_string();
    let visitor = visitor_of(client, is_old);
    let (script, args) = match request {
        Request::Acquire => ("plain/acquire", vec![&*visitor, &lease, "0", "1", "0", "1"]),
        Request::Extend => ("plain/renew", vec![&*visitor, &lease, "0", "1"]),
        Request::Release => ("plain/release", vec![&*visitor, "channel", "1"]),
    };
    let args: Vec<&[u8]> = args.into_iter().map(str::as_bytes).collect();
    let mut keys = Keyspace::default();
    let entry = key.map(|key| {
        let field = visitor_of(key.owner, key.old).into_bytes();
        Entry {
            value: Value::Hash(vec![(field, b"1".to_vec())]),
            expires: Some(i64::from(key.left) * TICK),
        }
    });
    keys.put((0, NAME.to_vec()), entry, 0);
    let text = scripts::named(script).map_or("", |script| script.text);
    let mut execution = Execution::new(&mut keys, Surroundings::default());
    let answer = ENGINE.run(&Script::new(text), &[NAME], &args, &mut execution);
    execution.finish();
    let is_done = match (request, answer) {
        // The lock was not lost.
        (Request::Extend, Reply::Array(numbered)) => {
            matches!(&numbered[..], [_, Reply::Array(parts)] if parts.len() == 2)
        }
        (_, Reply::Int(_)) => true,
        (_, Reply::Array(_)) => false,
        (_, other) => panic!("{script} answers {other:?}"),
    };
    let after = keys.get(&(0, NAME.to_vec()), 0).map(|entry| {
        let held_by = |client: usize, is_old: bool| {
            let visitor = visitor_of(client, is_old).into_bytes();
            entry.value == Value::Hash(vec![(visitor, b"1".to_vec())])
        };
        let mut owners = (0..CLIENTS).flat_map(|client| [(client, false), (client, true)]);
        let owner = owners.find(|(client, is_old)| held_by(*client, *is_old));
        let left = entry
            .expires
            .map(|end| end / TICK)
            .and_then(|left| u8::try_from(left).ok());
        match (owner, left) {
            (Some((owner, old)), Some(left)) => Key { owner, old, left },
            other => panic!("{script} leaves {other:?}"),
        }
    });
    (after, is_done)
}

/// Each hold has its own id.
fn visitor_of(client: usize, is_old: bool) -> String {
    format!("client-{client}:1:{}", if is_old { 1 } else { 2 })
}
