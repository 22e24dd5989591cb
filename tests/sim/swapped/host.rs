//! The interface of `src/ground/host.rs`, the same in every run of a seed.

pub(crate) fn pid_at_host() -> String {
    "1@sim".to_owned()
}
