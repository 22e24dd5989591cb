//! A request of an operation, and its encoding.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{Claim, Kind, Queueing, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::guarded_work::Work;
use crate::store::CountStep;
use crate::stores::quorum::quarantine::NodeHandle;
use crate::stores::redis::Identity;
use crate::stores::redis::calls::condition::ConditionCall;
use crate::stores::redis::keys::{COUNTER, Key};
use crate::stores::redis::kinds::{Layout, PLACES, pack_commands};
use crate::stores::redis::packed::Packed;
use crate::stores::redis::scripts::{Arg, Script};
use crate::stores::redis::wait_replicas::Replication;

#[derive(Clone, Copy)]
pub(in crate::stores::redis) struct Call<'c> {
    pub(in crate::stores::redis) script: &'c Script,
    pub(in crate::stores::redis) layout: &'static Layout,
    pub(in crate::stores::redis) lock: &'c Arc<str>,
    pub(in crate::stores::redis) visitor: Option<&'c VisitorId>,
    pub(super) successor: Option<&'c VisitorId>,
    /// The thread's hold of the write side, if this request is for the read side of the same lock.
    pub(super) inside: Option<&'c VisitorId>,
    pub(super) queueing: Option<&'c Queueing>,
    pub(in crate::stores::redis) lease: Duration,
    pub(super) known: u32,
    pub(super) wanted: u32,
    /// The smallest fencing token that the server may draw.
    pub(super) floor: u64,
    pub(super) step: CountStep,
    pub(super) condition: Option<ConditionCall<'c>>,
    /// Commands or a script of the user.
    pub(super) work: Option<Work<'c>>,
    pub(in crate::stores::redis) valid_until: Option<BootInstant>,
    /// The fencing token that guards `work` in place of a hold.
    pub(super) fence: Option<u64>,
    /// Whether a `WAIT` follows this request if the client's setting `wait_replicas` is set.
    pub(in crate::stores::redis) replicates: bool,
    pub(in crate::stores::redis) replication: Option<Replication>,
    /// Only in a quorum: the request is sent only if the handle admits the server.
    pub(in crate::stores::redis) handle: Option<&'c NodeHandle>,
    pub(super) repeat: Repeat,
    /// Whether the script publishes no message. Ignored if messages are sharded.
    pub(super) is_quiet: bool,
    pub(in crate::stores::redis) patience: Duration,
    /// Whether subscribers may be connected to other nodes than this server. `false` if messages are sharded.
    pub(in crate::stores::redis) is_in_cluster: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Repeat {
    Never,
    /// The request is sent again if its connection was cut, at most [`REPEATS`](super::REPEATS) times.
    IfCut,
    /// The request is repeated at most once. The first attempt gets half of the time until the deadline. If `unsent` is
    /// false, the request is repeated only if the first attempt was sent and got no reply.
    Halfway {
        unsent: bool,
    },
}

/// The conditions under which a server executes a request. They apply only if `Script::expires` is set.
#[derive(Clone, Copy, Default)]
pub(in crate::stores::redis) struct Limit<'a> {
    /// The server time, in ms, after which the request is refused.
    pub(in crate::stores::redis) expiry: i64,
    /// Only in a quorum: the identity of the server whose vote was checked. Any other server refuses the request.
    pub(in crate::stores::redis) voting: Option<&'a Identity>,
}

impl<'c> Call<'c> {
    pub(in crate::stores::redis) fn new(
        kind: Kind,
        script: impl FnOnce(&'static Layout) -> &'c Script,
        lock: &'c Arc<str>,
        visitor: Option<&'c VisitorId>,
    ) -> Call<'c> {
        let layout = Layout::of(kind);
        Call::in_layout(layout, script(layout), lock, visitor)
    }

    pub(in crate::stores::redis) fn in_layout(
        layout: &'static Layout,
        script: &'c Script,
        lock: &'c Arc<str>,
        visitor: Option<&'c VisitorId>,
    ) -> Call<'c> {
        Call {
            script,
            layout,
            lock,
            visitor,
            successor: None,
            inside: None,
            queueing: None,
            lease: Duration::ZERO,
            known: 0,
            wanted: 0,
            floor: 0,
            step: CountStep::Get,
            condition: None,
            work: None,
            valid_until: None,
            fence: None,
            replicates: false,
            replication: None,
            handle: None,
            repeat: Repeat::Never,
            is_quiet: false,
            patience: Duration::ZERO,
            is_in_cluster: false,
        }
    }

    pub(in crate::stores::redis) fn of(
        claim: &'c Claim,
        script: impl FnOnce(&'static Layout) -> &'c Script,
    ) -> Call<'c> {
        Call {
            lease: claim.lease,
            inside: claim.inside.as_ref(),
            queueing: Some(&claim.queueing),
            ..Call::new(claim.kind, script, &claim.name, Some(&claim.visitor))
        }
    }

    pub(in crate::stores::redis) fn for_shards(self) -> Call<'c> {
        // Guarded work publishes no unlock message.
        if self.work.is_some() {
            return self;
        }
        Call {
            script: self.script.sharded(),
            is_quiet: false,
            is_in_cluster: false,
            ..self
        }
    }

    /// If `step` only queries, the script stores no reply, so the request omits the key of the stored reply. With a key
    /// that does not exist, a Cluster node would refuse the request while the slot moves.
    fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let is_question = self.step.is_question();
        let keys = self.script.keys.iter();
        keys.filter(move |key| !(is_question && matches!(key, Key::OfVisitor(_))))
    }

    fn of_key(&self, key: Key) -> &'c str {
        match (key, self.condition) {
            (Key::OfCondition(_), Some(condition)) => condition.name,
            (Key::BehindWriter(_), _) if self.inside.is_some() => word_of_visitor(self.inside),
            _ => word_of_visitor(self.visitor),
        }
    }

    pub(in crate::stores::redis) fn tokens(&self) -> [&'c str; 2] {
        [self.visitor, self.successor].map(word_of_visitor)
    }

    fn begins(&self) -> bool {
        (self.known, self.wanted) == (0, 1)
    }

    /// How many request arguments [`add`](Call::add) encodes.
    fn parts(&self, arg: Arg) -> usize {
        match arg {
            Arg::Counts if self.begins() => 0,
            Arg::Counts => 2,
            Arg::Work => self.work.map_or(0, Work::count),
            _ => 1,
        }
    }

    fn add(&self, arg: Arg, packed: &mut Packed<'_>) {
        match arg {
            Arg::Visitor => packed.text(&[word_of_visitor(self.visitor)]),
            Arg::Successor => packed.text(&[word_of_visitor(self.successor)]),
            Arg::Wish => packed.text(&[match self.queueing {
                Some(Queueing::Waits { takes_place, .. }) if !takes_place => "never",
                Some(Queueing::Waits { had_place, .. }) if *had_place => "rejoin",
                Some(Queueing::Waits { .. }) => "join",
                Some(Queueing::Tries) => "never",
                Some(Queueing::Barges) | None => "barge",
            }]),
            Arg::Patience => packed.number(millis(self.patience)),
            Arg::HearsAll => packed.number(i64::from(!self.is_in_cluster)),
            Arg::Inside => packed.text(&[word_of_visitor(self.inside)]),
            Arg::Lease => packed.number(millis(self.lease)),
            Arg::Life => packed.number(millis(self.step.life())),
            Arg::Counts if self.begins() => {}
            Arg::Counts => [self.known, self.wanted]
                .map(i64::from)
                .into_iter()
                .for_each(|it| packed.number(it)),
            Arg::Known => packed.number(self.known.into()),
            Arg::Wanted => packed.number(self.wanted.into()),
            Arg::Channel if self.is_quiet => packed.text(&[]),
            Arg::Channel => packed.text(&self.layout.channel.pieces(self.lock, "")),
            Arg::Rights => packed.text(&[self.layout.rights]),
            Arg::Lock => packed.text(&[self.lock]),
            Arg::Floor => packed.number(i64::try_from(self.floor).unwrap_or(i64::MAX)),
            Arg::Counter => packed.text(&COUNTER.pieces(self.lock, "")),
            Arg::Step => packed.text(&[self.condition.map_or(word_of(self.step), |it| it.step)]),
            Arg::Amount => packed.number(match self.condition {
                Some(condition) => condition.amount.into(),
                None => self.step.amount(),
            }),
            Arg::Places => packed.text(&PLACES.pieces(self.lock, self.of_key(PLACES))),
            Arg::Fence => packed.text(&[&self.fence.unwrap_or_default().to_string()]),
            Arg::Check if self.fence.is_some() => packed.text(&["fence"]),
            Arg::Check => packed.text(&[self.layout.rights]),
            Arg::Work => self
                .work
                .iter()
                .for_each(|it| it.each(|part| packed.raw(part))),
        }
    }
}

fn word_of_visitor(visitor: Option<&VisitorId>) -> &str {
    visitor.map_or("", VisitorId::as_str)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn word_of(step: CountStep) -> &'static str {
    match step {
        CountStep::Get => "get",
        CountStep::SetIfMissing(..) => "set",
        CountStep::CountDown => "down",
        CountStep::Add(_) => "add",
        CountStep::AddIfThere(_) => "add_if_there",
        CountStep::Drain => "drain",
        CountStep::Forget => "forget",
        CountStep::Delete => "delete",
        CountStep::Replace(_) => "replace",
        CountStep::Taken => "taken",
        CountStep::Waiters => "waiters",
        CountStep::GiveBack => "give_back",
        CountStep::Lease => "lease",
        CountStep::SetLease(_) => "set_lease",
    }
}

/// Encodes one call of `script` for all of `calls`. The reply repeats `number`.
pub(in crate::stores::redis) fn pack(
    script: &Script,
    calls: &[Call<'_>],
    by_text: bool,
    limit: Limit<'_>,
    number: i64,
    into: &mut Vec<u8>,
) {
    if let [call] = calls
        && pack_commands(call, number, into)
    {
        return;
    }
    let (mut keys, mut args) = (0, 0);
    for call in calls {
        keys += call.keys().count();
        keys += call.work.map_or(0, |work| work.keys().count());
        args += script
            .args
            .iter()
            .map(|arg| call.parts(*arg))
            .sum::<usize>();
    }
    let history = limit.voting.map(|identity| &*identity.history);
    let history = history.filter(|history| script.expires && !history.is_empty());
    let limits = usize::from(script.expires) + usize::from(history.is_some());
    let mut packed = Packed::begin(into, 3 + keys + args + limits + 1);
    match by_text {
        true => {
            packed.text(&["EVAL"]);
            packed.text(&[&script.text]);
        }
        false => packed.encoded(&script.evalsha),
    }
    packed.number(keys as i64);
    for call in calls {
        for key in call.keys() {
            packed.text(&key.pieces(call.lock, call.of_key(*key)));
        }
        // A Cluster node checks the slots of declared keys only, so the keys of the work are declared.
        let data = call.work.into_iter().flat_map(Work::keys);
        data.for_each(|key| packed.text(&[key]));
    }
    for call in calls {
        for arg in script.args {
            call.add(*arg, &mut packed);
        }
    }
    if let Some(history) = history {
        packed.text(&[history]);
    }
    if script.expires {
        packed.number(limit.expiry);
    }
    packed.number(number);
}
