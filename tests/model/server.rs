//! A server that runs the scripts of the library, in a state that finitely many of exist.

use std::cell::RefCell;
use std::collections::HashMap;

use redlatch_server::{
    Engine, Entry, Execution, Keyspace, Message, Reply, Script, Subscriptions, Surroundings, Value,
};
use redlatch_spec::{Times, scripts};

/// The server's time in every state, in ms since 1970: as time passes, all that ends moves towards it.
pub(crate) const NOW: i64 = 1_700_000_000_000;

/// The number of each request.
const NUMBER: &[u8] = b"1";

/// What a script says and tells.
#[derive(Debug)]
pub(crate) struct Said {
    /// The parts of the answer; none where a small answer says that all was done.
    parts: Option<Vec<Reply>>,
    /// The channels of its messages.
    pub(crate) told: Vec<Vec<u8>>,
}

/// Runs the script of this name. Returns its answer, and the messages that it has sent.
pub(crate) fn run(
    keys: &mut Keyspace,
    around: Surroundings<'_>,
    script: &str,
    names: &[&[u8]],
    args: &[&[u8]],
) -> (Reply, Vec<Message>) {
    // One for each thread, as an engine runs one script at a time.
    thread_local! {
        static ENGINE: Engine = Engine::new();
        static SCRIPTS: RefCell<HashMap<String, Script>> = RefCell::default();
    }
    let script = SCRIPTS.with_borrow_mut(|known| {
        let text = || scripts::named(script).map_or("", |script| script.text);
        let found = known.entry(script.to_owned());
        found.or_insert_with(|| Script::new(text())).clone()
    });
    let mut execution = Execution::new(keys, around);
    let answer = ENGINE.with(|engine| engine.run(&script, names, args, &mut execution));
    (answer, execution.finish().1)
}

/// Runs the script of this name, whose last argument is the number of the request.
pub(crate) fn call(
    keys: &mut Keyspace,
    script: &str,
    names: &[&[u8]],
    args: &[&[u8]],
    listening: &Subscriptions,
) -> Said {
    let around = Surroundings {
        now: NOW * 1000,
        subscriptions: listening,
        ..Surroundings::default()
    };
    let args = [args, &[NUMBER]].concat();
    let (answer, published) = run(keys, around, script, names, &args);
    let parts = match answer {
        Reply::Int(_) => None,
        Reply::Array(answer) => match <[Reply; 2]>::try_from(answer) {
            Ok([_, Reply::Array(parts)]) => Some(parts),
            Ok([_, Reply::Int(_)]) => None,
            other => panic!("{script} answers {other:?}"),
        },
        other => panic!("{script} answers {other:?}"),
    };
    let told = published.into_iter().map(|message| message.channel);
    Said {
        parts,
        told: told.collect(),
    }
}

impl Said {
    /// Whether all was done that was asked for.
    pub(crate) fn is_done(&self) -> bool {
        self.parts.is_none()
    }

    /// The number in this part of a longer answer.
    pub(crate) fn number(&self, part: usize) -> i64 {
        match self.parts.as_ref().and_then(|parts| parts.get(part)) {
            Some(Reply::Int(number)) => *number,
            other => panic!("a number, not {other:?}, in {self:?}"),
        }
    }
}

/// Lets so many ms pass.
pub(crate) fn pass(keys: &mut Keyspace, time: i64) {
    keys.shift(-time);
    let over = keys.iter().filter(|(key, _)| keys.get(key, NOW).is_none());
    let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
    for key in over {
        keys.put(key, None, NOW);
    }
}

/// What stands under a name.
pub(crate) fn entry<'k>(keys: &'k Keyspace, name: &[u8]) -> Option<&'k Entry> {
    keys.get(&(0, name.to_vec()), NOW)
}

/// Puts something in its place.
pub(crate) fn put(keys: &mut Keyspace, name: &[u8], entry: Option<Entry>) {
    keys.put((0, name.to_vec()), entry, NOW);
}

/// The fields of a hash, the items of a list, or the members of a sorted set under a name.
pub(crate) fn members(keys: &Keyspace, name: &[u8]) -> Vec<Vec<u8>> {
    match entry(keys, name).map(|entry| &entry.value) {
        Some(Value::Hash(fields)) => fields.iter().map(|(field, _)| field.clone()).collect(),
        Some(Value::List(items)) => items.clone(),
        Some(Value::Sorted(members)) => members.iter().map(|(member, _)| member.clone()).collect(),
        Some(Value::String(_) | Value::Set(_)) | None => Vec::new(),
    }
}
