//! The first requests on a connection: `AUTH`, `SELECT`, `CLIENT SETNAME`, `HELLO`, `TIME`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use redis::{RedisConnectionInfo, Value};
use smallvec::SmallVec;

use super::{Connection, NUMBERS, encode};
use crate::ground::clock::Offset;
use crate::ground::events;
use crate::ground::time;
use crate::stores::redis::kinds::Answers;
use crate::stores::redis::replies::{field_of, item_at, text_of};
use crate::stores::redis::transport::decoder::Decoder;
use crate::stores::redis::transport::socket::Socket;
use crate::stores::redis::transport::stream::Stream;
use crate::stores::redis::transport::tls::Session;
use crate::stores::redis::transport::{Address, CallError, ServerId, brief, lacks};

impl Connection {
    pub(crate) fn connect(address: &Address, deadline: Instant) -> Result<Connection, CallError> {
        let began = time::now();
        let target = address.target(deadline.min(began + address.connect_timeout));
        let outcome = target.and_then(|target| {
            let opened = match Connection::open(&target, deadline) {
                // The password may have changed, so the credentials provider is called once more.
                Err(CallError::Server(text)) if text.contains(REFUSED_CREDENTIALS) => {
                    Connection::open(&target, deadline)
                }
                opened => opened,
            };
            opened.map_err(|fault| address.with_origin(fault, &target))
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
        let open = |peer| Session::open(peer, &socket, deadline);
        let session = address.peer.as_ref().map(open).transpose()?;
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
            is_unusable: false,
            was_refused: false,
            deferred: VecDeque::new(),
            parts: Answers::default(),
            opened: address.traffic.opened(),
        };
        match connection.shake_hands(address, &login, deadline) {
            Err(fault) => Err(match (fault, connection.stream.refusal()) {
                (CallError::NoReply { .. } | CallError::NotSent(_), Some(refusal)) => refusal,
                // The server is not Redis, so a retry is useless.
                (CallError::NoReply { reason, .. }, None)
                    if reason.io_kind() == Some(io::ErrorKind::Unsupported) =>
                {
                    CallError::Server(reason.into_words())
                }
                // Only the handshake was sent, so no lock request can have been executed.
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
            commands.push((encode(&auth), true));
        }
        if settings.db() != 0 {
            commands.push((encode(&["SELECT", &settings.db().to_string()]), true));
        }
        // The connection name is only informative, so an error reply is ignored.
        let name = encode(&["CLIENT", "SETNAME", &address.connection_name]);
        commands.push((name, false));
        if !address.is_sentinel && !address.is_mode_known.load(Ordering::Relaxed) {
            // An error reply is ignored: a proxy may not know HELLO, and a user of Redis 6.2 may lack the right to it.
            commands.push((encode(&["HELLO"]), false));
        }
        let last = if address.is_sentinel { "PING" } else { "TIME" };
        commands.push((encode(&[last]), true));
        let request = commands.iter().flat_map(|it| &it.0);
        let request: Vec<u8> = request.copied().collect();
        let sent = self.timeline.now();
        if let Err(fault) = self.send(&request, deadline) {
            // A server at `maxclients` reads nothing, but its error reply may have arrived.
            if fault.is_hang_up()
                && let Err(told @ CallError::Server(_)) = self.receive(deadline)
            {
                return Err(told);
            }
            return Err(fault);
        }
        let (mut last, mut has_time) = (Value::Nil, true);
        for (at, (_, is_needed)) in commands.iter().enumerate() {
            let reply = self.receive(deadline);
            last = match reply.map_err(|fault| without_password(fault, settings)) {
                // With a provider, the first reply is the reply to AUTH.
                Err(fault @ CallError::Server(_))
                    if at == 0
                        && address.provider.is_some()
                        && !fault.is_passing()
                        && !fault.is_at_limit() =>
                {
                    let text = format!("{} ({REFUSED_CREDENTIALS})", fault.reason());
                    return Err(CallError::Server(text));
                }
                Err(CallError::Server(text))
                    if !is_needed && !text.contains("max number of clients") =>
                {
                    Value::Nil
                }
                Ok(hello) if field_of(&hello, "mode").as_deref() == Some("cluster") => {
                    return Err(CallError::wrong_kind(CLUSTER_NODE));
                }
                Err(CallError::Server(text))
                    if lacks(&text, "time") && !text.starts_with("NOPERM") =>
                {
                    // A server without TIME is a sentinel or a proxy.
                    match self.call(&encode(&["ROLE"]), deadline) {
                        Ok(role) if brief(&role).contains("sentinel") => {
                            return Err(CallError::wrong_kind(SENTINEL));
                        }
                        Ok(_) | Err(CallError::Server(_)) => {}
                        Err(fault) => return Err(fault),
                    }
                    // The client does not know the server's time, so the server refuses the first request as late. The
                    // refusal contains the time, and the client sends the request again.
                    has_time = false;
                    Value::Nil
                }
                Err(CallError::Server(text))
                    if ["SELECT is not allowed", "DB index is out of range"]
                        .iter()
                        .any(|sign| text.contains(sign)) =>
                {
                    let number = settings.db();
                    return Err(CallError::wrong_kind(format!(
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

    /// Fails if the server's identity differs from the announced identity.
    fn prove(&mut self, address: &Address, deadline: Instant) -> Result<(), CallError> {
        let (command, field, id) = match &address.expected_id {
            None => return Ok(()),
            Some(ServerId::NodeId(id)) => (encode(&["CLUSTER", "MYID"]), "", id),
            Some(ServerId::RunId(id)) => (encode(&["INFO", "server"]), "run_id:", id),
        };
        let is_it = match self.call(&command, deadline) {
            Ok(reply) => {
                let text = text_of(&reply);
                !text.contains(field) || text.contains(&**id)
            }
            // If the command is forbidden or unknown, the identity cannot be checked, and the server is accepted.
            Err(CallError::Server(text)) => text.starts_with("NOPERM") || text.contains("unknown"),
            Err(fault) => return Err(fault),
        };
        let other = || format!("a server other than {id} answers there; correct the map").into();
        is_it
            .then_some(())
            .ok_or_else(|| CallError::NotSent(other()))
    }
}

fn socket_to(address: &Address, deadline: Instant) -> io::Result<Socket> {
    #[cfg(feature = "in-memory")]
    if let Some(world) = &address.world {
        return Socket::in_memory(world);
    }
    Socket::connect(&address.place, deadline)
}

pub(crate) const CLUSTER_NODE: &str = "it is a cluster node, which serves only a part of the names; open the \
    cluster with Builder::cluster (--cluster)";

/// Marks a refusal of a provider's credentials. The provider may return other credentials, so a retry may succeed.
pub(crate) const REFUSED_CREDENTIALS: &str = "given by the credentials provider";
const SENTINEL: &str = "it is a sentinel, which keeps no locks; open the master that it watches with \
    Builder::sentinel (--sentinel MASTER --node URL)";

/// An error reply about an unknown command contains the arguments, and so may contain the password.
fn without_password(fault: CallError, settings: &RedisConnectionInfo) -> CallError {
    match (fault, settings.password()) {
        (CallError::Server(text), Some(password)) if !password.is_empty() => {
            // The server may have truncated the password among the arguments, so all arguments are removed.
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

/// Returns the time in a reply to `TIME`, in ms since 1970.
pub(crate) fn time_of(value: &Value) -> Option<i64> {
    let number = |at| text_of(item_at(value, at)?).parse::<i64>().ok();
    let (seconds, micros) = (number(0)?, number(1)?);
    Some(seconds.saturating_mul(1000).saturating_add(micros / 1000))
}
