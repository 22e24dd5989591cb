//! The spans of waits and holds, which link holder and waiter.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::thread;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, with_default};
use tracing::{Event, Metadata, Subscriber};

use super::{eventually, noted, open};
use crate::laws::until_queued;
use crate::support::{RedisServer, ms};

/// Records all spans.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    spans: Vec<Span>,
    /// The entered spans by thread, the inner one last.
    entered: HashMap<thread::ThreadId, Vec<usize>>,
    events: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Span {
    name: &'static str,
    fields: HashMap<&'static str, String>,
    parent: Option<usize>,
    follows: Option<usize>,
    handles: usize,
}

/// The number of a span, from its id.
fn place(id: &Id) -> usize {
    usize::try_from(id.into_u64()).unwrap() - 1
}

struct Fields<'a>(&'a mut HashMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Spans {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn new_span(&self, made: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        let mut span = Span {
            name: made.metadata().name(),
            handles: 1,
            ..Span::default()
        };
        made.record(&mut Fields(&mut span.fields));
        let entered = seen.entered.get(&thread::current().id());
        span.parent = match made.is_contextual() {
            true => entered.and_then(|entered| entered.last().copied()),
            false => made.parent().map(place),
        };
        seen.spans.push(span);
        Id::from_u64(seen.spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut seen = self.0.lock().unwrap();
        values.record(&mut Fields(&mut seen.spans[place(id)].fields));
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.0.lock().unwrap().spans[place(id)].follows = Some(place(follows));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = HashMap::new();
        event.record(&mut Fields(&mut fields));
        let message = fields.remove("message").unwrap_or_default();
        self.0.lock().unwrap().events.push(message);
    }

    fn enter(&self, id: &Id) {
        let mut seen = self.0.lock().unwrap();
        let entered = seen.entered.entry(thread::current().id());
        entered.or_default().push(place(id));
    }

    fn exit(&self, _: &Id) {
        let mut seen = self.0.lock().unwrap();
        let entered = seen.entered.get_mut(&thread::current().id());
        entered.unwrap().pop();
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.0.lock().unwrap().spans[place(id)].handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut seen = self.0.lock().unwrap();
        let span = &mut seen.spans[place(&id)];
        span.handles -= 1;
        span.handles == 0
    }
}

impl Spans {
    /// The only span of this name with this value.
    fn one(&self, name: &str, (field, value): (&str, &str)) -> (usize, Span) {
        self.only(|span| span.name == name && span.text(field) == Some(value))
    }

    fn only(&self, is_it: impl Fn(&Span) -> bool) -> (usize, Span) {
        let seen = self.0.lock().unwrap();
        let found = seen.spans.iter().enumerate();
        let found: Vec<_> = found.filter(|(_, span)| is_it(span)).collect();
        match found[..] {
            [(at, span)] => (at, span.clone()),
            _ => panic!("one of {:#?}", seen.spans),
        }
    }
}

impl Span {
    fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    fn number(&self, field: &str) -> u64 {
        self.text(field).unwrap().parse().unwrap()
    }
}

#[test]
fn the_spans_of_a_waiter_and_a_holder_name_each_other() {
    let server = RedisServer::start();
    let (mine, theirs) = (open(&server), open(&server));
    let (here, there) = (Spans::default(), Spans::default());
    let waited = ms(30);
    let first = with_default(here.clone(), || mine.lock("orders:1").guard().unwrap());
    let second = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            with_default(there.clone(), || {
                let _request = tracing::info_span!("request").entered();
                let guard = theirs.lock("orders:1").guard().unwrap();
                let visitor = guard.visitor().to_string();
                guard.unlock().unwrap();
                visitor
            })
        });
        until_queued(&theirs.lock("orders:1"), 1);
        thread::sleep(waited);
        first.unlock().unwrap();
        waiter.join().unwrap()
    });

    // Each process alone, linked by the ids that it knows of the other one.
    let (at, wait) = there.one("wait", ("outcome", "acquired"));
    let (_, held) = here.one("hold", ("visitor", wait.text("holder").unwrap()));
    assert_eq!(held.text("end"), Some("unlocked"));
    assert_eq!(held.handles, 0, "it is closed");
    assert!(held.number("waited_ms") < 20_000, "{held:?}");
    for span in [&wait, &held] {
        assert_eq!(span.text("lock"), Some("orders:1"));
        assert_eq!(span.text("class"), Some("orders"));
    }
    assert_eq!(wait.text("visitor"), Some(&*second));
    assert!(wait.number("attempts") >= 2, "{wait:?}");
    assert!(wait.number("waited_ms") >= 30, "{wait:?}");
    let (_, hold) = there.one("hold", ("visitor", &second));
    assert_eq!(hold.follows, Some(at));
    let (request, _) = there.only(|span| span.name == "request");
    assert_eq!((wait.parent, hold.parent), (Some(request), Some(request)));
    assert_eq!(hold.number("waited_ms"), wait.number("waited_ms"));
    assert_eq!((wait.handles, hold.handles), (0, 0), "both are closed");
}

#[test]
fn the_span_of_a_wait_names_the_holder_that_refused_it_first() {
    let server = RedisServer::start();
    let (builder, notes) = noted();
    let (mine, theirs) = (open(&server), builder.open(&server.url()).unwrap());
    let spans = Spans::default();
    let first = mine.lock("orders:1").guard().unwrap();
    let wake = || server.cmd(&["PUBLISH", "redisson_lock__channel:{orders:1}", "0"]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            with_default(spans.clone(), || {
                theirs.lock("orders:1").run(|_| ()).unwrap();
            });
        });
        until_queued(&theirs.lock("orders:1"), 1);
        // In one step, because the waiter may send a query at any moment.
        let other = "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'another:1', 1) \
                     return redis.call('PEXPIRE', KEYS[1], 60000)";
        assert_eq!(server.int(&["EVAL", other, "1", "orders:1"]), 1);
        let refused = || notes.count("acquire refused");
        let before = refused();
        eventually("the other one refuses it", || {
            wake();
            thread::sleep(ms(10));
            refused() > before + 1
        });
        server.cmd(&["DEL", "orders:1"]);
        wake();
        waiter.join().unwrap();
    });
    let (_, wait) = spans.one("wait", ("outcome", "acquired"));
    assert_eq!(wait.text("holder"), Some(first.visitor().as_str()));
    assert!(first.unlock().is_err());
}

#[test]
fn spans_record_refusals_hand_offs_and_losses() {
    let server = RedisServer::start();
    let (client, other) = (open(&server), open(&server));
    let spans = Spans::default();
    let lock = client.fenced_lock("orders:1");
    let guard = lock.guard().unwrap();
    with_default(spans.clone(), || {
        assert!(!other.fenced_lock("orders:1").try_lock().unwrap());
    });
    let (_, refused) = spans.one("wait", ("outcome", "refused"));
    assert_eq!(refused.text("holder"), Some(guard.visitor().as_str()));
    assert_eq!(
        (refused.number("attempts"), refused.text("visitor")),
        (1, None)
    );

    // The thread that hands over creates the hold; its span belongs to the waiting thread.
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            with_default(spans.clone(), || {
                let guard = lock.guard().unwrap();
                let fence = guard.fencing_token().unwrap();
                assert!(other.fenced_lock("orders:1").force_unlock().unwrap());
                assert!(guard.unlock().unwrap_err().is_lost());
                fence
            })
        });
        until_queued(&lock, 1);
        guard.unlock().unwrap();
        let fence = waiter.join().unwrap().to_string();
        let (_, hold) = spans.one("hold", ("fence", &fence));
        assert!(hold.follows.is_some());
        // The unlock came before the loss was found.
        assert_eq!(hold.text("end"), Some("unlocked"));
    });

    with_default(spans.clone(), || {
        lock.lock().unwrap();
        lock.lock().unwrap();
        let visitor = lock.describe().unwrap().holders[0].visitor.clone();
        server.cmd(&["DEL", "orders:1"]);
        // The unlock of the inner level finds the loss.
        assert!(lock.unlock().unwrap_err().is_lost());
        let (_, hold) = spans.one("hold", ("visitor", &visitor));
        assert_eq!((hold.text("end"), hold.handles), (Some("lost"), 0));
        assert!(lock.unlock().unwrap_err().is_lost());
    });
}
