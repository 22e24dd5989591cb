use std::sync::Arc;

use super::*;
use crate::engine::counters::{CountSettings, Counters};
use crate::engine::hold::Lease;
use crate::engine::hold::tests::held_of;
use crate::ground::clock::PROCESS;
use crate::ground::loss::LossCause;
use crate::ground::observer::{Event, Observed, Observer};
use crate::ground::sync::Mutex;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Observer for Heard {
    fn event(&self, event: &Event<'_>) {
        self.0.lock().push(match event {
            Event::Ended {
                class, lock, end, ..
            } => format!("{class} {lock} {end}"),
            Event::Lost { loss, .. } => format!("lost by {}", loss.thread),
            Event::LongHold { thread, held, .. } => format!("{thread} for {}", held.as_secs()),
            other => format!("{other:?}"),
        });
    }
}

struct Scene {
    hold: Hold,
    _thread: Arc<()>,
    heard: Heard,
}

fn scene() -> Scene {
    let heard = Heard::default();
    let counters = Arc::new(Counters::new(
        CountSettings {
            observer: Observed::by(Arc::new(heard.clone())),
            long_hold: MINUTE,
            ..CountSettings::default()
        },
        &PROCESS,
    ));
    let class = counters.class_of("orders");
    let client = Arc::clone(&counters);
    let (hold, _thread) = held_of(client, 7, Lease::Watchdog(100 * MINUTE), PROCESS.now());
    Scene {
        hold: Hold {
            class: Some(class),
            ..hold
        },
        _thread,
        heard,
    }
}

impl Scene {
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.0.lock())
    }

    fn unlock(&self) {
        self.hold.release_level(0, PROCESS.read().instant + MINUTE);
    }

    fn has_lasted(&self, held: Duration) {
        self.hold.state.lock().began = Some(PROCESS.now().earlier(held));
    }
}

#[test]
fn the_end_of_a_hold_is_reported_if_a_thread_got_it() {
    let scene = scene();
    assert!(scene.hold.begin());
    scene.unlock();
    assert_eq!(scene.heard(), ["orders orders unlocked"]);
    assert!(!scene.hold.begin());
    let unseen = self::scene();
    unseen.unlock();
    assert!(unseen.heard().is_empty());
}

#[test]
fn a_loss_is_reported_with_its_thread() {
    let scene = scene();
    scene.hold.begin();
    let loss = scene.hold.lose(LossCause::Gone);
    if let Some(loss) = loss {
        scene.hold.count_loss(&loss);
    }
    assert_eq!(scene.heard(), ["orders orders lost", "lost by 7"]);
}

#[test]
fn a_long_hold_is_reported_at_each_doubling() {
    let scene = scene();
    scene.hold.report_if_long(PROCESS.now());
    scene.hold.begin();
    for (lasted, heard) in [
        (MINUTE / 2, None),
        (MINUTE, Some("7 for 60")),
        (MINUTE * 3 / 2, None),
        (MINUTE * 5 / 2, Some("7 for 150")),
        (MINUTE * 9 / 2, None),
    ] {
        scene.has_lasted(lasted);
        scene.hold.report_if_long(PROCESS.now());
        let told = scene.heard();
        assert_eq!(told.first().map(String::as_str), heard, "{lasted:?}");
    }
    scene.unlock();
    scene.heard();
    scene.hold.report_if_long(PROCESS.now());
    assert!(scene.heard().is_empty());
}

#[test]
fn a_span_ends_with_its_hold() {
    let span = || WaitSpan::enter("orders", "orders", 7);
    let is_open = |scene: &Scene| scene.hold.state.lock().span.is_some();
    let scene = scene();
    scene.hold.begin_span(span(), "orders", MINUTE);
    assert!(is_open(&scene));
    scene.unlock();
    assert!(!is_open(&scene));
    scene.hold.begin_span(span(), "orders", MINUTE);
    assert!(!is_open(&scene));
}
