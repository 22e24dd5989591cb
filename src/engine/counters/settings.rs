//! How a client counts, and what it tells.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::observer::Observed;

/// The settings of the counters of one client.
#[derive(Clone, Debug)]
pub(crate) struct CountSettings {
    /// Names the classes; `None` for names up to their last separator.
    pub(crate) class_of: Option<ClassOf>,
    pub(crate) observer: Observed,
    /// A wait that lasts as long as this is told, and a hold.
    pub(crate) long_wait: Duration,
    pub(crate) long_hold: Duration,
}

impl Default for CountSettings {
    fn default() -> CountSettings {
        CountSettings {
            class_of: None,
            observer: Observed::default(),
            long_wait: Duration::from_secs(30),
            long_hold: Duration::from_secs(10 * 60),
        }
    }
}

/// Names the class of a lock by its name.
#[derive(Clone)]
pub(crate) struct ClassOf(pub(crate) Arc<dyn for<'a> Fn(&'a str) -> &'a str + Send + Sync>);

impl fmt::Debug for ClassOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClassOf")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_can_be_shown() {
        fn whole(name: &str) -> &str {
            name
        }
        let settings = CountSettings {
            class_of: Some(ClassOf(Arc::new(whole))),
            ..CountSettings::default()
        };
        let shown = format!("{settings:?}");
        assert!(shown.contains("class_of: Some(ClassOf)"), "{shown}");
    }
}
