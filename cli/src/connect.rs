//! The place of the locks: which server or servers, as whom, with which settings.

mod access;
mod backend;
mod files;
mod map;
mod url;

use std::path::{Path, PathBuf};
use std::time::Duration;

use redlatch::{Builder, Client, Redlock};

use crate::doctor::live::WakeUpCounter;
use crate::errors::Failure;
pub(crate) use backend::Backend;
use backend::Clients;
use files::load_secret;
use map::Mapping;
use url::Credentials;

/// The arguments that say where the locks are.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Where the locks are")]
#[group(id = "connection")]
pub(crate) struct ConnectArgs {
    /// One server: redis://, rediss://, redis+unix://, mysql:// or mysqls://, without a password [REDLATCH_URL]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file with that URL, which may have a password [REDLATCH_URL_FILE]
    #[arg(long, value_name = "FILE")]
    url_file: Option<PathBuf>,
    /// One of several servers; say it once for each [REDLATCH_NODES, with spaces between]
    #[arg(long = "node", value_name = "URL")]
    nodes: Vec<String>,
    /// The nodes belong to a Redis Cluster [REDLATCH_MODE=cluster]
    #[arg(long, group = "mode")]
    cluster: bool,
    /// The nodes are a master and its replicas [REDLATCH_MODE=replicas]
    #[arg(long, group = "mode")]
    replicas: bool,
    /// The nodes are sentinels, which know this master [REDLATCH_MODE=sentinel:MASTER]
    #[arg(long, group = "mode", value_name = "MASTER")]
    sentinel: Option<String>,
    /// The nodes are independent masters, of which a majority decides [REDLATCH_MODE=redlock]
    #[arg(long, group = "mode")]
    redlock: bool,
    /// The number of the database, behind sentinels; elsewhere the URL has it [REDLATCH_DATABASE]
    #[arg(long, value_name = "NUMBER")]
    database: Option<u32>,
    #[command(flatten)]
    access: access::AccessArgs,
    /// Where an address is reached that sentinels or a cluster announce, as HOST[:PORT]; say it once for each [REDLATCH_MAP,
    /// with spaces between]
    #[arg(long = "map", value_name = "FROM=TO")]
    maps: Vec<Mapping>,
    /// The beginning of every name, which is not typed [REDLATCH_PREFIX]
    #[arg(long)]
    prefix: Option<String>,
    /// The same, but a name that begins with it stays as it is [REDLATCH_PREFIX_ONCE]
    #[arg(long, conflicts_with = "prefix")]
    prefix_once: Option<String>,
    /// Plain token locks: SET name token NX PX lease
    #[arg(long)]
    token: bool,
    /// With --redlock: token locks on each node, as libraries of other languages have them
    #[arg(long, requires = "redlock")]
    canonical: bool,
    /// The lease of a lock, such as 30s; it is renewed at a third of it [REDLATCH_LEASE]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,
    /// With --redlock: the longest lease that any program asks of these nodes [REDLATCH_MAX_LEASE]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_lease: Option<Duration>,
    /// How many replicas must acknowledge a hold before it counts [REDLATCH_WAIT_REPLICAS]
    #[arg(long, value_name = "NUMBER")]
    wait_replicas: Option<u32>,
    /// How long one request may take, such as 2s [REDLATCH_COMMAND_TIMEOUT]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    command_timeout: Option<Duration>,
}

/// How several servers belong together.
enum Topology {
    One,
    Cluster,
    Replicas,
    Sentinel(String),
    Redlock,
}

/// The lease and the longest time of a request by default, here as in the library.
const LEASE: Duration = Duration::from_secs(30);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// The variables that are set and have a secret, which a command under a lock has no use for.
pub(crate) fn secret_variables() -> Vec<&'static str> {
    let has_password = |name: &&str| {
        let urls = variable(name).unwrap_or_default();
        urls.split_whitespace().any(url::has_password)
    };
    let urls = ["REDLATCH_URL", "REDLATCH_NODES"];
    let with_passwords = urls.into_iter().filter(has_password);
    with_passwords.chain(["REDLATCH_PASSWORD"]).collect()
}

/// A setting from a variable, if it is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn duration_variable(name: &str) -> Result<Option<Duration>, Failure> {
    let parse = |text: String| {
        parse_duration(&text)
            .map_err(|error| Failure::usage(format!("{name} cannot be used: {error}")))
    };
    variable(name).map(parse).transpose()
}

/// A number that was given, or else that of a variable.
fn number_setting(given: Option<u32>, name: &str) -> Result<Option<u32>, Failure> {
    let parse = |text: String| {
        text.parse()
            .map_err(|_| Failure::usage(format!("{name} is {text:?}, which is no number")))
    };
    match given {
        None => variable(name).map(parse).transpose(),
        number_setting => Ok(number_setting),
    }
}

/// Reads a time such as `500ms`, `30s`, `5m`, `2h` or `1d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is no time; write 500ms, 30s, 5m, 2h or 1d");
    let at = text
        .find(|sign: char| !sign.is_ascii_digit())
        .ok_or_else(invalid)?;
    let (number_setting, unit) = text.split_at(at);
    let number_setting: u64 = number_setting.parse().map_err(|_| invalid())?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(invalid()),
    };
    let millis = number_setting.checked_mul(millis).ok_or_else(invalid)?;
    Ok(Duration::from_millis(millis))
}

impl ConnectArgs {
    /// The lease that was asked for.
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

    /// Whether several masters decide by majority.
    pub(crate) fn is_quorum(&self) -> Result<bool, Failure> {
        Ok(matches!(self.mode()?, Topology::Redlock))
    }

    /// Opens the place; nothing is connected yet, but for a quorum.
    pub(crate) fn open(&self) -> Result<Backend, Failure> {
        for url in self.url.iter().chain(&self.nodes) {
            if url::has_password(url) {
                return Err(Failure::usage(
                    "a password in an argument is seen by everybody who runs ps; put it into the variable \
                     REDLATCH_PASSWORD or a file (--password-file), or the whole URL into a file (--url-file)",
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
                "--master-tls and the arguments that begin with --sentinel- need --sentinel MASTER",
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
                        "several servers were given; say how they belong together: --cluster, --replicas, \
                         --sentinel MASTER or --redlock",
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
                if let Some(number_setting) = self.database()? {
                    builder = builder.database(number_setting);
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
                            "REDLATCH_MODE is {mode:?}; it has to be cluster, replicas, redlock or sentinel:MASTER"
                        )));
                    }
                },
            },
        })
    }

    /// The servers: what the arguments say goes before what variables say.
    fn urls(&self, mode: &Topology) -> Result<Vec<String>, Failure> {
        if self.url.is_some() && (self.url_file.is_some() || !self.nodes.is_empty()) {
            return Err(Failure::usage("--url excludes --url-file and --node"));
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
                "no servers were given; name them with --node, or in REDLATCH_NODES",
            ));
        }
        if let Some(url) = variable("REDLATCH_URL") {
            return Ok(vec![url]);
        }
        match variable("REDLATCH_URL_FILE") {
            Some(file) => Ok(vec![load_secret(Path::new(&file))?]),
            // A job that locks on its own localhost excludes nobody.
            None => Err(Failure::usage(
                "no server was given, and there is no default one; set --url or REDLATCH_URL, such as redis://10.0.0.1:6379",
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
            // A request may have to connect first.
            builder = builder
                .command_timeout(timeout)
                .connect_timeout(timeout / 2);
        }
        builder = self.access.certificates(builder)?;
        builder = map::apply(builder, &self.maps)?;
        if let Some(replicas) = self.wait_replicas()? {
            // A hold that is not acknowledged in time is withdrawn in the rest of it.
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
mod tests;
