//! Replacements for addresses that servers announce.

use redlatch::Builder;

use super::variable;
use crate::errors::Failure;

type Address = (String, Option<u16>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mapping {
    from: Address,
    to: Address,
}

impl std::str::FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Mapping, String> {
        let addresses = text.split_once('=').and_then(|(from, to)| {
            let from = parse_address(from.trim())?;
            Some((from, parse_address(to.trim())?))
        });
        let (from, to) = addresses.ok_or_else(|| {
            format!("{text:?} is not FROM=TO; write 10.0.0.1:6379=127.0.0.1:7001, or 10.0.0.1=redis.example for all ports")
        })?;
        Ok(Mapping { from, to })
    }
}

/// Parses `host`, `host:port`, `[ipv6]` or `[ipv6]:port`.
fn parse_address(text: &str) -> Option<Address> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest {
                "" => (host, None),
                rest => (host, Some(rest.strip_prefix(':')?)),
            }
        }
        // Without brackets, a text with several colons is an IPv6 address.
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|port| *port != 0)?),
        None => None,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

pub(super) fn apply(builder: Builder, given: &[Mapping]) -> Result<Builder, Failure> {
    let mut mappings = given.to_vec();
    if mappings.is_empty() {
        let text = variable("REDLATCH_MAP").unwrap_or_default();
        let read: Result<_, String> = text.split_whitespace().map(str::parse).collect();
        let unusable = |error| Failure::usage(format!("REDLATCH_MAP is invalid: {error}"));
        mappings = read.map_err(unusable)?;
    }
    match mappings.is_empty() {
        true => Ok(builder),
        false => Ok(builder.map_address(move |host, port| mapped(&mappings, host, port))),
    }
}

/// A mapping with a port takes precedence over a mapping for all ports.
fn mapped(mappings: &[Mapping], host: &str, port: u16) -> (String, u16) {
    let of = |wanted: Option<u16>| {
        let mut all = mappings.iter();
        all.find(|it| it.from.0 == host && it.from.1 == wanted)
    };
    match of(Some(port)).or_else(|| of(None)) {
        Some(Mapping { to: (host, to), .. }) => (host.clone(), to.unwrap_or(port)),
        None => (host.to_owned(), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_with_a_port_has_priority() {
        let read = |text: &str| text.parse::<Mapping>();
        let all: Result<Vec<_>, _> = [
            "10.0.0.1=gate",
            "10.0.0.1:6380=127.0.0.1:7001",
            "[fd00::1]:6379=[::1]:7002",
            "fd00::2=localhost:7003",
        ]
        .map(read)
        .into_iter()
        .collect();
        let all = all.unwrap_or_else(|error| panic!("{error}"));
        for (host, port, to, to_port) in [
            ("10.0.0.1", 6379, "gate", 6379),
            ("10.0.0.1", 6380, "127.0.0.1", 7001),
            ("fd00::1", 6379, "::1", 7002),
            ("fd00::1", 1, "fd00::1", 1),
            ("fd00::2", 1, "localhost", 7003),
            ("other", 2, "other", 2),
        ] {
            assert_eq!(mapped(&all, host, port), (to.to_owned(), to_port));
        }
        for wrong in [
            "",
            "a",
            "a=",
            "=b",
            "a:0=b",
            "a:x=b",
            "a=b:99999",
            "[::1=b",
            "[::1]x=b",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
