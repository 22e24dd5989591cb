//! Guarded writes: commands that the server runs only while the lock is held, or unless the fence is stale.

use std::sync::Arc;

use crate::client::Client;
use crate::ground::batch::{Batch, Work};
use crate::ground::claim::Kind;
use crate::ground::error::{Error, Result};
use crate::ground::reply::Reply;
use crate::guard::{Guard, OwnedGuard};
use crate::lock::Lock;
use crate::stores::redis::flaw;

impl Guard {
    /// Runs commands on the server of the lock, in one step with a check that this hold still exists.
    ///
    /// Time passes between [`Guard::is_valid`] and a separate write, but not between this check and the commands. A holder
    /// that was paused or lost its lock writes nothing and gets [`Error::Lost`]. The server also refuses a request that
    /// arrives after the end that the validity had when the request was sent.
    ///
    /// `batch` collects the commands, and the replies have the same order. **The commands run together, but not all
    /// or nothing**: Redis undoes nothing, so after [`Error::CommandFailed`] the commands before the failed one have
    /// run. A batch has at most 4,000 words and 1 MiB of replies; the command whose reply exceeds the limit has run,
    /// and ends the batch. In a cluster all keys have to be in the slot of the lock, such as `{orders}:stock` with a
    /// lock `{orders}:lock`.
    ///
    /// The call takes at most one [`command_timeout`](crate::Builder::command_timeout), or about two after a
    /// connection broke during the acquisition.
    ///
    /// # Errors
    ///
    /// Nothing was written, unless stated otherwise:
    ///
    /// - [`Error::Lost`] with the cause: the hold is gone, and is reported like any other loss; [`Error::NotHeld`]:
    ///   it was unlocked before;
    /// - [`Error::CommandFailed`]: the server refused a command, such as a write at `maxmemory`; the commands before
    ///   it have run;
    /// - [`Error::Unknown`]: the request got no readable reply, and is not sent again. It has run, runs while this
    ///   hold lasts, or never runs. After an unlock that returned `Ok` it does not run. Also returned if too few replicas
    ///   acknowledged the write (only with [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::CrossSlot`]: a key is in another slot of the cluster than the lock;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: the request was not sent, or the
    ///   server cannot serve it now;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user has no right to a key, or TLS does not trust the other
    ///   side;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: another program wrote to the key of the lock, or the server
    ///   sent an unexpected reply;
    /// - [`Error::Unsupported`]: the batch is too long, or the lock is in a database (see `Guard::transaction`), a
    ///   [`Redlock`](crate::Redlock) or a [`MultiLock`](crate::MultiLock);
    /// - [`Error::WatchdogDied`], [`Error::Forked`]: the renewal thread has died, or this is a forked child.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let client = redlatch::Client::open("redis://127.0.0.1:6379")?;
    /// let guard = client.lock("{orders}:lock").guard()?;
    /// let replies = guard.write(|batch| {
    ///     batch.incr_by("{orders}:stock", -1);
    ///     batch.hset("{orders}:sold", "42", "one piece");
    /// })?;
    /// println!("{:?} pieces left", replies[0].as_int());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn write(&self, batch: impl FnOnce(&mut Batch)) -> Result<Vec<Reply>> {
        self.held().work(Work::Commands(&filled(batch)))
    }

    /// Runs a Lua script on the server of the lock, in one step with a check that this hold still exists.
    ///
    /// `script` is as for `EVAL`, without a first line `#!lua`. It sees `keys` and `args` as `KEYS` and `ARGV`, and its
    /// value is the reply. The server caches the script by its hash. **Never build the text from untrusted input**: a text
    /// such as `end)()` closes the function around the script, and what follows runs before the check. If the server became
    /// a replica, the script is sent again to the new master. All else is as in [`Guard::write`].
    ///
    /// # Errors
    ///
    /// Those of [`Guard::write`]. A script that raises or returns an error, or does not compile, is
    /// [`Error::CommandFailed`]; its earlier writes have run.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let client = redlatch::Client::open("redis://127.0.0.1:6379")?;
    /// let guard = client.lock("lock:stock").guard()?;
    /// let text = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end";
    /// let deleted = guard.eval(text, &["stock"], &[b"0"])?;
    /// println!("deleted: {}", deleted.as_int() == Some(1));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn eval(&self, script: &str, keys: &[&str], args: &[&[u8]]) -> Result<Reply> {
        self.held().work(script_of(script, keys, args)).map(only)
    }
}

impl OwnedGuard {
    /// Runs commands on the server as [`Guard::write`](crate::Guard::write) does, from any thread.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::write`](crate::Guard::write).
    pub fn write(&self, batch: impl FnOnce(&mut Batch)) -> Result<Vec<Reply>> {
        self.held().work(Work::Commands(&filled(batch)))
    }

    /// Runs a Lua script on the server as [`Guard::eval`](crate::Guard::eval) does, from any thread.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::eval`](crate::Guard::eval).
    pub fn eval(&self, script: &str, keys: &[&str], args: &[&[u8]]) -> Result<Reply> {
        self.held().work(script_of(script, keys, args)).map(only)
    }
}

impl Lock {
    /// Runs commands on the server as [`Guard::write`](crate::Guard::write) does, under the hold of the current thread.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the current thread does not hold the lock, and those of [`Guard::write`](crate::Guard::write).
    pub fn write(&self, batch: impl FnOnce(&mut Batch)) -> Result<Vec<Reply>> {
        self.work(Work::Commands(&filled(batch)))
    }

    /// Runs a Lua script on the server as [`Guard::eval`](crate::Guard::eval) does, under the hold of the current thread.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the current thread does not hold the lock, and those of [`Guard::eval`](crate::Guard::eval).
    pub fn eval(&self, script: &str, keys: &[&str], args: &[&[u8]]) -> Result<Reply> {
        self.work(script_of(script, keys, args)).map(only)
    }

    fn work(&self, work: Work<'_>) -> Result<Vec<Reply>> {
        let hold = self.current_hold()?;
        self.raw_lock().write(&hold, work)
    }
}

impl Client {
    /// Runs commands on this server unless a write with a larger `fence` was made to `resource` before.
    ///
    /// This is for data on another server than the lock. `fence` is the [fencing token](crate::Guard::fencing_token) of the
    /// hold. The largest fence is kept in the key `redlatch_fence:{resource}`, which has no TTL; delete it together with the
    /// resource. A write with the same fence as the last write also runs. The resource and the keys do not get the
    /// [`key_prefix`](crate::Builder::key_prefix) of the client. In a cluster all keys have to be in the slot of `resource`.
    /// All else is as in [`Guard::write`](crate::Guard::write).
    ///
    /// # Errors
    ///
    /// Nothing was written, unless stated otherwise:
    ///
    /// - [`Error::Stale`]: a write with a larger fence was made before;
    /// - [`Error::CommandFailed`]: the server refused a command; the commands before it have run, and the fence is
    ///   recorded;
    /// - [`Error::Unknown`]: the request got no readable reply, and is not sent again. It has run, or may run within
    ///   one [`command_timeout`](crate::Builder::command_timeout) unless a larger fence arrives before. Also returned if too
    ///   few replicas acknowledged the write;
    /// - [`Error::CrossSlot`]: a key is in another slot of the cluster than the resource;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: the request was not sent, or the
    ///   server cannot serve it now;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or TLS does not trust the other side;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: the key of the fence has other data, or the server sent an
    ///   unexpected reply;
    /// - [`Error::InvalidName`], [`Error::Unsupported`]: the name of the resource is invalid, the batch is too long,
    ///   or the client is not for Redis;
    /// - [`Error::Forked`]: the client was created before this process was forked.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use redlatch::{Client, Error};
    ///
    /// let client = Client::open("redis://127.0.0.1:6379")?;
    /// # let fence = 7;
    /// match client.write_fenced("orders", fence, |batch| {
    ///     batch.hset("orders", "42", "sold");
    /// }) {
    ///     Err(Error::Stale { newer, .. }) => println!("a holder with the token {newer} wrote before"),
    ///     replies => println!("{replies:?}"),
    /// }
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn write_fenced(
        &self,
        resource: &str,
        fence: u64,
        batch: impl FnOnce(&mut Batch),
    ) -> Result<Vec<Reply>> {
        let lock: Arc<str> = resource.into();
        self.inner.not_forked(&lock)?;
        let Some(store) = self.redis() else {
            let reason = self.inner.store.facts().lacks;
            return Err(Error::unsupported(&lock, reason));
        };
        if let Some(flaw) = flaw(Kind::default(), resource, resource) {
            return Err(flaw);
        }
        let batch = filled(batch);
        let work = Work::Commands(&batch);
        work.check(&lock)?;
        store.write_fenced(&lock, fence, work, self.inner.deadline())
    }
}

fn filled(fill: impl FnOnce(&mut Batch)) -> Batch {
    let mut batch = Batch::default();
    fill(&mut batch);
    batch
}

fn script_of<'a>(text: &'a str, keys: &'a [&str], args: &'a [&[u8]]) -> Work<'a> {
    Work::Script { text, keys, args }
}

fn only(replies: Vec<Reply>) -> Reply {
    replies.into_iter().next().unwrap_or(Reply::Nil)
}
