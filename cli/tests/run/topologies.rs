//! `run` with several servers, and over TLS.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{Certificates, Cluster, Sentinels};

/// The arguments for a group of servers.
struct Servers<'a>(Vec<&'a str>);

impl<'a> Servers<'a> {
    fn of(urls: &'a [String], mode: &[&'a str]) -> Servers<'a> {
        let nodes = urls.iter().flat_map(|url| ["--node", url]);
        Servers(nodes.chain(mode.iter().copied()).collect())
    }

    fn run(&self, args: &[&str]) -> Command {
        let mut command = redlatch();
        command.arg("run").args(&self.0).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Asserts that a second command for this lock is refused while the first command runs. At the end, the lock must be
    /// free. `meanwhile` runs during the first command.
    fn runs_one_at_a_time(&self, meanwhile: impl FnOnce()) {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo $$; while [ ! -e go ]; do sleep 0.05; done; exit 7";
        let mut command = self.run(&["demo", "--", "sh", "-c", script]);
        let mut child = command.current_dir(folder.path()).spawn().unwrap();
        command_pid(&mut child);
        let try_it = || {
            let mut output = None;
            // Servers report their uptime in whole seconds, so the nodes of a new quorum get their votes late.
            eventually(SLACK, "a majority has votes", || {
                let tried = self.run(&["--try", "demo", "--", "true"]).output();
                output = Some(tried.unwrap());
                output.as_ref().unwrap().status.code() != Some(125)
            });
            output.unwrap()
        };
        ends_with(&try_it(), 120);
        meanwhile();
        ends_with(&try_it(), 120);
        fs::write(folder.path().join("go"), "").unwrap();
        ends_with(&child.wait_with_output().unwrap(), 7);
        ends_with(&try_it(), 0);
    }
}

#[test]
fn run_works_behind_sentinels() {
    let set = Sentinels::start();
    let urls = set.urls();
    Servers::of(&urls, &["--sentinel", NAME]).runs_one_at_a_time(|| {});
}

#[test]
fn run_works_in_a_cluster() {
    let cluster = Cluster::masters();
    let urls = cluster.urls();
    let to = (cluster.owner_of("demo") + 1) % 3;
    // While the lock is held, the slot moves to another master.
    Servers::of(&urls, &["--cluster"]).runs_one_at_a_time(|| cluster.migrate("demo", to));
}

#[test]
fn run_works_on_a_majority_of_masters() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    // A new server may have forgotten a lease. So it gets its vote after the longest lease.
    let mode = ["--redlock", "--lease", "2s", "--max-lease", "2s"];
    Servers::of(&urls, &mode).runs_one_at_a_time(|| servers[2].kill());
}

#[test]
fn run_works_over_tls() {
    let certificates = Certificates::new();
    let (args, port) = certificates.server_args(&certificates.server(), false);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let _server = RedisServer::with(&args);
    let url = format!("rediss://localhost:{port}");
    let authority = certificates.authority();
    let mode = ["--url", &url, "--ca", authority.to_str().unwrap()];
    Servers(mode.to_vec()).runs_one_at_a_time(|| {});
    // The server's certificate is not signed by this authority.
    let other = Certificates::new().authority_pem();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    fs::write(&file, other).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mode = ["--url", &url, "--ca", file.to_str().unwrap()];
    let output = Servers(mode.to_vec()).run(&["demo", "--", "echo", "in"]);
    let output = { output }.output().unwrap();
    ends_with(&output, 125);
    assert_eq!(stdout(&output), "");
    assert!(
        stderr(&output).contains("certificate"),
        "{}",
        stderr(&output)
    );
}
