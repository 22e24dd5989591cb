//! Compares complete screens with the files in `screens/`.

use std::fs;
use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;

use super::super::draw::draw;
use super::super::keys::press;
use super::*;

fn drawn(watch: &Fixture, second: u64, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let now = watch.at(second);
    terminal
        .draw(|frame| draw(frame, &watch.state, now))
        .unwrap();
    terminal.backend().buffer().clone()
}

/// The second cell of a wide character is empty.
fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let (mut line, mut x) = (String::new(), 0);
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += u16::try_from(Span::raw(symbol).width().max(1)).unwrap();
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[track_caller]
fn assert_screen(name: &str, buffer: &Buffer) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/watch/tests/screens");
    let wanted = fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap_or_default();
    let found = text(buffer);
    assert!(found == wanted, "{name}:\n{found}\nexpected\n{wanted}");
}

fn busy() -> Fixture {
    let mut watch = Fixture::new();
    let first = held("orders:42", 7, 29);
    watch.apply(
        0,
        &[first, held("orders:9", 5, 12), held("orders:77", 3, 28)],
    );
    let mut long = held("orders:42", 7, 28);
    long.listening = Some(5);
    long.holders[0].count = 2;
    let mut theirs = disconnected(held("orders:77", 31, 25));
    theirs.holders[0].by = "Redisson";
    let wide = held("orders:鎖🎉\u{1b}[2J", 8, 9);
    let fixed = held("orders:fixed", 4, 3600);
    let all = [long, theirs, wide, fixed];
    watch.apply(250, &[]);
    watch.apply(252, &all);
    watch
}

#[test]
fn the_layout_fits_the_width() {
    let watch = busy();
    for width in [40, 80, 160] {
        assert_screen(&format!("busy-{width}"), &drawn(&watch, 253, width, 16));
    }
}

#[test]
fn a_once_per_mark_shows_when_the_job_may_run() {
    let mut watch = Fixture::new();
    watch.apply(0, &[held("job:once", 7, 7_200)]);
    watch.apply(1, &[disconnected(held("job:once", 7, 7_199))]);
    watch.apply(2, &[disconnected(held("job:once", 7, 7_198))]);
    let shown = text(&drawn(&watch, 5, 100, 16));
    assert!(shown.contains("may run again in 1h 59m"), "{shown}");
    assert!(!shown.contains("disconnected"), "{shown}");
}

#[test]
fn a_small_screen_shows_what_fits() {
    let watch = busy();
    for (width, height) in [(10, 3), (24, 6)] {
        let name = format!("busy-{width}x{height}");
        assert_screen(&name, &drawn(&watch, 253, width, height));
    }
    // Drawing must not fail for any size.
    for width in 0..30 {
        for height in 0..12 {
            drawn(&watch, 253, width, height);
        }
    }
}

#[test]
fn an_unreachable_server_is_shown_and_its_locks_remain() {
    let mut watch = busy();
    let locks: Vec<_> = watch
        .state
        .locks
        .values()
        .map(|it| it.info.clone())
        .collect();
    watch.apply_partial(255, &[], &[NODE]);
    for width in [40, 80, 160] {
        assert_screen(
            &format!("unreachable-{width}"),
            &drawn(&watch, 262, width, 16),
        );
    }
    watch.apply(263, &locks);
    let back = text(&drawn(&watch, 263, 80, 16));
    assert!(back.contains("replies again, after 8s"), "{back}");
    assert!(
        !back.contains("NO ANSWER") && !back.contains("stale"),
        "{back}"
    );
}

#[test]
fn details_and_the_release_question_are_shown() {
    let mut watch = busy();
    let now = watch.at(253);
    press(&mut watch.state, KeyEvent::from(KeyCode::Enter), now);
    assert_screen("inspect-80", &drawn(&watch, 253, 80, 16));
    press(&mut watch.state, KeyEvent::from(KeyCode::Char('u')), now);
    for width in [40, 80] {
        assert_screen(&format!("ask-{width}"), &drawn(&watch, 253, width, 16));
    }
    watch.apply(254, &[]);
    press(&mut watch.state, KeyEvent::from(KeyCode::Esc), now);
    assert_screen("empty-80", &drawn(&watch, 254, 80, 16));
}

#[test]
fn many_locks_are_shown_in_pages() {
    let mut watch = Fixture::new();
    let one = held("orders:1", 7, 29);
    let many = (0..5000).map(|number| {
        let mut info = one.clone();
        info.name = format!("orders:{number:04}").into();
        info
    });
    let many: Vec<_> = many.collect();
    watch.apply(0, &many);
    let now = watch.at(0);
    press(&mut watch.state, KeyEvent::from(KeyCode::End), now);
    let end = text(&drawn(&watch, 0, 80, 16));
    assert!(end.contains("›orders:4999"), "{end}");
    assert!(end.contains("of 5000"), "{end}");
}

#[test]
fn colours_can_be_switched_off() {
    let mut watch = busy();
    let colours = |buffer: &Buffer| {
        let mut found: Vec<Color> = buffer.content.iter().map(|cell| cell.fg).collect();
        found.retain(|it| *it != Color::Reset);
        found.sort_by_key(|it| format!("{it:?}"));
        found.dedup();
        found
    };
    // One lock is about to expire.
    let plain = drawn(&watch, 260, 80, 16);
    assert_eq!(colours(&plain), []);
    let has_cursor = |cell: &ratatui::buffer::Cell| cell.modifier.contains(Modifier::REVERSED);
    assert!(
        plain.content.iter().any(has_cursor),
        "the cursor is visible without colours"
    );
    watch.state.has_colour = true;
    let colourful = drawn(&watch, 260, 80, 16);
    assert_eq!(colours(&colourful), [Color::Red, Color::Yellow]);
    assert_eq!(text(&colourful), text(&plain));
}
