//! What must hold after every fault, each invariant stated once, numbered O1 to O9.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, Loss, Losses};

use crate::support::{End, Fault, Monitor, RedisServer, eventually, ms, scripts};

/// The slack of a busy machine.
pub(crate) const SLACK: Duration = ms(2500);

/// The command timeout of these tests.
pub(crate) const TIMEOUT: Duration = ms(1000);

/// The password that must not be shown.
pub(crate) const CANARY: &str = "canary-7f3a";

/// The ways in which one request or its reply is lost.
pub(crate) const LOST: [Fault; 4] = [
    Fault::SwallowReply(End::Reset),
    Fault::SwallowReply(End::Silent),
    Fault::SwallowRequest(End::Reset),
    Fault::DuplicateRequest,
];

macro_rules! scripts {
    ($($name:ident $path:literal)*) => {
        $(
            pub(crate) const $name: &str =
                include_str!(concat!("../../src/stores/redis/kinds/", $path));
        )*
    };
}

scripts! {
    ACQUIRE "plain/acquire.lua"
    GUARDED "guarded.lua"
    INSPECT "plain/inspect.lua"
    RELEASE "plain/release.lua"
    RELEASE_LEVEL "plain/release_level.lua"
    RENEW "plain/renew.lua"
    RIGHTS "rights.lua"
    WITHDRAW "plain/withdraw.lua"
    CONDITION_LOOK "condition/look.lua"
    FAIR_ACQUIRE "fair/acquire.lua"
    FAIR_RELEASE "fair/release.lua"
    FENCED_ACQUIRE "fenced/acquire.lua"
    LATCH_COUNT "latch/count.lua"
    PERMIT_IDS_ACQUIRE "permit_ids/acquire.lua"
    PERMIT_IDS_COUNT "permit_ids/count.lua"
    PERMIT_IDS_RELEASE "permit_ids/release.lua"
    PERMITS_ACQUIRE "permits/acquire.lua"
    PERMITS_COUNT "permits/count.lua"
    PERMITS_RELEASE "permits/release.lua"
    RW_ACQUIRE "read_write/acquire.lua"
    RW_RELEASE "read_write/release.lua"
    TOKEN_ACQUIRE "token/acquire.lua"
    TOKEN_RELEASE "token/release.lua"
}

/// The hash that distinguishes calls of a script, once [`teach`] has made sure that EVALSHA is used.
pub(crate) fn sha(script: &str) -> String {
    scripts::hash(script)
}

/// Loads all scripts into the server.
pub(crate) fn teach(server: &RedisServer) {
    for (_, script) in scripts::all() {
        teach_one(server, &script);
    }
}

pub(crate) fn teach_one(server: &RedisServer, script: &str) {
    let told = server.text(&["SCRIPT", "LOAD", &scripts::spliced(script)]);
    assert_eq!(told, Some(sha(script)), "the hash of a script");
}

/// Settings with short timeouts.
pub(crate) fn quick() -> Builder {
    Client::builder()
        .command_timeout(TIMEOUT)
        .connect_timeout(TIMEOUT)
        .outage_timeout(ms(1500))
}

/// O8: the classes of errors that a caller can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Config,
    Unreachable,
    Unknown,
    Unavailable,
    Permission,
    Untrusted,
    WrongType,
    Corrupt,
    NoTtl,
    Unexpected,
    NotHeld,
    Lost,
    Other,
}

pub(crate) fn class_of(error: &Error) -> Class {
    match error {
        Error::InvalidConfig { .. } => Class::Config,
        Error::Unreachable { .. } => Class::Unreachable,
        Error::Unknown { .. } => Class::Unknown,
        Error::Unavailable { .. } => Class::Unavailable,
        Error::Permission { .. } => Class::Permission,
        Error::Untrusted { .. } => Class::Untrusted,
        Error::WrongType { .. } => Class::WrongType,
        Error::CorruptCount { .. } => Class::Corrupt,
        Error::NoTtl { .. } => Class::NoTtl,
        Error::Unexpected { .. } => Class::Unexpected,
        Error::NotHeld { .. } => Class::NotHeld,
        Error::Lost { .. } => Class::Lost,
        _ => Class::Other,
    }
}

/// O8: the call failed with an error of this class, whose retry hint is right and which shows no secret.
#[track_caller]
pub(crate) fn fails<T: Debug>(result: Result<T, Error>, class: Class) -> Error {
    let error = match result {
        Ok(value) => panic!("{class:?} was expected, not Ok({value:?})"),
        Err(error) => error,
    };
    assert_eq!(class_of(&error), class, "{error}");
    let passes = matches!(class, Class::Unreachable | Class::Unavailable);
    assert_eq!(error.is_retryable(), passes, "{error}");
    assert_eq!(error.is_ambiguous(), class == Class::Unknown, "{error}");
    assert_eq!(error.is_lost(), class == Class::Lost, "{error}");
    no_secret(&error);
    no_secret(&error.to_string());
    error
}

/// O8: a value does not show the password.
#[track_caller]
pub(crate) fn no_secret(value: &dyn Debug) {
    for text in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!text.contains(CANARY), "a secret is shown: {text}");
    }
}

/// O7: the call ends within `limit` plus the slack of a busy machine.
#[track_caller]
pub(crate) fn ends_within<T>(limit: Duration, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = call();
    let took = start.elapsed();
    assert!(
        took < limit + SLACK,
        "{took:?} where {limit:?} was promised"
    );
    value
}

/// All keys of the server's first database.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    redis::from_redis_value(server.cmd(&["KEYS", "*"])).unwrap()
}

/// O3: right after a clean end the server has no key.
#[track_caller]
pub(crate) fn is_empty(server: &RedisServer) {
    assert_eq!(keys(server), Vec::<String>::new());
}

/// O3: leftovers of an unclean end are gone soon, long before the lease ends.
#[track_caller]
pub(crate) fn leaves_nothing(server: &RedisServer) {
    eventually(ms(5000), "nothing is left behind", || {
        every_key_expires(server);
        keys(server).is_empty()
    });
}

/// O3: every key has a TTL.
#[track_caller]
pub(crate) fn every_key_expires(server: &RedisServer) {
    for key in keys(server) {
        assert_ne!(server.int(&["PTTL", &key]), -1, "{key} never expires");
    }
}

/// The counts of all fields of a lock.
pub(crate) fn counts(server: &RedisServer, name: &str) -> Vec<String> {
    redis::from_redis_value(server.cmd(&["HVALS", name])).unwrap()
}

/// O4: for a while the server receives nothing from this visitor.
#[track_caller]
pub(crate) fn not_heard_of(monitor: &Monitor, visitor: &str, pause: Duration) {
    monitor.clear();
    thread::sleep(pause);
    let lines = monitor.lines_containing(visitor);
    assert!(lines.is_empty(), "{lines:#?}");
}

/// The writes of scripts of a field that starts with `visitor`.
pub(crate) fn written(monitor: &Monitor, visitor: &str) -> Vec<String> {
    let mut lines = monitor.lines_containing(visitor);
    lines.retain(|line| line.contains(" lua] \"HSET\""));
    lines
}

/// O6: the loss is reported within `limit`, plus the slack of a busy machine.
#[track_caller]
pub(crate) fn next_loss(lost: &Losses, limit: Duration) -> Loss {
    match lost.recv_timeout(limit + SLACK) {
        Ok(loss) => {
            no_secret(&loss);
            loss
        }
        Err(error) => panic!("no loss is told within {limit:?}: {error}"),
    }
}

/// The connections of clients under test, as lines of CLIENT LIST.
pub(crate) fn connections(server: &RedisServer) -> Vec<String> {
    let list = server.text(&["CLIENT", "LIST"]).unwrap_or_default();
    list.lines()
        .filter(|line| line.contains(" name=redlatch:"))
        .map(str::to_owned)
        .collect()
}

/// O9: all connections of clients under test are closed.
#[track_caller]
pub(crate) fn no_connection_is_left(server: &RedisServer) {
    eventually(SLACK, "all connections are closed", || {
        connections(server).is_empty()
    });
}

/// How many subscriptions the channel of a lock has.
pub(crate) fn subscriptions(server: &RedisServer, name: &str) -> i64 {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let answer = server.cmd(&["PUBSUB", "NUMSUB", &channel]);
    let (_, count): (String, i64) = redis::from_redis_value(answer).unwrap();
    count
}

/// Waits until the unlock channel of a lock has a subscriber.
#[track_caller]
pub(crate) fn somebody_waits(server: &RedisServer, name: &str) {
    eventually(ms(5000), "somebody waits", || {
        subscriptions(server, name) > 0
    });
}

/// Collects the log of this process; keeps only records that show the password.
pub(crate) struct Log {
    events: AtomicUsize,
    leaks: std::sync::Mutex<Vec<String>>,
}

impl Log {
    /// Starts to collect, once for all tests of the process.
    pub(crate) fn listen() -> &'static Log {
        static LOG: OnceLock<&'static Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log: &'static Log = Box::leak(Box::new(Log {
                events: AtomicUsize::new(0),
                leaks: std::sync::Mutex::default(),
            }));
            tracing::subscriber::set_global_default(Listener(log))
                .unwrap_or_else(|error| panic!("somebody else listens: {error}"));
            log
        })
    }

    /// The number of events and spans so far.
    pub(crate) fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    /// The texts that showed the password.
    pub(crate) fn leaks(&self) -> Vec<String> {
        self.leaks.lock().unwrap().clone()
    }

    fn take(&self, record: impl FnOnce(&mut dyn tracing::field::Visit)) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        record(&mut text);
        self.events.fetch_add(1, Ordering::Relaxed);
        if text.0.contains(CANARY) {
            self.leaks.lock().unwrap().push(text.0);
        }
    }
}

struct Listener(&'static Log);

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("redlatch")
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.0.take(|visitor| span.record(visitor));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        self.0.take(|visitor| values.record(visitor));
    }

    fn event(&self, event: &tracing::Event<'_>) {
        self.0.take(|visitor| event.record(visitor));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
