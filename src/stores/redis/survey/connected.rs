//! The processes of holders, found by the names of their connections.

use std::time::Instant;

use crate::ground::process_name::of_connection;
use crate::store::Connected;
use crate::stores::redis::replies::text_of;
use crate::stores::redis::transport::{CallError, Connection, encode};

/// Returns an empty list if the user lacks the right to `CLIENT LIST`. After an `Err`, the connection is unusable.
pub(super) fn of_this_library(
    connection: &mut Connection,
    deadline: Instant,
) -> Result<Vec<Connected>, CallError> {
    match connection.call(&encode(&["CLIENT", "LIST"]), deadline) {
        Ok(list) => Ok(text_of(&list).lines().filter_map(read).collect()),
        Err(CallError::Server(_)) => Ok(Vec::new()),
        Err(fault) => Err(fault),
    }
}

/// Reads a line such as `id=3 addr=10.0.0.7:5112 … name=redlatch:UUID:812@web-3 …`.
fn read(line: &str) -> Option<Connected> {
    let value = |of: &str| {
        let mut words = line.split(' ');
        words.find_map(|word| word.strip_prefix(of))
    };
    let (client, pid, host) = of_connection(value("name=")?)?;
    Some(Connected {
        client: client.to_owned(),
        address: value("addr=")?.to_owned(),
        host: host.to_owned(),
        pid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_this_library_are_recognized() {
        let name = "name=redlatch:1f6f2c9e-0b7a-4c8e-9d53-5a1f3c2b4d6e:812@web-3";
        let line = format!("id=3 addr=10.0.0.7:5112 laddr=10.0.0.1:6379 fd=8 {name} age=1");
        let found = read(&line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(found.client, "1f6f2c9e-0b7a-4c8e-9d53-5a1f3c2b4d6e");
        assert_eq!((&*found.address, &*found.host), ("10.0.0.7:5112", "web-3"));
        assert_eq!(found.pid, 812);
        for line in [
            "id=3 addr=a name=redlatch age=1",
            "id=3 addr=a name= age=1",
            "",
        ] {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
