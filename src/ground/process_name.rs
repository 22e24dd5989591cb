//! The name of this process at a server, by which an operator finds it.

/// The longest name of a machine that is told.
#[cfg(not(redlatch_sim))]
const LONGEST_HOST: usize = 64;

/// The name of the connections of a client: `redlatch:UUID:PID@HOST`.
pub(crate) fn of_client(client: &str) -> String {
    format!("redlatch:{client}:{}", of_process())
}

/// Reads such a name: the client, the process and the host.
pub(crate) fn of_connection(name: &str) -> Option<(&str, u32, &str)> {
    let (client, process) = name.strip_prefix("redlatch:")?.split_once(':')?;
    let (pid, host) = process.split_once('@')?;
    Some((client, pid.parse().ok()?, host))
}

/// The process and the machine that it runs on, without signs that a server refuses in a name.
#[cfg(not(redlatch_sim))]
fn of_process() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let host: String = host
        .chars()
        .filter(char::is_ascii_graphic)
        .take(LONGEST_HOST)
        .collect();
    format!("{}@{host}", std::process::id())
}

/// The same in every run of a seed.
#[cfg(redlatch_sim)]
fn of_process() -> String {
    "1@sim".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_made() {
        let name = of_client("1f6f");
        let (client, pid, host) = of_connection(&name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((client, pid), ("1f6f", std::process::id()));
        assert!(!host.is_empty() && host.len() <= 64, "{host}");
        assert!(name.bytes().all(|sign| sign.is_ascii_graphic()), "{name}");
    }
}
