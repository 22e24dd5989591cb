//! The first requests on a connection: who we are, which database, what time it is there.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use redis::{RedisConnectionInfo, Value};
use smallvec::SmallVec;

use super::{Connection, NUMBERS, packed};
use crate::ground::clock::Offset;
use crate::ground::events;
use crate::ground::time;
use crate::stores::redis::kinds::Answers;
use crate::stores::redis::replies::{field_of, item_at, text_of};
use crate::stores::redis::transport::address::Address;
use crate::stores::redis::transport::announced::Proof;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::decoder::Decoder;
use crate::stores::redis::transport::pool::lacks;
use crate::stores::redis::transport::reply_text::brief;
use crate::stores::redis::transport::socket::Socket;
use crate::stores::redis::transport::stream::Stream;
use crate::stores::redis::transport::tls::Session;

impl Connection {
    /// Connects, authenticates and learns the server's time, all by `deadline`.
    pub(crate) fn connect(address: &Address, deadline: Instant) -> Result<Connection, CallError> {
        let began = time::now();
        let target = address.target(deadline.min(began + address.connect_timeout));
        let outcome = target.and_then(|target| {
            let opened = match Connection::open(&target, deadline) {
                // Who gave the credentials may have others by now.
                Err(CallError::Server(text)) if text.contains(REFUSED_GIVEN) => {
                    Connection::open(&target, deadline)
                }
                opened => opened,
            };
            opened.map_err(|fault| address.traced(fault, &target))
        });
        let end = match &outcome {
            Ok(_) => "ok",
            Err(CallError::Server(_)) => "refused",
            Err(CallError::Untrusted(_)) => "untrusted",
            Err(_) => "unreachable",
        };
        address.traffic.connected(&address.node, began, end);
        outcome
    }

    fn open(address: &Address, deadline: Instant) -> Result<Connection, CallError> {
        let deadline = deadline.min(time::now() + address.connect_timeout);
        let login = address.login(deadline)?;
        let socket = socket_to(address, deadline).map_err(CallError::of_connecting)?;
        let session = match &address.peer {
            Some(peer) => Some(Session::open(peer, &socket, deadline)?),
            None => None,
        };
        let stream = Stream { socket, session };
        let mut connection = Connection {
            generation: 0,
            identity: None,
            loaded_scripts: SmallVec::new(),
            stream,
            decoder: Decoder::default(),
            next_number: fastrand::i64(0..NUMBERS),
            write_timeout: None,
            last_used: time::now(),
            ahead: Offset::told(0, address.timeline.now(), address.timeline.now()),
            timeline: address.timeline.clone(),
            is_asking: false,
            is_spent: false,
            was_refused: false,
            replies_due: VecDeque::new(),
            parts: Answers::default(),
            opened: address.traffic.opened(),
        };
        match connection.shake_hands(address, &login, deadline) {
            Err(fault) => Err(match (fault, connection.stream.refusal()) {
                (CallError::NoReply { .. } | CallError::NotSent(_), Some(refusal)) => refusal,
                // It is no Redis, and will not be one in a moment.
                (CallError::NoReply { reason, .. }, None)
                    if reason.io_kind() == Some(io::ErrorKind::Unsupported) =>
                {
                    CallError::Server(reason.into_words())
                }
                // Nothing of a lock was requested yet.
                (CallError::NoReply { reason, .. }, None) => CallError::NotSent(
                    reason.reworded(|reason| format!("while connecting: {reason}")),
                ),
                (fault, _) => fault,
            }),
            Ok(()) => {
                events::connected(&address.node);
                Ok(connection)
            }
        }
    }

    fn shake_hands(
        &mut self,
        address: &Address,
        settings: &RedisConnectionInfo,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let mut commands: Vec<(Vec<u8>, bool)> = Vec::with_capacity(5);
        if let Some(password) = settings.password() {
            let mut auth = vec!["AUTH"];
            auth.extend(settings.username());
            auth.push(password);
            commands.push((packed(&auth), true));
        }
        if settings.db() != 0 {
            commands.push((packed(&["SELECT", &settings.db().to_string()]), true));
        }
        // For whoever looks at CLIENT LIST; not worth failing for.
        let name = packed(&["CLIENT", "SETNAME", &address.connection_name]);
        commands.push((name, false));
        if !address.is_sentinel && !address.is_mode_known.load(Ordering::Relaxed) {
            // Every user may send it. A proxy may not know it.
            commands.push((packed(&["HELLO"]), false));
        }
        // A sentinel has no TIME.
        let last = if address.is_sentinel { "PING" } else { "TIME" };
        commands.push((packed(&[last]), true));
        let request: Vec<u8> = commands
            .iter()
            .flat_map(|it| it.0.iter().copied())
            .collect();
        let sent = self.timeline.now();
        if let Err(fault) = self.send(&request, deadline) {
            // A server that has no room says so, and reads nothing.
            if fault.is_hang_up()
                && let Err(told @ CallError::Server(_)) = self.receive(deadline)
            {
                return Err(told);
            }
            return Err(fault);
        }
        let (mut last, mut has_time) = (Value::Nil, true);
        for (at, (_, is_needed)) in commands.iter().enumerate() {
            let reply = self
                .receive(deadline)
                .map_err(|fault| discreet(fault, settings));
            last = match reply {
                // The first reply is that to AUTH.
                Err(fault @ CallError::Server(_))
                    if at == 0
                        && address.provider.is_some()
                        && !fault.is_passing()
                        && !fault.is_for_want_of_room() =>
                {
                    let text = format!("{} ({REFUSED_GIVEN})", fault.reason());
                    return Err(CallError::Server(text));
                }
                Err(CallError::Server(text))
                    if !is_needed && !text.contains("max number of clients") =>
                {
                    Value::Nil
                }
                Ok(hello) if field_of(&hello, "mode").as_deref() == Some("cluster") => {
                    return Err(CallError::misplaced(CLUSTER_NODE));
                }
                Err(CallError::Server(text))
                    if lacks(&text, "time") && !text.starts_with("NOPERM") =>
                {
                    // A sentinel has none, and a proxy may not know it.
                    match self.call(&packed(&["ROLE"]), deadline) {
                        Ok(role) if brief(&role).contains("sentinel") => {
                            return Err(CallError::misplaced(SENTINEL));
                        }
                        Ok(_) | Err(CallError::Server(_)) => {}
                        Err(fault) => return Err(fault),
                    }
                    // Until an answer of a script tells the time, the first request counts as late, and is sent again.
                    has_time = false;
                    Value::Nil
                }
                Err(CallError::Server(text))
                    if ["SELECT is not allowed", "DB index is out of range"]
                        .iter()
                        .any(|sign| text.contains(sign)) =>
                {
                    let number = settings.db();
                    return Err(CallError::misplaced(format!(
                        "it has no database {number} ({text}); a cluster has only number 0 (Valkey 9 or later: \
                            cluster-databases), a single server as many as `databases` says"
                    )));
                }
                reply => reply?,
            };
        }
        if address.is_sentinel {
            return Ok(());
        }
        match time_of(&last) {
            Some(now) => self.note_time(now, sent),
            None if has_time => {
                let words = format!("while connecting: it answered TIME with {}", brief(&last));
                return Err(CallError::NotSent(words.into()));
            }
            None => {}
        }
        self.prove(address, deadline)?;
        address.is_mode_known.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses another server than the announced one.
    fn prove(&mut self, address: &Address, deadline: Instant) -> Result<(), CallError> {
        let (command, field, id) = match &address.is_proven_by {
            None => return Ok(()),
            Some(Proof::NodeId(id)) => (["CLUSTER", "MYID"], "", id),
            Some(Proof::RunId(id)) => (["INFO", "server"], "run_id:", id),
        };
        let is_it = match self.call(&packed(&command), deadline) {
            Ok(reply) => {
                let text = text_of(&reply);
                !text.contains(field) || text.contains(&**id)
            }
            // Not every user may ask.
            Err(CallError::Server(text)) => text.starts_with("NOPERM") || text.contains("unknown"),
            Err(fault) => return Err(fault),
        };
        let other = || format!("a server other than {id} answers there; correct the map");
        is_it
            .then_some(())
            .ok_or_else(|| CallError::NotSent(other().into()))
    }
}

fn socket_to(address: &Address, deadline: Instant) -> io::Result<Socket> {
    #[cfg(feature = "in-memory")]
    if let Some(world) = &address.world {
        return Socket::in_memory(world);
    }
    Socket::connect(&address.place, deadline)
}

/// Why a node of a cluster is no server by itself. It answers `MOVED` to most requests.
pub(crate) const CLUSTER_NODE: &str = "it is a cluster node, which serves only a part of the names; open the \
    cluster with Builder::cluster (--cluster)";

/// The end of the error where a server refused what a credentials provider gave. The next answer may be another one.
pub(crate) const REFUSED_GIVEN: &str = "given by the credentials provider";
const SENTINEL: &str = "it is a sentinel, which keeps no locks; open the master that it watches with \
    Builder::sentinel (--sentinel MASTER --node URL)";

/// Adds the user whom the server does not let in, and takes the password out of what it says: an error for an unknown command
/// repeats its arguments.
fn discreet(fault: CallError, settings: &RedisConnectionInfo) -> CallError {
    match (fault, settings.password()) {
        (CallError::Server(text), Some(password)) if !password.is_empty() => {
            // They may be cut short, so that the password does not stand there as a whole.
            let said = text.split(", with args").next().unwrap_or_default();
            let user = settings.username().unwrap_or("default");
            let user = user.replace(password, "…");
            let who = said.contains("password");
            let who = who.then(|| format!(" (user {user:?})"));
            CallError::Server(said.replace(password, "…") + &who.unwrap_or_default())
        }
        (fault, _) => fault,
    }
}

/// The ms since 1970 in a reply to TIME.
pub(crate) fn time_of(value: &Value) -> Option<i64> {
    let number = |at| text_of(item_at(value, at)?).parse::<i64>().ok();
    let (seconds, micros) = (number(0)?, number(1)?);
    Some(seconds.saturating_mul(1000).saturating_add(micros / 1000))
}
