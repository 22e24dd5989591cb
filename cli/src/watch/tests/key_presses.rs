//! What keys change in the state, and which actions they request.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::keys::{Action, press};
use super::super::view::ViewMode;
use super::*;

impl Fixture {
    fn press(&mut self, code: KeyCode) -> Action {
        let now = self.at(9);
        press(&mut self.state, KeyEvent::from(code), now)
    }

    fn type_in(&mut self, text: &str) -> Action {
        let last = text.chars().map(|sign| self.press(KeyCode::Char(sign)));
        last.last().unwrap()
    }

    fn names(&self) -> Vec<&str> {
        let rows = self.state.rows(self.at(9));
        rows.iter().map(|row| &**row.name).collect()
    }

    fn under_cursor(&self) -> &str {
        let rows = self.state.rows(self.at(9));
        rows[self.state.cursor(&rows)].name
    }
}

fn three() -> Fixture {
    let mut watch = Fixture::new();
    let mut second = held("orders:2", 8, 9);
    second.listening = Some(3);
    watch.apply(0, &[second.clone()]);
    let all = [held("orders:1", 7, 29), second, held("stock:1", 9, 19)];
    watch.apply(5, &all);
    watch
}

#[test]
fn keys_sort_and_filter_the_table() {
    let mut watch = three();
    let mut orders = Vec::new();
    for _ in 0..4 {
        orders.push(watch.names().join(" "));
        watch.type_in("s");
    }
    assert_eq!(
        orders,
        [
            "orders:1 orders:2 stock:1",
            "orders:2 orders:1 stock:1",
            "orders:2 stock:1 orders:1",
            "orders:2 orders:1 stock:1",
        ]
    );
    // In the filter, the letters of commands are text.
    watch.type_in("/STOCKq");
    assert_eq!(watch.names(), [""; 0]);
    watch.press(KeyCode::Backspace);
    assert_eq!(watch.names(), ["stock:1"]);
    watch.press(KeyCode::Enter);
    assert!(matches!(watch.state.view.mode, ViewMode::Table));
    assert_eq!(watch.names(), ["stock:1"]);
    watch.press(KeyCode::Esc);
    assert_eq!(watch.names().len(), 3);
    watch.type_in("/thread 8");
    assert_eq!(watch.names(), ["orders:2"], "holders are searched, too");
}

#[test]
fn the_cursor_follows_its_lock() {
    let mut watch = three();
    assert_eq!(watch.under_cursor(), "orders:1");
    watch.type_in("j");
    assert_eq!(watch.under_cursor(), "orders:2");
    let all = [held("a", 1, 9), held("orders:2", 8, 9), held("z", 1, 9)];
    watch.apply(6, &all);
    assert_eq!(watch.under_cursor(), "orders:2");
    watch.apply(7, &[held("a", 1, 9), held("z", 1, 9)]);
    assert_eq!(
        watch.under_cursor(),
        "z",
        "the row is gone, so the position stays"
    );
    watch.press(KeyCode::Home);
    assert_eq!(watch.under_cursor(), "a");
    watch.press(KeyCode::End);
    watch.press(KeyCode::Down);
    assert_eq!(watch.under_cursor(), "z");
    watch.apply(8, &[]);
    for code in [KeyCode::Down, KeyCode::End, KeyCode::Enter] {
        watch.press(code);
    }
    assert!(matches!(watch.type_in("u"), Action::Nothing));
    assert!(
        matches!(watch.state.view.mode, ViewMode::Table),
        "there is no hold to select"
    );
}

#[test]
fn only_y_releases_the_hold_that_was_shown() {
    let mut watch = three();
    assert!(matches!(watch.type_in("u"), Action::Nothing));
    let no = [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Char('n'),
        KeyCode::Char('u'),
    ];
    for code in no {
        watch.state.view.mode = ViewMode::Table;
        watch.type_in("u");
        assert!(matches!(watch.state.view.mode, ViewMode::Ask(_)));
        assert!(matches!(watch.press(code), Action::Nothing), "{code:?}");
        assert!(matches!(watch.state.view.mode, ViewMode::Table));
    }
    watch.type_in("u");
    // Before the user confirms, the lock gets a new holder.
    watch.apply(6, &[held("orders:1", 70, 29)]);
    let Action::EndHold(chosen) = watch.type_in("y") else {
        panic!("no hold was released");
    };
    assert_eq!(&*chosen.name, "orders:1");
    assert_eq!(chosen.holder.visitor, format!("{CLIENT}:7:1"));
}

#[test]
fn keys_quit_suspend_and_pause() {
    let mut watch = three();
    let control = |sign| KeyEvent::new(KeyCode::Char(sign), KeyModifiers::CONTROL);
    let now = watch.at(9);
    assert!(matches!(
        press(&mut watch.state, control('z'), now),
        Action::Suspend
    ));
    assert!(matches!(
        press(&mut watch.state, control('l'), now),
        Action::Redraw
    ));
    watch.type_in("/");
    assert!(matches!(
        press(&mut watch.state, control('c'), now),
        Action::Quit
    ));
    watch.press(KeyCode::Esc);
    assert!(matches!(watch.type_in("p"), Action::Nothing));
    assert!(watch.state.view.is_paused);
    assert!(matches!(watch.type_in("p"), Action::Snapshot));
    watch.press(KeyCode::Enter);
    assert!(matches!(watch.state.view.mode, ViewMode::Inspect(_)));
    assert!(
        matches!(watch.type_in("q"), Action::Nothing),
        "back to the table"
    );
    assert!(matches!(watch.type_in("q"), Action::Quit));
}
