//! Guarded writes: commands that the server runs only if the hold still exists, or if no earlier write had a larger token.

use std::sync::Arc;

use crate::client::Client;
use crate::ground::claim::Kind;
use crate::ground::error::{Error, Result};
use crate::ground::guarded_work::{Batch, Work};
use crate::ground::reply::Reply;
use crate::guard::{Guard, OwnedGuard};
use crate::lock::Lock;
use crate::stores::redis::flaw;

impl Guard {
    /// Runs commands on the server of the lock if this hold still exists. The check and the commands are one atomic step.
    ///
    /// Time passes between [`Guard::is_valid`] and a separate write, but not between the check and the commands. A
    /// holder that has lost its lock, for example during a pause, writes nothing and gets [`Error::Lost`]. Each request
    /// contains the time at which the validity of the hold ends. The server refuses the request after this time.
    ///
    /// `batch` collects the commands. The replies are in the order of the commands. **The commands run together, but not all
    /// or nothing**: Redis rolls nothing back. After [`Error::CommandFailed`] the effects of the commands before the failed
    /// one remain. A batch has at most 4,000 words (command names, keys and arguments) and 1 MiB of replies. If a reply
    /// raises the total above 1 MiB, its command takes effect but counts as failed. No later command runs. In a cluster all
    /// keys must be in the slot of the lock, such as `{orders}:stock` for the lock `{orders}:lock`.
    ///
    /// The call takes at most one [`command_timeout`](crate::Builder::command_timeout).
    ///
    /// # Errors
    ///
    /// Nothing was written, unless the list says otherwise:
    ///
    /// - [`Error::Lost`]: the hold is lost. The error contains the cause, and [`Guard::lost`] reports the loss;
    /// - [`Error::NotHeld`]: this hold was unlocked before;
    /// - [`Error::CommandFailed`]: the server refused a command, such as a write when `maxmemory` is reached. The commands
    ///   before the refused command have run;
    /// - [`Error::Unknown`]: the client received no readable reply, and does not repeat the request. The request has run,
    ///   can still run while this hold lasts, or never runs. The request cannot run after an unlock that returned `Ok`.
    ///   With [`wait_replicas`](crate::Builder::wait_replicas) the error can also mean that too few replicas
    ///   acknowledged the write;
    /// - [`Error::CrossSlot`]: a key is in another slot of the cluster than the lock;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: the request was not sent, or the server
    ///   cannot serve it now;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user has no right to a key, or a TLS certificate is not trusted;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: another program wrote to the key of the lock, or the server sent an
    ///   unexpected reply;
    /// - [`Error::Unsupported`]: the batch is too long, or the lock is a [`Redlock`](crate::Redlock), a
    ///   [`MultiLock`](crate::MultiLock) or in a database. For a database see `Guard::transaction`;
    /// - [`Error::WatchdogDied`], [`Error::Forked`]: the renewal thread has died, or this process is a forked child.
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

    /// Runs a Lua script on the server of the lock if this hold still exists. The check and the script are one atomic step.
    ///
    /// `script` is Lua code as for `EVAL`, without a first line `#!lua`. The script receives `keys` and `args` as `KEYS` and
    /// `ARGV`. Its return value is the reply. The server caches the script by its hash. **Never build the script from
    /// untrusted input**: a text such as `end)()` closes the function around the script. The code after this text runs
    /// before the check. In all else the method behaves like [`Guard::write`].
    ///
    /// # Errors
    ///
    /// Those of [`Guard::write`]. [`Error::CommandFailed`] means that the script did not compile, raised an error or
    /// returned one. The script's writes before the error remain.
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
    /// Those of [`Guard::write`](crate::Guard::write). [`Error::NotHeld`] if the current thread does not hold the lock.
    /// [`Error::InvalidName`] and [`Error::InvalidConfig`] as for [`Lock::unlock`].
    pub fn write(&self, batch: impl FnOnce(&mut Batch)) -> Result<Vec<Reply>> {
        self.work(Work::Commands(&filled(batch)))
    }

    /// Runs a Lua script on the server as [`Guard::eval`](crate::Guard::eval) does, under the hold of the current thread.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::eval`](crate::Guard::eval). [`Error::NotHeld`] if the current thread does not hold the lock.
    /// [`Error::InvalidName`] and [`Error::InvalidConfig`] as for [`Lock::unlock`].
    pub fn eval(&self, script: &str, keys: &[&str], args: &[&[u8]]) -> Result<Reply> {
        self.work(script_of(script, keys, args)).map(only)
    }

    fn work(&self, work: Work<'_>) -> Result<Vec<Reply>> {
        let hold = self.current_hold()?;
        self.raw_lock().write(&hold, work)
    }
}

impl Client {
    /// Runs commands on the server of this client, unless an earlier call for the name `resource` had a larger `fence`.
    ///
    /// Use this method if the data and the lock are on different servers. The argument `fence` is the hold's [fencing
    /// token](crate::Guard::fencing_token). The server stores the largest fence in the key `redlatch_fence:{resource}`. This
    /// key has no TTL: delete it together with the resource. The server also accepts a write whose fence equals the largest
    /// one. The client does not add its [`key_prefix`](crate::Builder::key_prefix) to the resource and the keys. In a
    /// cluster all keys must be in the slot of `resource`. In all else the method behaves like
    /// [`Guard::write`](crate::Guard::write).
    ///
    /// # Errors
    ///
    /// Nothing was written, unless the list says otherwise:
    ///
    /// - [`Error::Stale`]: an earlier write had a larger fence;
    /// - [`Error::CommandFailed`]: the server refused a command. The commands before the refused command have run, and the
    ///   server has stored the fence;
    /// - [`Error::Unknown`]: the client received no readable reply, and does not repeat the request. The request has run, or
    ///   can run until 5 s after its [`command_timeout`](crate::Builder::command_timeout), unless a write with a larger
    ///   fence arrives first. With `wait_replicas` the error can also mean that too few replicas acknowledged the write;
    /// - [`Error::CrossSlot`]: a key is in another slot of the cluster than the resource;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: the request was not sent, or the server
    ///   cannot serve it now;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or a TLS certificate is not trusted;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: the key of the fence has other data, or the server sent an unexpected
    ///   reply;
    /// - [`Error::InvalidName`], [`Error::InvalidConfig`], [`Error::Unsupported`]: the name of the resource is invalid,
    ///   the server is a node of a cluster, the batch is too long, or the client is not for Redis;
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
