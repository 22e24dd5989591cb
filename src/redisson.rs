//! Redisson beside this library: what is shared, what was tested, and how to move from one to the other.
//!
//! On one server and database, behind the same sentinels or in one cluster, `client.lock(name)` and
//! `redisson.getLock(name)` are the same lock, so programs can be moved one at a time, in any order, and back.
//!
//! # What was tested
//!
//! `make interop` runs Redisson in a JVM (Java 17) against this library. *Each way* means that either side was the
//! holder and either side the other one.
//!
//! | operation, each way | 3.14.0 | 3.27.2 | 4.7.0 |
//! |---|---|---|---|
//! | threads of three processes exclude each other | ✓ | ✓ | ✓ |
//! | an unlock wakes a waiter of the other side, within milliseconds | ✓ | ✓ | ✓ |
//! | re-entry; `isLocked`, `remainTimeToLive` and the count in the hash are those of the other side's hold | ✓ | ✓ | ✓ |
//! | the watchdog keeps the other side out; a fixed lease ends for both | ✓ | ✓ | ✓ |
//! | a killed process frees its lock within one lease | ✓ | ✓ | ✓ |
//! | `forceUnlock`, and what the holder is told | ✓ | ✓ | ✓ |
//! | names with `:`, spaces, a `{tag}` or text beyond ASCII | ✓ | ✓ | ✓ |
//! | [`key_prefix`](crate::Builder::key_prefix) is a `NameMapper` | has none: put the prefix into the name | ✓, set at `useSingleServer()` | ✓, set at `Config` |
//! | lost, late and doubled requests of this library | ✓ | ✓ | ✓ |
//! | behind sentinels and in a cluster: exclusion, wake-ups, watchdogs, `forceUnlock`, the death of a master | ✓ | ✓ | ✓ |
//! | an acquire of Redisson that is executed twice, its issue 7367 | one lease | one lease | one lease |
//!
//! The last line is how long everybody else is kept out at most: Redisson counts two holds, gives one back and stops
//! to renew. A fleet of this library alone has no such case, as its counts are absolute.
//!
//! What else differs between the generations:
//!
//! | | 3.14.0 | 3.27.2 | 4.7.0 |
//! |---|---|---|---|
//! | keys beside the hash | none | `redisson_unlock_latch:{name}:…` during an unlock | as 3.27.2 |
//! | `tryLock()` that gets no reply | is sent again | is sent again | throws `RedisResponseTimeoutException` |
//! | fair locks of the same name exclude ours | ✓ | ✓ | ✓ |
//! | spin and fenced locks do | not there | ✓ | ✓ |
//! | a read-write lock of the same name | does not see ours | does not see ours | does not see ours |
//! | messages in a cluster of Redis 7 | plain | sharded or plain, by chance | sharded |
//!
//! **In a cluster, [`sharded_pubsub`](crate::Builder::sharded_pubsub) must be what Redisson does**: `false` with 3.14.0,
//! the default with 4.7.0. 3.27.2 decides by chance, each client for itself: it asks any master with a `SPUBLISH` to the
//! channel with the empty name, and takes the `MOVED` of one that has not its slot for a no. Where the two differ,
//! locks exclude each other all the same, but an unlock does not wake the other side: we look again within about a
//! second, Redisson when the lease is over. Behind sentinels all messages are plain.
//!
//! **Do not use one name for two kinds of locks.** We refuse the name of a read-write lock
//! ([`Error::WrongType`](crate::Error::WrongType)) and never damage it, but it takes itself for the first where we hold
//! the lock. After the unlock of a fair or a spin lock we try again within about a second only, because they send no
//! message that we hear.
//!
//! jedis-distributed-lock uses the same hash with another channel: it excludes, and is excluded, but does not wake
//! anybody, so we try again within about a second, and Redisson when the lease is over. (Tested with its commands, not
//! with the library.)
//!
//! # Moving from Redisson
//!
//! ## The client
//!
//! ```java
//! Config config = new Config();
//! config.setLockWatchdogTimeout(10_000);
//! config.setNameMapper(shopPrefix);           // "shop:" before every name
//! config.useSingleServer().setAddress("redis://127.0.0.1:6379");
//! RedissonClient client = Redisson.create(config);
//! ```
//!
//! ```
//! use std::time::Duration;
//! use redlatch::Client;
//!
//! let client = Client::builder()
//!     .watchdog_timeout(Duration::from_secs(10))
//!     .key_prefix("shop:")
//!     .in_memory()?; // or .open("redis://127.0.0.1:6379")
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! Server, database and prefix must be the same on both sides; the times need not be.
//!
//! ## Lock and unlock
//!
//! ```java
//! RLock lock = client.getLock("lock:orders:42");
//! lock.lock();
//! try {
//!     ship();
//! } finally {
//!     lock.unlock();
//! }
//! ```
//!
//! ```
//! # let client = redlatch::Client::in_memory();
//! # fn ship() {}
//! let lock = client.lock("lock:orders:42");
//! let guard = lock.guard()?;
//! ship();
//! guard.unlock()?; // dropping it does the same, but tells nobody how it went
//!
//! lock.run(|_| ship())?; // or so
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! ## Wait for some time, hold for some time
//!
//! ```java
//! if (lock.tryLock(500, 5_000, TimeUnit.MILLISECONDS)) {
//!     try {
//!         ship();
//!     } finally {
//!         lock.unlock();
//!     }
//! }
//! ```
//!
//! ```
//! # use std::time::Duration;
//! # let client = redlatch::Client::in_memory();
//! # fn ship() {}
//! let lock = client.lock("lock:orders:42").with_lease_time(Duration::from_secs(5));
//! if let Some(guard) = lock.try_guard_for(Duration::from_millis(500))? {
//!     ship();
//!     guard.unlock()?;
//! }
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! ## Interrupt a wait
//!
//! ```java
//! Thread waiter = new Thread(() -> {
//!     try {
//!         lock.lockInterruptibly();
//!     } catch (InterruptedException stopped) {
//!         return;
//!     }
//! });
//! waiter.start();
//! waiter.interrupt();
//! ```
//!
//! ```
//! # use redlatch::{Client, Error, Interrupt};
//! # let client = Client::in_memory();
//! # let lock = client.lock("lock:orders:42");
//! # let _held = lock.guard()?;
//! let interrupt = Interrupt::new();
//! std::thread::scope(|scope| {
//!     let waiter = scope.spawn(|| lock.lock_interruptibly(&interrupt));
//!     interrupt.raise();
//!     assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted { .. })));
//! });
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! ## Lose it
//!
//! Redisson's holder learns from `unlock` at the earliest that it was alone no more. Ours is told why, and can ask and
//! listen before.
//!
//! ```java
//! try {
//!     lock.unlock();
//! } catch (IllegalMonitorStateException notMine) {
//!     undo();
//! }
//! ```
//!
//! ```
//! # use redlatch::Client;
//! # let client = Client::in_memory();
//! # fn undo() {}
//! # let lock = client.lock("lock:orders:42");
//! let guard = lock.guard()?;
//! # lock.force_unlock()?;
//! if !guard.is_valid() { // no I/O; `guard.lost()` waits for the news
//!     undo();
//! }
//! match guard.unlock() {
//!     Err(error) if error.is_lost() => println!("{error}"), // …: it is gone from the store
//!     other => other?,
//! }
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! ## Ask and force
//!
//! ```java
//! lock.isLocked();
//! lock.isHeldByCurrentThread();
//! lock.getHoldCount();
//! lock.remainTimeToLive();                    // -2 if nobody holds it
//! lock.forceUnlock();
//! ```
//!
//! ```
//! # let client = redlatch::Client::in_memory();
//! # let lock = client.lock("lock:orders:42");
//! # lock.lock()?;
//! assert!(lock.is_locked()?);
//! assert!(lock.is_held_by_current_thread()?);
//! assert_eq!(lock.hold_count()?, 1);
//! assert!(lock.remaining_lease()?.is_some()); // None if nobody holds it
//! assert!(lock.force_unlock()?);
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! ## What to look at when moving
//!
//! - A field in the hash has three parts, `uuid:thread:hold`, where Redisson has two. Redisson compares it as text; a
//!   tool of yours that takes it apart may not expect the third.
//! - A thread that ends without unlocking is no longer renewed here. With Redisson its lock stays until the JVM ends.
//! - `lock()` returns an error when the server gave no usable answer for
//!   [`outage_timeout`](crate::Builder::outage_timeout).
//! - A nested acquisition with a shorter lease does not shorten the outer one, as it does with Redisson.
//! - The method table at [`Lock`](crate::Lock) has the rest.
