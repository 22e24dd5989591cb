//! The table's columns, which depend on the width of the screen.

use std::time::{Duration, Instant};

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::event::brief;
use super::paint::Paint;
use super::rows::Row;
use super::state::State;
use super::view::Sort;
use crate::escape::escape;
use crate::output::{holder, mark};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Kind,
    Holder,
    Count,
    Held,
    /// The column contains a bar of this many cells.
    Expires(usize),
    Listen,
    Nodes,
    Note,
}

use Column::{Count, Expires, Held, Holder, Kind, Listen, Name, Nodes, Note};

/// The columns for screens of at least this width.
const LAYOUTS: [(u16, &[Column]); 5] = [
    (
        120,
        &[
            Name,
            Kind,
            Holder,
            Count,
            Held,
            Expires(20),
            Listen,
            Nodes,
            Note,
        ],
    ),
    (64, &[Name, Holder, Held, Expires(10), Listen, Note]),
    (28, &[Name, Holder, Expires(0)]),
    (18, &[Name, Expires(0)]),
    (0, &[Name]),
];

/// The width of a duration such as `23h 59m`.
const TIME: usize = 7;

pub(super) struct Columns {
    columns: Vec<(Column, usize)>,
    width: usize,
    now: Instant,
    /// The time of the last snapshot. A lock that this snapshot lacks is stale.
    last_snapshot: Option<Instant>,
}

impl Columns {
    pub(super) fn of(state: &State, rows: &[Row<'_>], width: u16, now: Instant) -> Columns {
        let layout = LAYOUTS.iter().find(|(least, _)| *least <= width);
        let columns = layout.map_or(&[][..], |(_, columns)| columns);
        let mut all = Columns {
            columns: Vec::new(),
            width: width.into(),
            now,
            last_snapshot: state.last_snapshot,
        };
        for column in columns {
            let cells = rows.iter().map(|row| all.cell(*column, row, width));
            let widest = cells.map(|cell| Span::raw(cell).width()).max();
            let widest = widest.unwrap_or_default();
            let is_empty = matches!(column, Nodes | Note) && widest == 0;
            if !is_empty {
                let least = column.title().len() + usize::from(column.sort().is_some());
                all.columns.push((*column, widest.max(least)));
            }
        }
        all.fit();
        all
    }

    /// Shortens the name and the holder until the table fits the screen.
    fn fit(&mut self) {
        let used = |all: &[(Column, usize)]| all.iter().map(|(_, width)| width + 2).sum::<usize>();
        let excess = used(&self.columns).saturating_sub(1 + self.width);
        let width_of = |column| {
            let found = self.columns.iter().find(|(it, _)| *it == column);
            found.map_or(0, |(_, width)| *width)
        };
        let (name, of) = (width_of(Name), width_of(Holder));
        let space = (name + of).saturating_sub(excess);
        // Each column gets half of the space, unless one needs less.
        let holder_width = of.min((space / 2).max(space.saturating_sub(name)));
        for (column, width) in &mut self.columns {
            match column {
                Name => *width = space - holder_width,
                Holder => *width = holder_width,
                _ => {}
            }
        }
    }

    pub(super) fn titles(&self, sort: Sort) -> Line<'static> {
        let title = |column: Column| match column.sort() {
            Some(by) if by == sort => format!("{}▾", column.title()),
            _ => column.title().to_owned(),
        };
        let mut line = Line::raw(" ");
        for (column, width) in &self.columns {
            line.push_span(Span::raw(padded(&title(*column), *width)));
        }
        line.style(Paint::bold())
    }

    pub(super) fn line(&self, row: &Row<'_>, paint: Paint, has_cursor: bool) -> Line<'static> {
        let width = u16::try_from(self.width).unwrap_or(u16::MAX);
        let mut line = Line::raw(if has_cursor { "›" } else { " " });
        for (column, cells) in &self.columns {
            let text = padded(&self.cell(*column, row, width), *cells);
            line.push_span(Span::styled(text, self.style(*column, row, paint)));
        }
        if self.is_stale(row) {
            line = line.style(Paint::dim());
        }
        match has_cursor {
            true => line.patch_style(Style::new().add_modifier(Modifier::REVERSED)),
            false => line,
        }
    }

    /// Whether the last snapshot lacks this lock because a server did not reply.
    fn is_stale(&self, row: &Row<'_>) -> bool {
        self.last_snapshot.is_some_and(|at| row.lock.seen < at)
    }

    fn cell(&self, column: Column, row: &Row<'_>, width: u16) -> String {
        let info = &row.lock.info;
        match column {
            Name => escape(row.name),
            Kind => info.kind.to_string(),
            Holder if row.is_mark() => mark(row.lock.left(self.now)),
            Holder => {
                let mut of = row.hold.holder.clone();
                if width < 64 {
                    of.thread = None;
                }
                holder(&of)
            }
            Count => row.hold.holder.count.to_string(),
            Held => {
                let seen = row.lock.seen.saturating_duration_since(row.hold.since);
                format!("≥ {}", brief(seen))
            }
            Expires(bar) => match row.lock.left(self.now) {
                Some(left) => {
                    let time = brief(left);
                    match bar {
                        0 => time,
                        _ => format!("{} {time:>TIME$}", bar_text(left, row.hold.full, bar)),
                    }
                }
                None => "never".to_owned(),
            },
            Listen => info
                .listening
                .map_or("-".to_owned(), |number| number.to_string()),
            Nodes => info
                .nodes
                .map_or(String::new(), |(held, of)| format!("{held}/{of}")),
            Note if self.is_stale(row) => "stale".to_owned(),
            Note if row.hold.is_disconnected() && !row.is_mark() => "disconnected".to_owned(),
            Note => String::new(),
        }
    }

    /// Highlights what may need action.
    fn style(&self, column: Column, row: &Row<'_>, paint: Paint) -> Style {
        match column {
            Expires(_) if row.is_mark() => Style::new(),
            Expires(_) => {
                let full = row.hold.full;
                match row.lock.left(self.now) {
                    Some(left) if left < full / 6 => paint.of(Color::Red),
                    Some(left) if left < full / 2 => paint.of(Color::Yellow),
                    _ => Style::new(),
                }
            }
            Listen if row.lock.info.listening.unwrap_or_default() > 0 => paint.of(Color::Yellow),
            Nodes if is_partly_held(row) => paint.of(Color::Yellow),
            Note => paint.of(Color::Red),
            _ => Style::new(),
        }
    }
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Name => "NAME",
            Kind => "KIND",
            Holder => "HOLDER",
            Count => "COUNT",
            Held => "HELD",
            Expires(_) => "EXPIRES",
            Listen => "LISTEN",
            Nodes => "NODES",
            Note => "",
        }
    }

    fn sort(self) -> Option<Sort> {
        match self {
            Name => Some(Sort::Name),
            Held => Some(Sort::Held),
            Expires(_) => Some(Sort::Expires),
            Listen => Some(Sort::Listening),
            _ => None,
        }
    }
}

fn is_partly_held(row: &Row<'_>) -> bool {
    row.lock.info.nodes.is_some_and(|(held, of)| held < of)
}

fn bar_text(left: Duration, full: Duration, cells: usize) -> String {
    let part = match full.is_zero() {
        true => 0.0,
        false => left.as_secs_f64() / full.as_secs_f64(),
    };
    let filled = (1..=cells)
        .filter(|cell| *cell as f64 <= (part * cells as f64).round())
        .count();
    "█".repeat(filled) + &"░".repeat(cells - filled)
}

fn padded(text: &str, width: usize) -> String {
    let mut text = truncated(text, width);
    let rest = width.saturating_sub(Span::raw(&*text).width());
    text.push_str(&" ".repeat(rest + 2));
    text
}

pub(super) fn truncated(text: &str, width: usize) -> String {
    let span = Span::raw(text);
    if span.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for cell in span.styled_graphemes(Style::new()) {
        used += Span::raw(cell.symbol).width();
        if used >= width {
            break;
        }
        kept.push_str(cell.symbol);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for cell in Span::raw(text).styled_graphemes(Style::new()) {
        let cells = Span::raw(cell.symbol).width();
        if used + cells > width && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        line.push_str(cell.symbol);
        used += cells;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_and_wrapped_by_cells() {
        assert_eq!(truncated("orders", 6), "orders");
        assert_eq!(truncated("orders", 5), "orde…");
        assert_eq!(truncated("鎖鎖鎖", 6), "鎖鎖鎖");
        assert_eq!(truncated("鎖鎖鎖", 5), "鎖鎖…");
        assert_eq!(truncated("鎖鎖鎖", 4), "鎖…");
        assert_eq!(truncated("orders", 0), "");
        assert_eq!(wrapped("鎖鎖鎖", 5), ["鎖鎖", "鎖"]);
        assert_eq!(wrapped("ab", 0), ["a", "b"]);
        assert_eq!(wrapped("", 3), [""]);
    }

    #[test]
    fn the_bar_shows_the_remaining_lease() {
        let seconds = Duration::from_secs;
        assert_eq!(bar_text(seconds(30), seconds(30), 5), "█████");
        assert_eq!(bar_text(seconds(12), seconds(30), 5), "██░░░");
        assert_eq!(bar_text(seconds(0), seconds(30), 5), "░░░░░");
        assert_eq!(bar_text(seconds(1), Duration::ZERO, 5), "░░░░░");
    }
}
