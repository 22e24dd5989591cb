//! The rights that a Redis user needs.
//!
//! A server that more than one program uses should give each a user of its own. What this library needs depends on what
//! is done with it; the tables are complete and have nothing to spare: the tests compare them with the scripts and the
//! commands in the source, run all laws of the lock as such a user, and take the rules away one by one.
//! An [`Error::Permission`](crate::Error::Permission) and [`Client::check`](crate::Client::check) name what is missing,
//! as far as the server tells.
//!
//! A user for [`Client::lock`](crate::Client::lock), on names that begin with `orders:` (Redis 6.2 or later):
//!
//! ```text
//! ACL SETUSER locks on >secret resetkeys ~orders:* resetchannels &redisson_lock__channel:*
//!     +eval +evalsha +time +pexpire +pttl
//!     +exists +hexists +hlen +hkeys +hget +hset +hdel +publish +subscribe +unsubscribe
//! ```
//!
//! # Keys and channels
//!
//! | rule | what for |
//! |---|---|
//! | `~orders:*` | the names of the locks, with the key prefix |
//! | `&redisson_lock__channel:*` | the unlock messages of [`Client::lock`](crate::Client::lock); narrower, `&redisson_lock__channel:{orders:*` for these names, as long as none has a `{` in it |
//!
//! Token locks send no messages and need no channel.
//!
//! # Commands
//!
//! Commands inside the scripts are checked like any others.
//!
//! | for | rules |
//! |---|---|
//! | every lock | `+eval` `+evalsha` `+time` `+pexpire` `+pttl` |
//! | [`Client::lock`](crate::Client::lock) | `+exists` `+hexists` `+hlen` `+hkeys` `+hget` `+hset` `+hdel` `+publish` `+subscribe` `+unsubscribe` |
//! | [`Client::token_lock`](crate::Client::token_lock) | `+get` `+set` `+del` |
//! | a database other than 0 | `+select` |
//! | each node of a [`Redlock`](crate::Redlock) | `+info` |
//! | [`Builder::master_replicas`](crate::Builder::master_replicas), and the master behind [`Builder::sentinel`](crate::Builder::sentinel) | `+role` |
//! | a [`Builder::cluster`](crate::Builder::cluster) | `+cluster\|slots` `+asking` |
//! | the same where messages are sharded, in place of the rights to publish and to subscribe | `+spublish` `+ssubscribe` `+sunsubscribe` |
//! | [`Builder::wait_replicas`](crate::Builder::wait_replicas) | `+wait` |
//! | the user at the sentinels, who needs nothing else | `+sentinel\|get-master-addr-by-name` `+sentinel\|master` `+subscribe` `+ping` |
//!
//! Without these everything works:
//!
//! | rule | without it |
//! |---|---|
//! | `+client\|setname` | the connections have no name in `CLIENT LIST` |
//! | `+config\|get` | a node of a [`Redlock`](crate::Redlock) that has restarted is taken for one that may have forgotten its locks, even if it keeps them on disk |
//! | `+info` | [`Client::check`](crate::Client::check) does not look at the server's settings |
//! | `+command` `+acl` | [`Redlock::check`](crate::Redlock::check) does not say whether this user may flush the keys |
//! | `+ping` | a subscriber's connection that was quiet for a while is asked with a command that is refused, which is an answer, too; the server counts it |
//! | `+pubsub\|shardnumsub` | in a [`Builder::cluster`](crate::Builder::cluster) messages are taken for not sharded, unless [`Builder::sharded_pubsub`](crate::Builder::sharded_pubsub) says so; there it is also what `+pubsub\|numsub` is elsewhere |
//! | `+pubsub\|numsub` | threads of one client hand a lock on among themselves less often, as if others always waited elsewhere |
//!
//! A user without `+evalsha` sends the text of its scripts with every request. One without `+subscribe`, or `+publish`
//! where it unlocks, waits up to a second longer for a lock that was unlocked elsewhere; without `+unsubscribe` its
//! subscriptions pile up. One without `+hlen` reads the names of all fields to see that a hash is no lock, which keeps
//! the server busy if they are many. `AUTH` needs no right. [`Client::check`](crate::Client::check) looks for the rights for
//! [`Client::lock`](crate::Client::lock); a user for token locks alone need not heed it.
