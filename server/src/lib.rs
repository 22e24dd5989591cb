//! An in-process Redis for tests and simulations, which runs real Lua scripts.
//!
//! A [`Server`] is a state machine. It takes the bytes that clients send, and returns the bytes for its clients. It has no
//! thread, no clock and no I/O. Each request has the time as an argument, in microseconds since 1970.
//!
//! It behaves like Redis 7.0 with RESP2. It supports strings, hashes, lists, sets, sorted sets, times to live, SCAN,
//! pub/sub (plain and sharded), `EVAL`, `EVALSHA` and `SCRIPT`. It does not support transactions, streams, blocking
//! commands, replication or persistence.
//!
//! ```
//! use redlatch_server::{Config, Server};
//!
//! let mut now = 1_700_000_000_000_000;
//! let mut server = Server::new(Config::default(), now);
//! server.connect(1);
//!
//! let script = "redis.call('SET', KEYS[1], ARGV[1], 'PX', 50) return redis.call('PTTL', KEYS[1])";
//! let sent = server.command(now, 1, &["EVAL", script, "1", "key", "text"]);
//! assert_eq!(sent[0].bytes, b":50\r\n");
//!
//! let sent = server.feed(now, 1, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
//! assert_eq!(sent[0].bytes, b"$4\r\ntext\r\n");
//!
//! // The caller advances the time.
//! now += 51_000;
//! assert!(server.look(now, "key").is_none());
//! ```
//!
//! The keys are a separate value, a [`Keyspace`], which can be cloned, compared and hashed. [`Engine::run`] runs a script
//! on a keyspace without a server, as a model checker needs:
//!
//! ```
//! use redlatch_server::{Engine, Execution, Keyspace, Reply, Script, Surroundings};
//!
//! let (engine, mut keys) = (Engine::new(), Keyspace::default());
//! let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
//! let mut execution = Execution::new(&mut keys, Surroundings::default());
//! let reply = engine.run(&script, &[b"count"], &[b"2"], &mut execution);
//! assert_eq!(reply, Reply::Int(2));
//! let (changes, _) = execution.finish();
//! assert_eq!(changes.len(), 1);
//! ```

mod commands;
mod keyspace;
mod number;
mod reply;
mod request;
mod script;
mod server;
mod slot;

pub use commands::{Execution, Message, Subscriptions, Surroundings, is_data_command, keys_of};
pub use keyspace::{Change, Entry, Key, Keyspace, Score, Value};
pub use reply::Reply;
pub use request::{Unread, next};
pub use script::{Engine, Script, TOO_LONG};
pub use server::{Config, Delivery, Effects, Server};
pub use slot::slot;
