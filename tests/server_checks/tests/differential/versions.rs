//! What versions of servers are known to answer otherwise than Redis 7.0, whose answers the server in the process gives.
//!
//! | versions | what differs | why | here |
//! |---|---|---|---|
//! | all but 7.0 | the words of errors, whose codes alone are compared | each version has its own | [`code_of`] |
//! | 6.2 | the error of a script is `ERR`, and has its place and its own code behind that | 7.0 made errors tables | [`code_of`] |
//! | 6.2 | scripts write where `min-replicas-to-write` is not met | 7.0 checks each write of a script | [`Version::refuses_scripts`] |
//! | 6.2 | `print`, `setfenv` and `newproxy` are there, and tables can be written | 7.0 closed the sandbox | [`APART`] |
//! | 6.2 | errors that a script makes lack a code, `big_number` and `verbatim_string` are no replies | new in 7.0 | [`APART`] |
//! | 6.2 | `EXPIRE` has no options; the limits of some numbers | new in 7.0 | [`Version::differs_in`] |
//! | 6.2 | `LPOP` and `ZPOPMIN` of no item do not look at the type | 7.0 checks the key first | [`Version::differs_in`] |
//! | 6.2 | `ZADD` keeps the sign of -0.0 | 7.0 writes whole scores as integers | [`is_same_number`] |
//! | 8.0, Valkey 8.1 | floats have the fewest digits, -0.0 is `0` | another algorithm writes them | [`is_same_number`], [`APART`] |
//! | 8.0, Valkey 8.1 | `os` is there, with `clock` alone | it was added to the sandbox | [`APART`] |
//! | 8.0 | a key may be gone in the ms of its end | its background expiry removes keys one ms before commands do | [`Version::ends_early`] |

use std::fmt;

use redlatch_server_checks::Reply;

/// The version of a server, from its own INFO.
#[derive(Debug)]
pub(crate) struct Version {
    valkey: Option<String>,
    redis: String,
    /// The version of Redis, or the version with which Valkey claims compatibility: 7.2.
    number: (u32, u32),
}

/// The first and the last version that differ, and the small scripts with other replies.
type Apart = ((u32, u32), (u32, u32), &'static [&'static str]);
const APART: [Apart; 2] = [
    (
        (0, 0),
        (6, 2),
        &[
            "return print",
            "return type(print)",
            "return type(loadstring) .. type(load) .. type(setfenv) .. type(getmetatable)",
            "return type(newproxy)",
            "string.mine = 1",
            "redis.mine = 1",
            "return {big_number = '123'}",
            "return {verbatim_string = {format = 'txt', string = 'hello'}}",
            "local is_done, flaw = pcall(function() error({err = 'MY'}) end) return flaw.err",
            "error({err = 'MY table'})",
            "error({err = 'MY table', other = 1})",
            "return redis.error_reply('mine')",
            "return redis.error_reply('-mine')",
            "return redis.error_reply('x')",
        ],
    ),
    (
        (7, 2),
        (u32::MAX, 0),
        &[
            "return os and type(os.time) or 'none'",
            "return type(os and os.clock)",
            "return {pcall(redis.call, 'INCRBY', KEYS[1], -0.0)}",
        ],
    ),
];

/// The codes that errors begin with.
const CODES: [&str; 9] = [
    "ERR",
    "EXECABORT",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "WRONGTYPE",
];

impl Version {
    /// Parses INFO.
    pub(crate) fn read(info: &str) -> Version {
        let field = |name: &str| {
            let mut lines = info.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        let redis = field("redis_version:").unwrap_or_default();
        let mut parts = redis.split('.').map(|part| part.parse().unwrap_or(0));
        Version {
            number: (parts.next().unwrap_or(0), parts.next().unwrap_or(0)),
            valkey: field("valkey_version:"),
            redis,
        }
    }

    /// Whether it is the version that the in-process server imitates literally.
    fn is_same(&self) -> bool {
        self.number == (7, 0)
    }

    /// Whether it replies differently to a small script.
    pub(crate) fn is_apart(&self, script: &str) -> bool {
        APART
            .iter()
            .filter(|(first, last, _)| (*first..=*last).contains(&self.number))
            .any(|(_, _, scripts)| scripts.contains(&script))
    }

    /// Whether it replies differently to a plain command.
    pub(crate) fn differs_in(&self, words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let is_new = matches!(
            words[..],
            ["EXPIRE", _, _, _]
                | ["EXPIRE", _, "9223372036854775807"]
                | ["DECRBY", _, "-9223372036854775808"]
                | ["LPOP" | "ZPOPMIN", _, "0"]
        );
        is_new && self.number < (7, 0)
    }

    /// Whether scripts are refused with too few replicas.
    pub(crate) fn refuses_scripts(&self) -> bool {
        self.number >= (7, 0)
    }

    /// Whether a key may expire in the ms of its end, in which commands still find it.
    pub(crate) fn ends_early(&self) -> bool {
        self.valkey.is_none() && self.number >= (8, 0)
    }

    /// Whether replies are equal, except for known differences.
    pub(crate) fn is_alike(&self, there: &Reply, here: &Reply) -> bool {
        match (there, here) {
            _ if there == here => true,
            _ if self.is_same() => false,
            (Reply::Array(there), Reply::Array(here)) => {
                let mut pairs = there.iter().zip(here);
                there.len() == here.len() && pairs.all(|(there, here)| self.is_alike(there, here))
            }
            (Reply::Error(there), Reply::Error(here)) => code_of(there) == code_of(here),
            (Reply::Bulk(there), Reply::Bulk(here)) => {
                let (there, here) = (
                    String::from_utf8_lossy(there),
                    String::from_utf8_lossy(here),
                );
                let code = code_of(&here);
                is_same_number(&there, &here) || CODES.contains(&code) && code_of(&there) == code
            }
            _ => false,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.valkey {
            Some(version) => write!(f, "Valkey {version}"),
            None => write!(f, "Redis {}", self.redis),
        }
    }
}

/// Whether texts are the same number, one of them not a plain integer.
fn is_same_number(there: &str, here: &str) -> bool {
    let is_plain = |text: &str| text.parse::<i64>().is_ok_and(|it| it.to_string() == text);
    let numbers = (there.parse::<f64>(), here.parse::<f64>());
    !(is_plain(there) && is_plain(here))
        && matches!(numbers, (Ok(there), Ok(here)) if there == here)
}

/// The code of an error. In Redis 6.2 a script position precedes it, and the code may be missing.
fn code_of(error: &str) -> &str {
    let in_script = error.strip_prefix("ERR Error running script (call to f_");
    let in_script = in_script.and_then(|rest| rest.split_once("): "));
    let mut inner = in_script.map_or(error, |(_, inner)| inner);
    while let Some((_, rest)) = ["@user_script:", "=[C]:"]
        .iter()
        .find_map(|place| inner.strip_prefix(place)?.split_once(": "))
    {
        inner = rest;
    }
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let code = inner.split(' ').next().unwrap_or_default();
    match CODES.contains(&code) || error == inner {
        true => code,
        false => "ERR",
    }
}
