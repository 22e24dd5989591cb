//! The connection settings: servers, user and options.

mod access;
mod backend;
mod files;
mod map;
mod url;

use std::path::{Path, PathBuf};
use std::time::Duration;

use redlatch::{Builder, Client, Redlock};

use crate::doctor::probes::WakeUpCounter;
use crate::errors::Failure;
pub(crate) use backend::Backend;
use backend::Clients;
use files::load_secret;
use map::Mapping;
use url::Credentials;

/// Arguments for the connection.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
#[group(id = "connection")]
pub(crate) struct ConnectArgs {
    /// One server: redis://, rediss://, redis+unix://, mysql:// or mysqls://, without a password [REDLATCH_URL]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file that contains the URL, which may have a password [REDLATCH_URL_FILE]
    #[arg(long, value_name = "FILE")]
    url_file: Option<PathBuf>,
    /// One of several servers; repeat for each [REDLATCH_NODES, separated by spaces]
    #[arg(long = "node", value_name = "URL")]
    nodes: Vec<String>,
    /// The nodes belong to a Redis Cluster [REDLATCH_MODE=cluster]
    #[arg(long, group = "mode")]
    cluster: bool,
    /// The nodes are a master and its replicas [REDLATCH_MODE=replicas]
    #[arg(long, group = "mode")]
    replicas: bool,
    /// The nodes are sentinels that monitor this master [REDLATCH_MODE=sentinel:MASTER]
    #[arg(long, group = "mode", value_name = "MASTER")]
    sentinel: Option<String>,
    /// The nodes are independent masters; a majority decides [REDLATCH_MODE=redlock]
    #[arg(long, group = "mode")]
    redlock: bool,
    /// The database number behind sentinels; otherwise the URL has it [REDLATCH_DATABASE]
    #[arg(long, value_name = "NUMBER")]
    database: Option<u32>,
    #[command(flatten)]
    access: access::AccessArgs,
    /// Replaces an address announced by sentinels or a cluster, as HOST[:PORT]; repeat for each [REDLATCH_MAP,
    /// separated by spaces]
    #[arg(long = "map", value_name = "FROM=TO")]
    maps: Vec<Mapping>,
    /// Prefix of every lock name, neither typed nor shown [REDLATCH_PREFIX]
    #[arg(long)]
    prefix: Option<String>,
    /// Like --prefix, but a name that already starts with it is not changed [REDLATCH_PREFIX_ONCE]
    #[arg(long, conflicts_with = "prefix")]
    prefix_once: Option<String>,
    /// Plain token locks: SET name token NX PX lease
    #[arg(long)]
    token: bool,
    /// With --redlock: token locks on each node, as Redlock libraries of other languages use them
    #[arg(long, requires = "redlock")]
    canonical: bool,
    /// The lease of a lock, such as 30s; renewed every third of it [REDLATCH_LEASE]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,
    /// With --redlock: the longest lease that any client of these nodes uses [REDLATCH_MAX_LEASE]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_lease: Option<Duration>,
    /// How many replicas must acknowledge a hold before it counts [REDLATCH_WAIT_REPLICAS]
    #[arg(long, value_name = "NUMBER")]
    wait_replicas: Option<u32>,
    /// Timeout of one request, such as 2s [REDLATCH_COMMAND_TIMEOUT]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    command_timeout: Option<Duration>,
}

enum Topology {
    One,
    Cluster,
    Replicas,
    Sentinel(String),
    Redlock,
}

/// The defaults of the library.
const LEASE: Duration = Duration::from_secs(30);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the environment variables that contain a secret. By default, the command does not inherit them.
pub(crate) fn secret_variables() -> Vec<&'static str> {
    let has_password = |name: &&str| {
        let urls = variable(name).unwrap_or_default();
        urls.split_whitespace().any(url::has_password)
    };
    let urls = ["REDLATCH_URL", "REDLATCH_NODES"];
    let with_passwords = urls.into_iter().filter(has_password);
    with_passwords.chain(["REDLATCH_PASSWORD"]).collect()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn duration_variable(name: &str) -> Result<Option<Duration>, Failure> {
    let parse = |text: String| {
        parse_duration(&text).map_err(|error| Failure::usage(format!("{name} is invalid: {error}")))
    };
    variable(name).map(parse).transpose()
}

fn number_setting(given: Option<u32>, name: &str) -> Result<Option<u32>, Failure> {
    let parse = |text: String| {
        text.parse()
            .map_err(|_| Failure::usage(format!("{name} is {text:?}, which is not a number")))
    };
    match given {
        None => variable(name).map(parse).transpose(),
        number => Ok(number),
    }
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a time; write 500ms, 30s, 5m, 2h or 1d");
    let at = text
        .find(|sign: char| !sign.is_ascii_digit())
        .ok_or_else(invalid)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| invalid())?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(invalid()),
    };
    let millis = number.checked_mul(millis).ok_or_else(invalid)?;
    Ok(Duration::from_millis(millis))
}

impl ConnectArgs {
    fn lease(&self) -> Result<Option<Duration>, Failure> {
        match self.lease {
            None => duration_variable("REDLATCH_LEASE"),
            lease => Ok(lease),
        }
    }

    fn max_lease(&self) -> Result<Option<Duration>, Failure> {
        match self.max_lease {
            None => duration_variable("REDLATCH_MAX_LEASE"),
            lease => Ok(lease),
        }
    }

    pub(crate) fn is_quorum(&self) -> Result<bool, Failure> {
        Ok(matches!(self.mode()?, Topology::Redlock))
    }

    /// Only clients of a quorum connect here.
    pub(crate) fn open(&self) -> Result<Backend, Failure> {
        for url in self.url.iter().chain(&self.nodes) {
            if url::has_password(url) {
                return Err(Failure::usage(
                    "a password in an argument is visible in ps; use REDLATCH_PASSWORD, --password-file FILE, or \
                     --url-file FILE for the whole URL",
                ));
            }
        }
        let prefix = self.prefix_once().or_else(|| self.prefix.clone());
        let prefix = prefix.or_else(|| variable("REDLATCH_PREFIX"));
        let prefix = prefix.unwrap_or_default();
        let mode = self.mode()?;
        let urls = self.urls(&mode)?;
        if self.access.has_sentinel_settings() && !matches!(mode, Topology::Sentinel(_)) {
            return Err(Failure::usage(
                "--master-tls and --sentinel-* options need --sentinel MASTER",
            ));
        }
        let credentials = self.access.credentials()?;
        let title = mode.title(&urls);
        let plain_text_hosts = urls.iter().filter(|url| url::is_exposed(url));
        let plain_text_hosts = plain_text_hosts
            .map(|url| url::address(url).to_owned())
            .collect();
        let hosts = urls
            .iter()
            .map(|url| url::address(url).to_owned())
            .collect();
        let is_database = urls.iter().any(|url| url.starts_with("mysql"));
        let is_cluster = matches!(mode, Topology::Cluster);
        let one = |client| Clients::One {
            client,
            is_database,
            is_cluster,
        };
        let source = match mode {
            Topology::One => {
                let [url] = &urls[..] else {
                    return Err(Failure::usage(
                        "several servers given without a mode; add --cluster, --replicas, --sentinel MASTER or --redlock",
                    ));
                };
                let (builder, url) = credentials.add_to(self.builder(&prefix)?, url)?;
                one(builder.open(&url)?)
            }
            Topology::Cluster => {
                let (builder, urls) = credentials.add_to_all(self.builder(&prefix)?, &urls)?;
                one(builder.cluster(urls)?)
            }
            Topology::Replicas => {
                let (builder, urls) = credentials.add_to_all(self.builder(&prefix)?, &urls)?;
                one(builder.master_replicas(urls)?)
            }
            Topology::Sentinel(master) => {
                let mut builder = credentials.add_to_master(self.builder(&prefix)?);
                builder = self.access.sentinel_settings(builder, &urls)?;
                if let Some(number) = self.database()? {
                    builder = builder.database(number);
                }
                one(builder.sentinel(&master, &urls)?)
            }
            Topology::Redlock => self.quorum(&credentials, &urls, &prefix)?,
        };
        let max_lease = match &source {
            Clients::Quorum { .. } => self.max_lease()?,
            Clients::One { .. } => None,
        };
        Ok(Backend {
            source,
            prefix,
            uses_token_locks: self.token || self.canonical,
            lease: self.lease()?.or(max_lease).unwrap_or(LEASE),
            title,
            hosts,
            plain_text_hosts,
        })
    }

    fn mode(&self) -> Result<Topology, Failure> {
        if let Some(master) = &self.sentinel {
            return Ok(Topology::Sentinel(master.clone()));
        }
        Ok(match (self.cluster, self.replicas, self.redlock) {
            (true, ..) => Topology::Cluster,
            (_, true, _) => Topology::Replicas,
            (.., true) => Topology::Redlock,
            _ if self.url.is_some() || self.url_file.is_some() => Topology::One,
            _ => match variable("REDLATCH_MODE").as_deref() {
                None => Topology::One,
                Some("cluster") => Topology::Cluster,
                Some("replicas") => Topology::Replicas,
                Some("redlock") => Topology::Redlock,
                Some(mode) => match mode.strip_prefix("sentinel:") {
                    Some(master) if !master.is_empty() => Topology::Sentinel(master.to_owned()),
                    _ => {
                        return Err(Failure::usage(format!(
                            "REDLATCH_MODE is {mode:?}; use cluster, replicas, redlock or sentinel:MASTER"
                        )));
                    }
                },
            },
        })
    }

    /// Arguments override variables.
    fn urls(&self, mode: &Topology) -> Result<Vec<String>, Failure> {
        let given = [
            self.url.is_some(),
            self.url_file.is_some(),
            !self.nodes.is_empty(),
        ];
        if given.into_iter().filter(|is| *is).count() > 1 {
            return Err(Failure::usage(
                "give only one of --url, --url-file and --node",
            ));
        }
        if let Some(url) = &self.url {
            return Ok(vec![url.clone()]);
        }
        if !self.nodes.is_empty() {
            return Ok(self.nodes.clone());
        }
        if let Some(file) = &self.url_file {
            return Ok(vec![load_secret(file)?]);
        }
        if let Some(nodes) = variable("REDLATCH_NODES") {
            return Ok(nodes.split_whitespace().map(str::to_owned).collect());
        }
        if !matches!(mode, Topology::One) {
            return Err(Failure::usage(
                "no servers given; set --node or REDLATCH_NODES",
            ));
        }
        if let Some(url) = variable("REDLATCH_URL") {
            return Ok(vec![url]);
        }
        match variable("REDLATCH_URL_FILE") {
            Some(file) => Ok(vec![load_secret(Path::new(&file))?]),
            // There is no default server: a job that locks on its own localhost excludes no other machine.
            None => Err(Failure::usage(
                "no server given, and there is no default; set --url or REDLATCH_URL, such as redis://10.0.0.1:6379",
            )),
        }
    }

    fn database(&self) -> Result<Option<u32>, Failure> {
        number_setting(self.database, "REDLATCH_DATABASE")
    }

    fn wait_replicas(&self) -> Result<Option<u32>, Failure> {
        number_setting(self.wait_replicas, "REDLATCH_WAIT_REPLICAS")
    }

    fn prefix_once(&self) -> Option<String> {
        let in_variable = || variable("REDLATCH_PREFIX_ONCE").filter(|_| self.prefix.is_none());
        self.prefix_once.clone().or_else(in_variable)
    }

    fn builder(&self, prefix: &str) -> Result<Builder, Failure> {
        let mut builder = match self.prefix_once() {
            Some(prefix) => Client::builder().key_prefix_once(prefix),
            None => Client::builder().key_prefix(prefix),
        };
        builder = builder.observer(WakeUpCounter);
        if let Some(lease) = self.lease()? {
            builder = builder.watchdog_timeout(lease);
        }
        let timeout = match self.command_timeout {
            None => duration_variable("REDLATCH_COMMAND_TIMEOUT")?,
            timeout => timeout,
        };
        if let Some(timeout) = timeout {
            // `command_timeout` is for a whole request, which may include connecting.
            builder = builder
                .command_timeout(timeout)
                .connect_timeout(timeout / 2);
        }
        builder = self.access.certificates(builder)?;
        builder = map::apply(builder, &self.maps)?;
        if let Some(replicas) = self.wait_replicas()? {
            // If a hold is not acknowledged, the second half of the timeout is for releasing it.
            let timeout = timeout.unwrap_or(COMMAND_TIMEOUT) / 2;
            builder = builder.wait_replicas(replicas, timeout);
        }
        Ok(builder)
    }

    fn quorum(
        &self,
        credentials: &Credentials,
        urls: &[String],
        prefix: &str,
    ) -> Result<Clients, Failure> {
        let mut nodes = Vec::with_capacity(urls.len());
        for url in urls {
            let (builder, whole) = credentials.add_to(self.builder(prefix)?, url)?;
            let client = builder.open(&whole)?;
            nodes.push((url::address(url).to_owned(), client));
        }
        let clients = nodes.iter().map(|(_, client)| client.clone());
        let mut builder = Redlock::builder().nodes(clients);
        if let Some(lease) = self.max_lease()? {
            builder = builder.max_lease(lease);
        }
        if let Some(lease) = self.lease()? {
            builder = builder.watchdog_timeout(lease);
        }
        if self.canonical || self.token {
            builder = builder.canonical();
        }
        let redlock = builder.build()?;
        Ok(Clients::Quorum { redlock, nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed() {
        let read = |text: &str| parse_duration(text).map(|it| it.as_millis());
        assert_eq!(read("500ms"), Ok(500));
        assert_eq!(read("30s"), Ok(30_000));
        assert_eq!(read("5m"), Ok(300_000));
        assert_eq!(read("2h"), Ok(7_200_000));
        assert_eq!(read("1d"), Ok(86_400_000));
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "5 s",
            "1.5s",
            "5w",
            "99999999999999999999s",
            "999999999999999999d",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
