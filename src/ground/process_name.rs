//! The connection name, by which an operator finds the process of a connection.

use crate::ground::host::pid_at_host;

/// Returns `redlatch:UUID:PID@HOST`, the default name of a client's connections.
pub(crate) fn of_client(client: &str) -> String {
    format!("redlatch:{client}:{}", pid_at_host())
}

/// Returns the uuid of the client, the process id and the host.
pub(crate) fn of_connection(name: &str) -> Option<(&str, u32, &str)> {
    let (client, process) = name.strip_prefix("redlatch:")?.split_once(':')?;
    let (pid, host) = process.split_once('@')?;
    Some((client, pid.parse().ok()?, host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_name_can_be_read_back() {
        let name = of_client("1f6f");
        let (client, pid, host) = of_connection(&name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((client, pid), ("1f6f", crate::ground::process::id()));
        assert!(!host.is_empty() && host.len() <= 64, "{host}");
        assert!(name.bytes().all(|sign| sign.is_ascii_graphic()), "{name}");
    }
}
