//! The columns of the table, which depend on how wide the screen is.

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

/// One column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Kind,
    Holder,
    Count,
    Held,
    /// With a bar that has so many signs.
    Expires(usize),
    Listen,
    Nodes,
    Note,
}

use Column::{Count, Expires, Held, Holder, Kind, Listen, Name, Nodes, Note};

/// What a screen of this width, or a wider one, has.
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

/// The space for a time: `23h 59m`.
const TIME: usize = 7;

/// The columns with their widths.
pub(super) struct Columns {
    columns: Vec<(Column, usize)>,
    width: usize,
    now: Instant,
    /// The last look, of which a lock is news.
    last_snapshot: Option<Instant>,
}

impl Columns {
    /// The columns for these lines on a screen of this width.
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
            // Columns with nothing in them are for others.
            let is_empty = matches!(column, Nodes | Note) && widest == 0;
            if !is_empty {
                let least = column.title().len() + usize::from(column.sort().is_some());
                all.columns.push((*column, widest.max(least)));
            }
        }
        all.fit();
        all
    }

    /// Makes names and holders as short as they have to be.
    fn fit(&mut self) {
        let used = |all: &[(Column, usize)]| all.iter().map(|(_, width)| width + 2).sum::<usize>();
        let excess = used(&self.columns).saturating_sub(1 + self.width);
        let width_of = |column| {
            let found = self.columns.iter().find(|(it, _)| *it == column);
            found.map_or(0, |(_, width)| *width)
        };
        let (name, of) = (width_of(Name), width_of(Holder));
        let room = (name + of).saturating_sub(excess);
        // Half of the room each, unless one needs less.
        let of_fits = of.min((room / 2).max(room.saturating_sub(name)));
        for (column, width) in &mut self.columns {
            match column {
                Name => *width = room - of_fits,
                Holder => *width = of_fits,
                _ => {}
            }
        }
    }

    /// The heads of the columns; the one by which they are sorted is marked.
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

    /// A line of the table.
    pub(super) fn line(&self, row: &Row<'_>, paint: Paint, has_cursor: bool) -> Line<'static> {
        let width = u16::try_from(self.width).unwrap_or(u16::MAX);
        let mut line = Line::raw(if has_cursor { "›" } else { " " });
        for (column, cells) in &self.columns {
            let text = padded(&self.cell(*column, row, width), *cells);
            line.push_span(Span::styled(text, self.style(*column, row, paint)));
        }
        if self.is_old(row) {
            line = line.style(Paint::dim());
        }
        match has_cursor {
            true => line.patch_style(Style::new().add_modifier(Modifier::REVERSED)),
            false => line,
        }
    }

    /// Whether the last look did not show it, because a server did not answer.
    fn is_old(&self, row: &Row<'_>) -> bool {
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
                        _ => format!("{} {time:>TIME$}", drawn(left, row.hold.full, bar)),
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
            Note if self.is_old(row) => "no news".to_owned(),
            Note if row.hold.is_disconnected() && !row.is_mark() => "disconnected".to_owned(),
            Note => String::new(),
        }
    }

    /// Colours for what somebody may have to see to.
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

    /// The order that goes by it.
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

/// A bar with so many signs, for the part of the lease that is left.
fn drawn(left: Duration, full: Duration, signs: usize) -> String {
    let part = match full.is_zero() {
        true => 0.0,
        false => left.as_secs_f64() / full.as_secs_f64(),
    };
    let filled = (1..=signs)
        .filter(|sign| *sign as f64 <= (part * signs as f64).round())
        .count();
    "█".repeat(filled) + &"░".repeat(signs - filled)
}

/// A text with two spaces behind it, in so many cells and two.
fn padded(text: &str, width: usize) -> String {
    let mut text = truncated(text, width);
    let rest = width.saturating_sub(Span::raw(&*text).width());
    text.push_str(&" ".repeat(rest + 2));
    text
}

/// A text in at most so many cells; one that is longer ends with a mark.
pub(super) fn truncated(text: &str, width: usize) -> String {
    let span = Span::raw(text);
    if span.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for sign in span.styled_graphemes(Style::new()) {
        used += Span::raw(sign.symbol).width();
        if used >= width {
            break;
        }
        kept.push_str(sign.symbol);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// A text in lines of at most so many cells.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for sign in Span::raw(text).styled_graphemes(Style::new()) {
        let cells = Span::raw(sign.symbol).width();
        if used + cells > width && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        line.push_str(sign.symbol);
        used += cells;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_cells_and_not_by_signs() {
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
    fn a_bar_is_as_full_as_the_lease() {
        let seconds = Duration::from_secs;
        assert_eq!(drawn(seconds(30), seconds(30), 5), "█████");
        assert_eq!(drawn(seconds(12), seconds(30), 5), "██░░░");
        assert_eq!(drawn(seconds(0), seconds(30), 5), "░░░░░");
        assert_eq!(drawn(seconds(1), Duration::ZERO, 5), "░░░░░");
    }
}
