//! What a search of all states of a model finds.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// The names of the promises that are broken where the first is, if one can be.
pub(crate) fn broken<M>(model: M) -> Vec<&'static str>
where
    M: Model<
            State: Clone + Debug + PartialEq + Hash + Send + Sync,
            Action: Clone + Debug + PartialEq,
        > + Debug
        + Send
        + Sync
        + 'static,
{
    let (started, title) = (Instant::now(), format!("{model:?}"));
    let until = HasDiscoveries::AnyFailures;
    let checker = model.checker().finish_when(until).spawn_bfs().join();
    println!(
        "{title}: {} states, {} steps, {:.1?}",
        checker.unique_state_count(),
        checker.state_count(),
        started.elapsed()
    );
    let ways = checker.discoveries().into_iter();
    ways.map(|(name, path)| {
        println!("{name}: {:?}", path.into_actions());
        name
    })
    .collect()
}
