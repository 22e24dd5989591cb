//! Groups locks into classes, which are labels of metrics. The number of classes is bounded, because labels are never freed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::engine::counters::ClassOf;
use crate::ground::error::{Error, Result};

const MOST_CLASSES: usize = 64;

/// The class of locks without a class of their own.
const REST: &str = "other";

/// The longest class name in bytes. A lock with a longer class name is counted as [`REST`].
const LONGEST: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(u8);

#[derive(Debug, Default)]
pub(crate) struct Classes {
    class_of: Option<ClassOf>,
    /// Entry `n` has the id `n + 1`; the id 0 is [`REST`]. Entries are filled in order and never changed.
    named: Box<[OnceLock<Box<str>>]>,
}

impl Classes {
    pub(super) fn new(class_of: Option<ClassOf>) -> Classes {
        Classes {
            class_of,
            named: (0..MOST_CLASSES).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(super) fn of(&self, lock: &str) -> ClassId {
        let class = match &self.class_of {
            Some(ClassOf(of)) => catch_unwind(AssertUnwindSafe(|| of(lock))).unwrap_or(REST),
            None => without_last_part(lock),
        };
        if class == REST || class.len() > LONGEST {
            return ClassId::default();
        }
        let places = self.named.iter().zip(1..);
        let found = places.into_iter().find(|(place, _)| {
            // The first call for a class stores the class in the first empty entry. Later calls find that entry.
            let there = place.get_or_init(|| class.into());
            **there == *class
        });
        found.map_or_else(ClassId::default, |(_, id)| ClassId(id))
    }

    pub(super) fn get(&self, id: ClassId) -> &str {
        let place = usize::from(id.0).checked_sub(1);
        let class = place.and_then(|place| self.named.get(place)?.get());
        class.map_or(REST, |class| class)
    }
}

/// Returns the name up to its last separator. A `{` at the start and every `}` at the end are ignored.
fn without_last_part(lock: &str) -> &str {
    const SEPARATORS: [char; 4] = [':', '/', '{', '}'];
    let name = lock.strip_prefix('{').unwrap_or(lock).trim_end_matches('}');
    let class = name.rsplit_once(SEPARATORS).map_or(name, |it| it.0);
    class.trim_end_matches(SEPARATORS)
}

pub(crate) fn end_of_wait<T>(outcome: &Result<Option<T>>) -> &'static str {
    match outcome {
        Ok(Some(_)) => "acquired",
        Ok(None) => "refused",
        Err(Error::Interrupted { .. }) => "interrupted",
        Err(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_class_is_a_name_up_to_its_last_separator() {
        for (name, class) in [
            ("lock:orders:42", "lock:orders"),
            ("orders:42", "orders"),
            ("{orders}:42", "orders"),
            ("{lock:orders}:42", "lock:orders"),
            ("orders/42", "orders"),
            ("{lock:orders:42}", "lock:orders"),
            ("orders{42}", "orders"),
            ("lock:orders:", "lock:orders"),
            ("orders", "orders"),
            ("orders:", "orders"),
            (":", ""),
            ("", ""),
        ] {
            assert_eq!(without_last_part(name), class, "{name}");
        }
    }

    #[test]
    fn the_number_of_classes_is_bounded() {
        let classes = Classes::new(None);
        let first = classes.of("c0:1");
        for number in 0..100_000 {
            classes.of(&format!("c{number}:7"));
        }
        assert_eq!(classes.of("c0:2"), first);
        assert_eq!(classes.get(first), "c0");
        assert_eq!(classes.get(classes.of("c99999:1")), "other");
        assert_eq!(classes.get(classes.of("other:1")), "other");
    }

    #[test]
    fn long_names_and_panics_are_counted_as_other() {
        let classes = Classes::new(None);
        assert_eq!(classes.of(&"n".repeat(65)), ClassId::default());
        assert_ne!(classes.of(&"n".repeat(64)), ClassId::default());
        let panics = ClassOf(Arc::new(|_: &str| panic!("no class")));
        assert_eq!(
            Classes::new(Some(panics)).of("orders:1"),
            ClassId::default()
        );
    }

    #[test]
    fn a_given_function_names_the_classes() {
        fn last(name: &str) -> &str {
            name.rsplit(':').next().unwrap_or(name)
        }
        let classes = Classes::new(Some(ClassOf(Arc::new(last))));
        assert_eq!(classes.get(classes.of("a:orders")), "orders");
    }
}
