//! Passwords and certificates that change while a command runs, and TLS options.

use super::*;
use crate::support::topology_fixtures::Certificates;
use crate::support::topology_fixtures::certificates::Pair;

const CANARY: &str = "canary-9d1e";

fn cut(server: &RedisServer) {
    for kind in ["normal", "pubsub"] {
        server.cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

/// Asserts that the command survives three renewals after the change, and exits with 7.
fn outlives(args: &[&str], change: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo $$; while [ ! -e go ]; do sleep 0.05; done; exit 7";
    let run = ["run", "--lease", "6s", "--command-timeout", "4s"];
    let mut command = redlatch();
    command.args(run).args(args);
    command.args(["demo", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    command_pid(&mut child);
    change();
    thread::sleep(ms(9000));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the command is still running"
    );
    fs::write(folder.path().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 7);
    assert!(!stderr(&output).contains(CANARY), "{}", stderr(&output));
}

#[test]
fn a_command_survives_a_password_change() {
    let server = RedisServer::start();
    server.set_password("app", &format!("{CANARY}-old"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let write = |password: &str| fs::write(&file, format!("{CANARY}-{password}\n")).unwrap();
    write("old");
    let url = format!("redis://app@127.0.0.1:{}", server.port());
    let args = ["--url", &url, "--password-file", file.to_str().unwrap()];
    outlives(&args, || {
        server.set_password("app", &format!("{CANARY}-new"));
        cut(&server);
        thread::sleep(ms(500));
        write("new");
    });
    // `list` waits for nothing, so a wrong password fails at once.
    write("wrong");
    let output = redlatch().arg("list").args(args).output().unwrap();
    ends_with(&output, 3);
    let message = stderr(&output);
    assert!(
        message.contains("WRONGPASS") && !message.contains(CANARY),
        "{message}"
    );
}

/// Starts a TLS server that requires client certificates of this authority.
fn server(certificates: &Certificates, pair: &Pair) -> (RedisServer, String) {
    let (args, port) = certificates.server_args(pair, true);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let url = format!("rediss://127.0.0.1:{port}");
    (RedisServer::with(&args), url)
}

#[test]
fn a_command_survives_a_change_of_all_certificates() {
    let (old, new) = (Certificates::new(), Certificates::new());
    let (server, url) = server(&old, &old.server());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let give = |certificates: &Certificates| {
        let pair = certificates.client();
        fs::write(path("ca"), certificates.authority_pem()).unwrap();
        fs::write(path("cert"), pair.certificate_pem()).unwrap();
        fs::write(path("key"), pair.key_pem()).unwrap();
    };
    give(&old);
    let (ca, cert, key) = (path("ca"), path("cert"), path("key"));
    let args = ["--url", &url, "--ca", &ca, "--cert", &cert, "--key", &key];
    outlives(&args, || {
        let pair = new.server();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        server.cmd(&[
            "CONFIG",
            "SET",
            "tls-cert-file",
            &text(&pair.certificate),
            "tls-key-file",
            &text(&pair.key),
            "tls-ca-cert-file",
            &text(&new.authority()),
        ]);
        cut(&server);
        thread::sleep(ms(500));
        give(&new);
    });
}

#[test]
fn tls_names_and_pins_are_checked() {
    let certificates = Certificates::new();
    let list = |url: &str, args: &[&str]| {
        let mut command = redlatch();
        command.args(["list", "--url", url]).args(args);
        command.output().unwrap()
    };
    let client = certificates.client();
    let identity = [
        "--cert",
        client.certificate.to_str().unwrap(),
        "--key",
        client.key.to_str().unwrap(),
    ];
    let [hex, _] = certificates.authority_pin();
    let (_pinned, url) = server(&certificates, &certificates.of_itself());
    ends_with(
        &list(&url, &[&identity[..], &["--tls-pin", &hex]].concat()),
        0,
    );
    let other = "0".repeat(64);
    let output = list(&url, &[&identity[..], &["--tls-pin", &other]].concat());
    ends_with(&output, 4);
    assert!(stderr(&output).contains(&hex), "{}", stderr(&output));
    ends_with(&list(&url, &["--tls-pin", "abc"]), 2);

    let authority = certificates.authority();
    let ca = [&identity[..], &["--ca", authority.to_str().unwrap()]].concat();
    let (_named, url) = server(&certificates, &certificates.elsewhere());
    let named = [&ca[..], &["--tls-name", "elsewhere.example"]].concat();
    ends_with(&list(&url, &named), 0);
    ends_with(&list(&url, &ca), 4);
}

#[test]
fn sentinel_options_need_sentinels() {
    let url = ["--url", "redis://127.0.0.1:1"];
    let needs = |args: &[&str], words: &str| {
        let output = redlatch().arg("list").args(args).output().unwrap();
        ends_with(&output, 2);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    needs(
        &[&url[..], &["--master-tls", "yes"]].concat(),
        "--sentinel MASTER",
    );
    needs(
        &[&url[..], &["--sentinel-ca", "/ca"]].concat(),
        "--sentinel MASTER",
    );
    let sentinel = ["--node", "redis://127.0.0.1:1", "--sentinel", "shop"];
    needs(
        &[&sentinel[..], &["--master-tls", "maybe"]].concat(),
        "yes or no",
    );
    needs(
        &[&sentinel[..], &["--sentinel-ca", "/ca"]].concat(),
        "ca_certificate",
    );
}
