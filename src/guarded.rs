//! Writes that a server carries out only where the lock is held, or the fence is not stale.

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
    /// Runs commands on the server of the lock, in one step with the check that this hold is still there.
    ///
    /// Time passes between [`Guard::is_valid`] and a write of its own; none passes here. A holder that was paused, or whose
    /// lock was taken away, writes nothing and gets [`Error::Lost`]. The server also refuses a request that arrives after
    /// the end of the validity as it was when the request was sent, so a request that comes late writes nothing once this
    /// hold has ended. One exception: if a level with a longer lease was given back meanwhile, and that did not reach the
    /// server either, the write may run until that lease would have ended. Nobody else has the lock then.
    ///
    /// `batch` fills in the commands, and the replies come in their order. **They run together, not all or nothing**: Redis
    /// undoes nothing, so after [`Error::CommandFailed`] those before the failed one stand. At most 4,000 words fit, and
    /// 1 MiB of replies; a command whose reply has no room left ends the batch with that error, and was itself carried out.
    /// In a cluster all keys have to be in the slot of the lock, such as `{orders}:stock` with a lock `{orders}:lock`.
    ///
    /// The call takes at most one [`command_timeout`](crate::Builder::command_timeout), or about two if the connection of
    /// the acquisition was cut under it: nothing is sent as long as a copy of that request may still arrive.
    ///
    /// # Errors
    ///
    /// Nothing was written, except where it says so:
    ///
    /// - [`Error::Lost`] with the cause: the hold is gone, and is told like any other loss; [`Error::NotHeld`]: it was
    ///   given back before;
    /// - [`Error::CommandFailed`]: the server refused a command, because it is full for example; those before it stand;
    /// - [`Error::Unknown`]: the request got no answer that can be read, and is not sent again. It has run, or runs while this
    ///   hold lasts, or never: after an unlock that returned `Ok` it does not run. A program that has to know reads what the
    ///   batch writes. Also if too few replicas acknowledged what was written (only with
    ///   [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::CrossSlot`]: a key is in another slot of the cluster than the lock;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: the request was not sent, or the server cannot
    ///   serve it now;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right to a key, or TLS does not trust the other side;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: something else has written to the key of the lock, or the server
    ///   answered something unexpected;
    /// - [`Error::Unsupported`]: the batch is too long, or the lock is in a database (see
    ///   `Guard::transaction`), a [`Redlock`](crate::Redlock) or a [`MultiLock`](crate::MultiLock);
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

    /// Runs a script in Lua on the server of the lock, in one step with the check that this hold is still there.
    ///
    /// The text is that of `EVAL`, without a first line `#!lua`. It runs as a function that sees `keys` and `args` as its
    /// own `KEYS` and `ARGV`. The value that it returns is the reply; the server keeps the script by its hash. A text is trusted as
    /// the program is: one that closes the function early (`end)()`) runs what follows before the check, so make none of parts
    /// that others have written. A server that turned into a replica refuses the first write, and the script is sent again:
    /// what it has published before that is published again. All else is as in [`Guard::write`].
    ///
    /// # Errors
    ///
    /// Those of [`Guard::write`]. A script that raises an error, returns one, or is none, is [`Error::CommandFailed`]; what
    /// it has written until then stands.
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
    /// Runs commands on the server as [`Guard::write`](crate::Guard::write) does, under this hold and from any thread.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::write`](crate::Guard::write).
    pub fn write(&self, batch: impl FnOnce(&mut Batch)) -> Result<Vec<Reply>> {
        self.held().work(Work::Commands(&filled(batch)))
    }

    /// Runs a script in Lua on the server as [`Guard::eval`](crate::Guard::eval) does, under this hold and from any thread.
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
    /// [`Error::NotHeld`] if the current thread does not hold the lock, and those of
    /// [`Guard::write`](crate::Guard::write).
    pub fn write(&self, batch: impl FnOnce(&mut Batch)) -> Result<Vec<Reply>> {
        self.work(Work::Commands(&filled(batch)))
    }

    /// Runs a script in Lua on the server as [`Guard::eval`](crate::Guard::eval) does, under the hold of the current
    /// thread.
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
    /// Runs commands on this server unless a write with a larger `fence` came to `resource` before.
    ///
    /// For data that is not on the server of its lock: `fence` is the
    /// [fencing token](crate::Guard::fencing_token) of the hold under which the write is made, wherever that comes from. The
    /// largest one is kept under the key `redlatch_fence:{resource}`, which has no end: a stale writer would get in behind
    /// it. Delete it together with the resource. Neither the resource nor the keys get the
    /// [`key_prefix`](crate::Builder::key_prefix) of the client, and in a cluster all keys are in the slot of `resource`.
    /// A write with the same fence as the last one is carried out. All else is as in [`Guard::write`](crate::Guard::write).
    ///
    /// # Errors
    ///
    /// Nothing was written, except where it says so:
    ///
    /// - [`Error::Stale`]: a write with a larger fence came before;
    /// - [`Error::CommandFailed`]: the server refused a command; those before it stand, and the fence was seen;
    /// - [`Error::Unknown`]: the request got no answer that can be read, and is not sent again. It has run, or may run within
    ///   one [`command_timeout`](crate::Builder::command_timeout), if no larger fence comes before. Also if too few replicas
    ///   acknowledged what was written;
    /// - [`Error::CrossSlot`]: a key is in another slot of the cluster than the resource;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: the request was not sent, or the server cannot
    ///   serve it now;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or TLS does not trust the other side;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: the key keeps no fence, or the server answered something unexpected;
    /// - [`Error::InvalidName`], [`Error::Unsupported`]: the resource cannot be named so, the batch is too long, or the
    ///   client is not one of Redis;
    /// - [`Error::Forked`]: the client was made before this process was forked.
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
    ///     Err(Error::Stale { newer, .. }) => println!("a holder with {newer} was here"),
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

/// The reply of a script.
fn only(replies: Vec<Reply>) -> Reply {
    replies.into_iter().next().unwrap_or(Reply::Nil)
}
