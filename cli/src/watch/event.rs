//! Events between two snapshots, as text and as JSON.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlatch::Holder;
use serde::Serialize;

use crate::escape::escape;
use crate::output::{HolderObject, SCHEMA, holder, millis};

/// The kinds of events are in `cli/schema/event.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventKind {
    Held,
    Acquired,
    HandedOver,
    Ended,
    Expired,
    Forced,
    Disconnected,
    NodeLost,
    NodeBack,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(super) clock: SystemTime,
    pub(super) what: EventKind,
    /// The name of the lock. `None` for an event of a server.
    pub(super) name: Option<Arc<str>>,
    pub(super) node: String,
    pub(super) from: Option<Holder>,
    pub(super) to: Option<Holder>,
    /// The minimum time for which the hold of `from` lasted, or the server was unreachable.
    pub(super) lasted: Option<Duration>,
    pub(super) message: Option<String>,
}

#[derive(Serialize)]
pub(super) struct EventObject<'a> {
    schema: u32,
    at: String,
    event: EventKind,
    name: Option<&'a str>,
    node: &'a str,
    from: Option<HolderObject<'a>>,
    to: Option<HolderObject<'a>>,
    lasted_ms: Option<u64>,
    message: Option<&'a str>,
}

impl Event {
    /// Whether the event may need action.
    pub(super) fn is_bad(&self) -> bool {
        match self.what {
            // The expiry of a mark only ends a period.
            EventKind::Expired => self.message.is_none(),
            what => matches!(
                what,
                EventKind::Forced | EventKind::Disconnected | EventKind::NodeLost
            ),
        }
    }

    /// Returns the event as text, without its time.
    pub(crate) fn words(&self) -> String {
        let name = escape(self.name.as_deref().unwrap_or(&self.node));
        let who = |it: &Option<Holder>| it.as_ref().map(holder).unwrap_or_default();
        let (from, to) = (who(&self.from), who(&self.to));
        let lasted = self.lasted.map(brief).unwrap_or_default();
        // For an event of a server, the message is not shown here.
        let message = self.message.as_ref().filter(|_| self.name.is_some());
        let note = message.map_or(String::new(), |it| format!(": {}", escape(it)));
        match self.what {
            EventKind::Held => format!("{name} is held by {to}{note}"),
            EventKind::Acquired => format!("{name} acquired by {to}{note}"),
            EventKind::HandedOver => format!("{name} {from} -> {to}{note}"),
            EventKind::Ended => format!("{name} free, held by {from} for ≥ {lasted}{note}"),
            EventKind::Expired if message.is_some() => format!("{name} expired{note}"),
            EventKind::Expired => format!("{name} expired, not renewed by {from}"),
            EventKind::Forced => {
                format!("{name} released by force, held by {from} for ≥ {lasted}{note}")
            }
            EventKind::Disconnected => {
                format!("{name}: its holder {from} has no connection")
            }
            EventKind::NodeLost => {
                let message = escape(self.message.as_deref().unwrap_or_default());
                match message.contains(&*name) {
                    true => message,
                    false => format!("{name}: {message}"),
                }
            }
            EventKind::NodeBack => format!("{name} replies again, after {lasted}"),
        }
    }

    pub(super) fn object(&self) -> EventObject<'_> {
        EventObject {
            schema: SCHEMA,
            at: instant(self.clock),
            event: self.what,
            name: self.name.as_deref(),
            node: &self.node,
            from: self.from.as_ref().map(HolderObject::of),
            to: self.to.as_ref().map(HolderObject::of),
            lasted_ms: self.lasted.map(millis),
            message: self.message.as_deref(),
        }
    }
}

/// The formats are `7s`, `4m 12s`, `2h 01m`, `1d 01h`.
pub(crate) fn brief(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..=59 => format!("{seconds}s"),
        _ => crate::output::span(span),
    }
}

/// Formats a time in UTC, as RFC 3339 does.
pub(super) fn instant(clock: SystemTime) -> String {
    let since = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = date(since.as_secs() / 86_400);
    let millis = since.subsec_millis();
    format!(
        "{year:04}-{month:02}-{day:02}T{}.{millis:03}Z",
        time_of_day(clock)
    )
}

/// Formats the time of day in UTC, such as `12:00:41`.
pub(super) fn time_of_day(clock: SystemTime) -> String {
    let since = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = since.as_secs() % 86_400;
    format!(
        "{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Returns the date that is `days` after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // A year that begins in March has its leap day at its end. 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_have_calendar_dates() {
        let shown = |seconds: u64| instant(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(shown(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(shown(951_782_399), "2000-02-28T23:59:59.007Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(shown(1_798_761_599), "2026-12-31T23:59:59.007Z");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00.007Z");
    }

    #[test]
    fn durations_have_whole_seconds() {
        let shown = |seconds| brief(Duration::from_secs(seconds));
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(59), "59s");
        assert_eq!(shown(252), "4m 12s");
    }
}
