//! The renewals of a cluster: one call for all nodes, in which none waits for another.
//!
//! The requests to all nodes are written before any answer is read, and the answers are read as they come. Nodes
//! in doubt come last, because to look for them takes time. One call of the script renews the holds of one slot, which is
//! all that a cluster allows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::poll::{self, Readable};
use crate::ground::time;
use crate::store::Renewal;
use crate::stores::redis::errors::may_be_for_one_key;
use crate::stores::redis::keys;
use crate::stores::redis::renewals::cluster_batch::{Batch, Expected, Open, SentBatch};
use crate::stores::redis::renewals::{RenewalBatch, came_too_late};
use crate::stores::redis::replies::{integer_at, plain};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::topology::cluster::{Cluster, Redirection, Shard};
use crate::stores::redis::transport::{CallError, asking, lacks_evalsha, share};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

/// A request that was redirected, or needs the text of the script, is sent again at most this often.
const ROUNDS: u32 = 6;

/// How long the rest of a reply is waited for whose beginning is there.
const REST_OF_A_REPLY: Duration = Duration::from_millis(2);

/// The outcome of reading from a batch.
enum Read {
    /// The next reply may be there as well.
    One,
    NotYet,
    Done,
    Broken(String),
}

/// All claims of one call, and what became of them.
struct Call<'a> {
    cluster: &'a Cluster,
    script: &'a Script,
    claims: &'a [Claim],
    replication: Option<Replication>,
    deadline: Instant,
    outcomes: Vec<Renewal>,
    open: Vec<Open>,
}

impl Cluster {
    pub(in crate::stores::redis) fn renew(
        &self,
        script: &Script,
        claims: &[Claim],
        replication: Option<Replication>,
        deadline: Instant,
    ) -> Vec<Renewal> {
        let not_asked = Renewal::Unknown("there was no time left to ask".to_owned());
        let mut call = Call {
            cluster: self,
            script,
            claims,
            replication,
            deadline,
            outcomes: vec![not_asked; claims.len()],
            open: (0..claims.len()).map(Open::new).collect(),
        };
        for round in 0..ROUNDS {
            if call.open.is_empty() || (round > 0 && time::now() >= deadline) {
                break;
            }
            call.round(round == 0);
        }
        call.outcomes
    }
}

impl Call<'_> {
    fn round(&mut self, is_first: bool) {
        let open = std::mem::take(&mut self.open);
        let batches = self.batches(open, is_first);
        let count = batches.len();
        let mut sent_batches = Vec::with_capacity(count);
        for (index, batch) in batches.into_iter().enumerate() {
            // One share is for reading.
            let deadline = share(self.deadline, count - index + 1);
            match self.send(batch, deadline) {
                Ok(launched) => sent_batches.push(launched),
                Err((batch, fault)) => {
                    batch.shard.suspect();
                    let reason = fault.into_reason().into_words();
                    let indices = batch.parts.iter().flat_map(|part| &part.indices);
                    for index in indices {
                        self.note(*index, Renewal::Unknown(reason.clone()));
                        self.open.push(Open::new(*index));
                    }
                }
            }
        }
        self.receive(sent_batches);
    }

    fn note(&mut self, index: usize, outcome: Renewal) {
        if let Some(place) = self.outcomes.get_mut(index) {
            *place = outcome;
        }
    }

    /// Sorts claims by node and slot. In the first round those of nodes in doubt are left for the next one.
    fn batches(&mut self, open: Vec<Open>, is_first: bool) -> Vec<Batch> {
        let mut batches: HashMap<(*const Shard, bool), Batch> = HashMap::new();
        if !is_first
            && open
                .iter()
                .any(|open| open.asked.is_none() && self.is_doubtful(open))
        {
            // Where it fails, what is known has to do.
            let _ = self.cluster.refresh(share(self.deadline, 2));
        }
        for mut open in open {
            let Some(claim) = self.claims.get(open.index) else {
                continue;
            };
            let slot = keys::slot(&claim.name);
            let is_asking = open.asked.is_some();
            let shard = match open.asked.take() {
                Some(shard) => shard,
                None if is_first && self.is_doubtful(&open) => {
                    self.open.push(open);
                    continue;
                }
                None => match self.cluster.present(slot) {
                    Some(shard) => shard,
                    None => {
                        let reason = "no node of the cluster is known to serve it".to_owned();
                        self.note(open.index, Renewal::Unknown(reason));
                        continue;
                    }
                },
            };
            let batch = batches
                .entry((Arc::as_ptr(&shard), is_asking))
                .or_insert_with(|| Batch {
                    shard,
                    is_asking,
                    needs_text: false,
                    parts: Vec::new(),
                    last: HashMap::new(),
                });
            batch.needs_text |= open.needs_text;
            batch.add(slot, open.index, open.is_single, claim);
        }
        let mut batches: Vec<Batch> = batches.into_values().collect();
        // To connect takes time, so those with a connection come first.
        batches.sort_by_key(|batch| !batch.shard.node.has_renewing());
        batches
    }

    fn is_doubtful(&self, open: &Open) -> bool {
        let claim = self.claims.get(open.index);
        let shard = claim.and_then(|claim| self.cluster.present(keys::slot(&claim.name)));
        shard.is_none_or(|shard| shard.is_doubtful())
    }

    /// Sends all that a batch asks.
    fn send(&self, batch: Batch, deadline: Instant) -> Result<SentBatch, (Batch, CallError)> {
        let mut connection = match batch.shard.node.take_renewing(deadline) {
            Ok(connection) => connection,
            Err(fault) => return Err((batch, fault)),
        };
        let sent = BootInstant::now();
        let not_after = connection.expiry(self.deadline, sent);
        let mut packed = Vec::new();
        let mut expected = VecDeque::with_capacity(batch.parts.len() + 1);
        for (index, part) in batch.parts.iter().enumerate() {
            if batch.is_asking {
                packed.extend(asking());
                expected.push_back(Expected::Nothing);
            }
            // The first call with the text makes the script known to those behind it.
            let by_text = batch.shard.node.pool.uses_text() || (batch.needs_text && index == 0);
            let chunk = RenewalBatch {
                claims: &part.claims,
                not_after,
                number: connection.number(),
            };
            chunk.pack(self.script, by_text, &mut packed);
            expected.push_back(Expected::Part(index, chunk.number));
        }
        if let Some(replication) = self.replication {
            packed.extend(replication.question(self.deadline));
            expected.push_back(Expected::Replicas(replication));
        }
        match connection.send(&packed, deadline) {
            Ok(()) => Ok(SentBatch {
                batch,
                connection,
                sent,
                not_after,
                expected,
                said: Vec::new(),
            }),
            Err(fault) => Err((batch, fault)),
        }
    }

    /// Reads all replies, as they come.
    fn receive(&mut self, mut sent_batches: Vec<SentBatch>) {
        while !sent_batches.is_empty() {
            let ready = self.wait_for(&sent_batches);
            if ready.is_empty() {
                for late in sent_batches {
                    self.give_up(late, "no reply in time");
                }
                return;
            }
            let mut still = Vec::with_capacity(sent_batches.len());
            for (mut one, is_ready) in sent_batches.into_iter().zip(ready) {
                if !is_ready {
                    still.push(one);
                    continue;
                }
                let read = loop {
                    match self.read(&mut one) {
                        Read::One => {}
                        read => break read,
                    }
                };
                match read {
                    Read::Done => self.finish(one),
                    Read::Broken(reason) => self.give_up(one, &reason),
                    Read::One | Read::NotYet => still.push(one),
                }
            }
            sent_batches = still;
        }
    }

    /// Waits until something arrives. Returns where, in order; nothing if the time is over.
    fn wait_for(&self, sent_batches: &[SentBatch]) -> Readable {
        let sources = sent_batches.iter().map(|one| one.connection.source());
        // Without memory to wait with, none comes in time.
        poll::wait(sources, self.deadline)
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Reads the next reply of a batch, if it is there.
    fn read(&mut self, one: &mut SentBatch) -> Read {
        let Some(expected) = one.expected.front() else {
            return Read::Done;
        };
        let deadline = time::now() + REST_OF_A_REPLY;
        let reply = match *expected {
            Expected::Part(_, number) => one.connection.answer(number, deadline),
            Expected::Nothing | Expected::Replicas(_) => one.connection.receive(deadline),
        };
        let reply = match reply {
            Err(CallError::NoReply {
                timed_out: true, ..
            }) => return Read::NotYet,
            Err(CallError::NoReply { reason, .. } | CallError::NotSent(reason)) => {
                return Read::Broken(reason.into_words());
            }
            reply => reply,
        };
        match *expected {
            Expected::Nothing => {}
            Expected::Part(index, _) => self.parse_count_reply(one, index, reply),
            Expected::Replicas(replication) => {
                if let Some(flaw) = ReplicaAck::of(reply, replication).flaw(replication) {
                    one.discount(&flaw);
                }
            }
        }
        one.expected.pop_front();
        Read::One
    }

    /// Takes the reply for one part.
    fn parse_count_reply(
        &mut self,
        one: &mut SentBatch,
        index: usize,
        reply: Result<Value, CallError>,
    ) {
        let Some(part) = one.batch.parts.get(index) else {
            return;
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(fault) => {
                let redirection = Redirection::of(&fault);
                let shard = &one.batch.shard;
                let text = match fault {
                    CallError::Server(text) => text,
                    fault => fault.into_reason().into_words(),
                };
                let is_off = lacks_evalsha(&text);
                if is_off {
                    shard.node.pool.note_evalsha_is_off();
                }
                let needs_text = text.starts_with("NOSCRIPT");
                let again = redirection
                    .as_ref()
                    .map(|it| (it.is_ask, self.cluster.follow(it, shard)));
                // Some are at another node, or what is refused is one of them.
                let is_split = part.claims.len() > 1
                    && again.is_none()
                    && !is_off
                    && !needs_text
                    && (text.starts_with("TRYAGAIN") || may_be_for_one_key(&text));
                let asked = match &again {
                    Some((true, target)) => Some(target),
                    // A slot that is asked for is asked for there again.
                    _ if one.batch.is_asking && again.is_none() => Some(shard),
                    _ => None,
                };
                for index in &part.indices {
                    self.note(*index, Renewal::Unknown(plain(&text)));
                    if again.is_some() || is_off || needs_text || is_split {
                        self.open.push(Open {
                            index: *index,
                            asked: asked.filter(|_| !is_split).cloned(),
                            needs_text,
                            is_single: is_split || part.claims.len() == 1,
                        });
                    }
                }
                return;
            }
        };
        if let Some(now) = integer_at(&reply, 0) {
            one.connection.note_time(now, one.sent);
        }
        if came_too_late(&reply) {
            // The answer has put our idea of its clock right.
            let asked = one.batch.is_asking.then_some(&one.batch.shard);
            self.open.extend(part.indices.iter().map(|index| Open {
                index: *index,
                asked: asked.cloned(),
                needs_text: false,
                is_single: part.claims.len() == 1,
            }));
        }
        let mut outcomes = Vec::with_capacity(part.claims.len());
        let chunk = RenewalBatch {
            claims: &part.claims,
            not_after: one.not_after,
            number: 0,
        };
        chunk.read(&reply, &mut outcomes);
        one.said.extend(part.indices.iter().copied().zip(outcomes));
    }

    fn finish(&mut self, one: SentBatch) {
        for (index, outcome) in one.said {
            self.note(index, outcome);
        }
        one.batch.shard.node.put_renewing(one.connection);
    }

    /// Gives up a batch: claims without a reply have no outcome, and the connection is of no use any more.
    fn give_up(&mut self, mut one: SentBatch, reason: &str) {
        one.batch.shard.suspect();
        for expected in &one.expected {
            match expected {
                Expected::Nothing => {}
                Expected::Part(index, _) => {
                    let part = one.batch.parts.get(*index);
                    for index in part.iter().flat_map(|part| &part.indices) {
                        self.note(*index, Renewal::Unknown(reason.to_owned()));
                    }
                }
                Expected::Replicas(_) => {
                    for (_, outcome) in &mut one.said {
                        if *outcome == Renewal::Renewed {
                            *outcome = Renewal::Unknown(reason.to_owned());
                        }
                    }
                }
            }
        }
        for (index, outcome) in one.said {
            self.note(index, outcome);
        }
    }
}
