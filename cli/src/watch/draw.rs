//! Draws the screen.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Padding, Paragraph};

use super::columns::{Columns, truncated, wrapped};
use super::event::{brief, time_of_day};
use super::paint::Paint;
use super::state::State;
use super::view::{Selection, ViewMode};
use crate::escape::escape;
use crate::inspect::lines;
use crate::output::holder;

/// The maximum number of lines for events.
const EVENTS: u16 = 8;

const NOTICE_TIME: Duration = Duration::from_secs(5);

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: Instant) {
    let area = frame.area();
    let paint = Paint::new(state.has_colour);
    let rows = state.rows(now);
    let cursor = state.cursor(&rows);
    // On a low screen, the events are omitted first, then the titles, then the keys, then the header.
    let events = match area.height {
        0..=7 => 0,
        height => (height / 4).clamp(1, EVENTS),
    };
    let ruled = if events > 0 { events + 1 } else { 0 };
    let footer = u16::from(area.height >= 3);
    let header = u16::from(area.height >= 2);
    let titles = u16::from(area.height >= 4);
    let body = area.height - header - titles - ruled - footer;
    let mut at = area.y;
    let mut put = |line: Line<'_>, height: u16| {
        if height > 0 {
            frame.render_widget(
                line,
                Rect {
                    y: at,
                    height: 1,
                    ..area
                },
            );
            at += 1;
        }
    };
    put(head(state, paint, area.width, now), header);
    let page = usize::from(body.max(1));
    let first = cursor / page * page;
    let shown = rows
        .get(first..(first + page).min(rows.len()))
        .unwrap_or_default();
    let columns = Columns::of(state, shown, area.width, now);
    put(columns.titles(state.view.sort), titles);
    for index in 0..usize::from(body) {
        let line = match shown.get(index) {
            Some(row) => columns.line(row, paint, first + index == cursor),
            None if index == 0 => Line::styled(nothing(state), Paint::dim()),
            None => Line::default(),
        };
        put(line, 1);
    }
    if events > 0 {
        put(rule(state, (first, shown.len(), rows.len()), area.width), 1);
        let newest = state.events.iter().rev().take(usize::from(events));
        let newest: Vec<_> = newest.collect();
        // Each event begins with its time, which takes this space.
        let space = usize::from(area.width).saturating_sub(10);
        for index in 0..usize::from(events) {
            let line = newest.get(index).map(|event| {
                let style = if event.is_bad() {
                    paint.of(Color::Red)
                } else {
                    Style::new()
                };
                let time = Span::styled(format!(" {} ", time_of_day(event.clock)), Paint::dim());
                Line::from(vec![
                    time,
                    Span::styled(truncated(&event.words(), space), style),
                ])
            });
            put(line.unwrap_or_default(), 1);
        }
    }
    put(foot(state, paint, area.width, now), footer);
    popup(frame, state, now);
}

fn nothing(state: &State) -> String {
    match state.view.filter.is_empty() {
        true => " no locks are held".to_owned(),
        false => format!(" no lock matches {}", escape(&state.view.filter)),
    }
}

/// The header: the servers, the counts and problems.
fn head(state: &State, paint: Paint, width: u16, now: Instant) -> Line<'static> {
    let number = |number: usize, one: &str, more: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {more}"),
    };
    let mut right = vec![Span::styled(
        number(state.locks.len(), "lock", "locks"),
        Paint::bold(),
    )];
    let waited = state.contended_locks();
    let style = if waited > 0 {
        paint.of(Color::Yellow)
    } else {
        Style::new()
    };
    right.push(Span::styled(format!("{waited} contended"), style));
    let unreachable = state
        .unreachable
        .iter()
        .map(|(node, since)| (since, node))
        .min();
    match unreachable {
        Some((since, node)) => {
            let which = match state.unreachable.len() {
                1 if *node == state.title => String::new(),
                1 => format!(" from {}", escape(node)),
                more => format!(" from {more} servers"),
            };
            let lasts = brief(now.saturating_duration_since(*since));
            let style = paint.of(Color::Red).add_modifier(Modifier::BOLD);
            right.push(Span::styled(format!("NO ANSWER{which} for {lasts}"), style));
        }
        None => {
            let time = state.round_trip.map(round_trip);
            right.extend(time.map(|time| Span::raw(format!("rtt {time}"))));
        }
    }
    if state.view.is_paused {
        right.push(Span::styled(
            "PAUSED",
            paint.of(Color::Yellow).add_modifier(Modifier::BOLD),
        ));
    }
    let beginning = match &*state.beginning {
        "" => "all locks".to_owned(),
        beginning => format!("{}*", escape(beginning)),
    };
    let left = [
        Span::styled("redlatch watch", Paint::bold()),
        Span::raw(beginning.clone()),
        Span::raw(escape(&state.title)),
    ];
    let mut parts: Vec<Span<'_>> = left.into_iter().chain(right).collect();
    let wide = |parts: &[Span<'_>]| parts.iter().map(|it| it.width() + 2).sum::<usize>();
    // Problems and counts matter more than the server's name.
    for dropped in [
        "redlatch watch",
        &*escape(&state.title),
        &*beginning,
        "0 contended",
    ] {
        if wide(&parts) > usize::from(width) {
            parts.retain(|it| it.content != dropped);
        }
    }
    while wide(&parts) > usize::from(width) && parts.len() > 1 {
        parts.remove(0);
    }
    let mut line = Line::default();
    for (index, part) in parts.into_iter().enumerate() {
        line.push_span(Span::raw(if index == 0 { " " } else { "  " }));
        line.push_span(part);
    }
    line
}

fn round_trip(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    match millis {
        0.0..10.0 => format!("{millis:.1} ms"),
        _ => format!("{millis:.0} ms"),
    }
}

/// Draws the line between locks and events.
fn rule(state: &State, (first, shown, all): (usize, usize, usize), width: u16) -> Line<'static> {
    let which = match shown < all {
        true => format!("─ {} to {} of {all} ", first + 1, first + shown),
        false => String::new(),
    };
    let interval = match state.interval.subsec_millis() {
        0 => brief(state.interval),
        _ => format!("{} ms", state.interval.as_millis()),
    };
    let text = format!("{which}─ events, UTC ─ holds shorter than {interval} are not seen ");
    let mut text = truncated(&text, usize::from(width));
    let rest = usize::from(width).saturating_sub(Span::raw(&*text).width());
    text.push_str(&"─".repeat(rest));
    Line::styled(text, Paint::dim())
}

/// The footer: the keys and their actions, or the last notice.
fn foot(state: &State, paint: Paint, width: u16, now: Instant) -> Line<'static> {
    let view = &state.view;
    if let ViewMode::Filter = view.mode {
        let typed = format!(" filter: {}▏", escape(&view.filter));
        let keys = Span::styled("  enter keep  esc clear", Paint::dim());
        return Line::from(vec![Span::styled(typed, Paint::bold()), keys]);
    }
    let text = view.notice.as_ref();
    if let Some((text, _)) = text.filter(|(_, at)| now.saturating_duration_since(*at) < NOTICE_TIME)
    {
        return Line::styled(format!(" {}", escape(text)), paint.of(Color::Yellow));
    }
    let filter = match view.filter.is_empty() {
        true => "filter".to_owned(),
        false => format!("filter: {}", escape(&view.filter)),
    };
    let sort = format!("sort: {}", view.sort.word());
    let pause = if view.is_paused { "go on" } else { "pause" };
    let keys = [
        ("q", "quit"),
        ("/", &*filter),
        ("s", &*sort),
        ("enter", "inspect"),
        ("u", "unlock"),
        ("p", pause),
    ];
    let mut line = Line::default();
    for (key, does) in keys {
        let part = format!(" {} ", truncated(does, 24));
        if line.width() + key.len() + part.len() + 1 > usize::from(width) {
            break;
        }
        line.push_span(Span::styled(format!(" {key}"), Paint::bold()));
        line.push_span(Span::styled(part, Paint::dim()));
    }
    line
}

fn popup(frame: &mut Frame<'_>, state: &State, now: Instant) {
    let (keys, text) = match &state.view.mode {
        ViewMode::Table | ViewMode::Filter => return,
        ViewMode::Inspect(chosen) => (" u unlock  esc back ", details(chosen, state, now)),
        ViewMode::Ask(chosen) => (" y release  other keys: cancel ", question(chosen)),
    };
    // The width of a border and a space on both sides.
    const AROUND: u16 = 4;
    let area = frame.area();
    let texts = text.iter().map(String::as_str);
    let widest = texts
        .chain([keys])
        .map(|line| Span::raw(line).width())
        .max();
    let widest = u16::try_from(widest.unwrap_or_default()).unwrap_or(u16::MAX);
    let width = widest.saturating_add(AROUND).min(area.width);
    let inner = usize::from(width.saturating_sub(AROUND).max(1));
    let text: Vec<Line<'_>> = text
        .iter()
        .flat_map(|line| wrapped(line, inner))
        .map(Line::raw)
        .collect();
    let height = u16::try_from(text.len()).unwrap_or(u16::MAX);
    let height = height.saturating_add(2).min(area.height);
    let backend = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered()
        .title_bottom(Line::styled(keys, Paint::bold()))
        .padding(Padding::horizontal(1));
    frame.render_widget(Clear, backend);
    frame.render_widget(Paragraph::new(text).block(block), backend);
}

fn details(chosen: &Selection, state: &State, now: Instant) -> Vec<String> {
    let Some(lock) = state.locks.get(&chosen.name) else {
        return vec![escape(&chosen.name), "  no longer held".to_owned()];
    };
    let mut info = lock.info.clone();
    info.expires = lock.left(now);
    info.holders = lock.holds.iter().map(|it| it.holder.clone()).collect();
    let mut text = lines(&chosen.name, &info);
    let since = lock.holds.iter().map(|it| it.since).min();
    let held = lock
        .seen
        .saturating_duration_since(since.unwrap_or(lock.seen));
    text.push(format!("  {:<10} ≥ {}", "held", brief(held)));
    text
}

fn question(chosen: &Selection) -> Vec<String> {
    vec![
        format!("Release the hold of {}", escape(&chosen.name)),
        format!("by {}?", holder(&chosen.holder)),
        format!("visitor {}", escape(&chosen.holder.visitor)),
        "The holder may still be working.".to_owned(),
    ]
}
