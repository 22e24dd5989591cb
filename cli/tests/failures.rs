//! Invalid input, unreachable servers, rights, passwords and output errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{RedisServer, free_port};
use crate::{client_of, ends_with, redlatch, stderr, stdout};

const CANARY: &str = "canary-9d1e";

#[test]
fn invalid_input_prints_one_line_and_exits_with_2() {
    let url = "redis://127.0.0.1:1";
    for (args, expected) in [
        (&["list"][..], "REDLATCH_URL"),
        (&["lst"], "--help"),
        (&[], "no command"),
        (&["list", "--url", url, "--limit", "x"], "--limit"),
        (&["list", "--url", "http://h"], "URL"),
        (
            &["list", "--node", url, "--node", "redis://127.0.0.1:2"],
            "--cluster",
        ),
        (&["list", "--cluster"], "--node"),
        (&["list", "--url", url, "--lease", "30"], "30s"),
        (&["inspect", "", "--url", url], "name"),
        (&["list", "--url", url, "--url-file", "/nowhere"], "--url"),
        (&["list", "--url-file", "/nowhere"], "/nowhere"),
        (&["list", "--url", url, "--user", "me"], "REDLATCH_PASSWORD"),
        (&["unlock", "orders", "--url", url], "--force"),
    ] {
        let output = redlatch().args(args).output().unwrap();
        ends_with(&output, 2);
        let message = stderr(&output);
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
        assert!(
            message.starts_with("redlatch: ") && message.contains(expected),
            "{args:?}: {message}"
        );
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn run_without_dashes_prints_the_correct_form() {
    for (args, missing) in [
        (&["job", "echo", "hi"][..], true),
        (&["job"], true),
        (&["--try", "job", "echo", "-n", "hi"], true),
        (&["job", "echo", "--help-me"], true),
        (&["--nonsense", "job", "--", "echo"], false),
        (&["job", "--"], false),
    ] {
        let mut command = redlatch();
        command.arg("run").args(args);
        let output = command.output().unwrap();
        ends_with(&output, 125);
        let message = stderr(&output);
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
        let is_explained = message.contains("redlatch run NAME -- COMMAND");
        assert_eq!(is_explained, missing, "{args:?}: {message}");
        assert!(
            !(missing && message.contains("tip:")),
            "{args:?}: {message}"
        );
    }
}

#[test]
fn an_unreachable_server_exits_with_3() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    for command in [
        &["list"][..],
        &["inspect", "a"],
        &["unlock", "a", "--force", "--yes"],
    ] {
        let output = redlatch()
            .args(command)
            .args(["--url", &url])
            .output()
            .unwrap();
        ends_with(&output, 3);
        assert!(
            stderr(&output).contains("cannot be reached"),
            "{}",
            stderr(&output)
        );
        let output = redlatch()
            .args(command)
            .args(["--url", &url, "--json"])
            .output()
            .unwrap();
        ends_with(&output, 3);
        let printed: serde_json::Value = serde_json::from_str(&stderr(&output)).unwrap();
        assert_eq!(printed["error"]["kind"], "unreachable", "{printed}");
        crate::schema::assert_matches("error", &printed);
    }
}

#[test]
fn a_user_without_rights_exits_with_4() {
    let server = RedisServer::start();
    let password = format!(">{CANARY}");
    server.cmd(&["ACL", "SETUSER", "me", "on", &password, "~*", "+time"]);
    let run = |password: &str| {
        let mut command = redlatch();
        command.env("REDLATCH_PASSWORD", password);
        command.args(["list", "--user", "me", "--url", &server.url()]);
        command.output().unwrap()
    };
    let denied = run(CANARY);
    ends_with(&denied, 4);
    assert!(stderr(&denied).contains("scan"), "{}", stderr(&denied));
    let wrong = run("canary-wrong");
    ends_with(&wrong, 4);
    for output in [denied, wrong] {
        assert!(!stderr(&output).contains("canary"), "{}", stderr(&output));
    }
}

#[test]
fn a_wrong_password_names_the_server_and_the_user() {
    let server = RedisServer::start();
    server.cmd(&["ACL", "SETUSER", "me", "on", ">right", "~*", "+@all"]);
    let url = server.url();
    let address = format!("127.0.0.1:{}", server.port());
    for command in ["list", "watch", "inspect orders", "run --try orders"] {
        let mut redlatch = redlatch();
        redlatch.env("REDLATCH_PASSWORD", CANARY);
        redlatch.args(command.split(' '));
        redlatch.args(["--user", "me", "--url", &url]);
        if command.starts_with("run") {
            redlatch.args(["--", "true"]);
        }
        let output = redlatch.output().unwrap();
        ends_with(&output, if command.starts_with("run") { 125 } else { 4 });
        let message = stderr(&output);
        assert!(
            message.contains(&address) && message.contains("\"me\""),
            "{message}"
        );
        assert!(!message.contains("lock \"*\""), "{message}");
        assert!(!message.contains(CANARY), "{message}");
        assert_eq!(stdout(&output), "");
    }
    let gone = format!("redis://127.0.0.1:{}", free_port());
    let args = ["list", "orders:", "--json", "--url", &gone];
    let printed = stderr(&redlatch().args(args).output().unwrap());
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        printed["error"]["lock"],
        serde_json::Value::Null,
        "{printed}"
    );
    assert!(
        !printed["error"]["message"].to_string().contains('*'),
        "{printed}"
    );
}

#[test]
fn passwords_come_from_variables_and_files_only() {
    let server = RedisServer::with(&["--requirepass", CANARY]);
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let url = format!("redis://:{CANARY}@127.0.0.1:{}", server.port());
    for flag in ["--url", "--node"] {
        let output = redlatch().args(["list", flag, &url]).output().unwrap();
        ends_with(&output, 2);
        let message = stderr(&output);
        assert!(
            message.contains("REDLATCH_PASSWORD") && message.contains("--password-file"),
            "{message}"
        );
        assert!(!message.contains(CANARY), "{message}");
    }
    client_of(&url).lock("orders").lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let secret = file("password", &format!("{CANARY}\n"), 0o600);
    let whole = file("url", &format!("{url}\n"), 0o600);
    let open = file("open", CANARY, 0o644);
    type Variables<'a> = &'a [(&'a str, &'a str)];
    let runs: [(&[&str], Variables<'_>); 5] = [
        (&["--url", &bare], &[("REDLATCH_PASSWORD", CANARY)]),
        (&["--url", &bare, "--password-file", &secret], &[]),
        (&["--url-file", &whole], &[]),
        (&[], &[("REDLATCH_URL", &url)]),
        (&["--url", &bare, "--password-file", &open], &[]),
    ];
    for (args, variables) in runs {
        let mut command = redlatch();
        command
            .arg("list")
            .args(args)
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        ends_with(&output, 0);
        assert!(stdout(&output).contains("orders"), "{args:?}");
        let is_warned = stderr(&output).contains("chmod 600");
        assert_eq!(
            is_warned,
            args.contains(&&*open),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(!stderr(&output).contains(CANARY), "{}", stderr(&output));
    }
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = redlatch().args(["completions", shell]).output().unwrap();
        ends_with(&output, 0);
        assert!(stdout(&output).contains("inspect"), "{shell}");
    }
    let output = redlatch().arg("man").output().unwrap();
    ends_with(&output, 0);
    assert!(
        stdout(&output).contains(".TH redlatch 1"),
        "{}",
        stdout(&output)
    );
    let page = |name: &str| {
        let output = redlatch().args(["man", name]).output().unwrap();
        ends_with(&output, 0);
        stdout(&output)
    };
    // Each page that the main page names exists.
    let mut named = 0;
    for line in stdout(&output).lines() {
        let line = line.replace('\\', "");
        let Some(name) = line.strip_prefix("redlatch-") else {
            continue;
        };
        let (name, _) = name.split_once("(1)").unwrap();
        let page = page(name);
        let title = format!(".TH redlatch-{name} 1").replace('-', "\\-");
        let plain = title.replace('\\', "");
        assert!(page.contains(&title) || page.contains(&plain), "{page}");
        assert!(
            page.replace('\\', "").contains(&format!("redlatch {name}")),
            "{page}"
        );
        named += 1;
    }
    assert!(named >= 9, "{named}");
    assert!(page("run").replace('\\', "").contains("--max-run"));
    let unknown = redlatch().args(["man", "nothing"]).output().unwrap();
    ends_with(&unknown, 2);
    assert!(stderr(&unknown).contains("--help"), "{}", stderr(&unknown));
    let output = redlatch().arg("--version").output().unwrap();
    ends_with(&output, 0);
    let help = redlatch().args(["unlock", "--help"]).output().unwrap();
    ends_with(&help, 0);
    assert!(stdout(&help).contains("--holder"), "{}", stdout(&help));
}

/// Commands, each with its exit code for a reader that reads everything. The lock `orders:0` is held.
const PRINTING: [(&str, i32); 12] = [
    ("list", 0),
    ("list --json", 0),
    ("inspect orders:0", 0),
    ("inspect free", 1),
    ("unlock free --force --yes", 1),
    ("unlock orders:1 --force --yes", 0),
    ("doctor --read-only --strict", 1),
    ("bench --seconds 1", 0),
    ("man", 0),
    ("completions zsh", 0),
    ("--help", 0),
    ("--version", 0),
];

#[test]
fn a_closed_pipe_is_not_an_error() {
    let server = RedisServer::start();
    let client = client_of(&server.url());
    for at in 0..50 {
        client.lock(&format!("orders:{at}")).lock().unwrap();
    }
    // `watch` runs until its reader closes the output.
    for (args, code) in PRINTING.into_iter().chain([("watch --json", 0)]) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = redlatch();
        command.env("REDLATCH_URL", server.url());
        let output = command.args(args.split(' ')).stdout(writer).output();
        let output = output.unwrap();
        assert_eq!(stderr(&output), "", "{args}");
        assert_eq!(output.status.code(), Some(code), "{args}");
    }
    assert!(!client.lock("orders:1").is_locked().unwrap());
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_exits_with_5() {
    let server = RedisServer::start();
    let client = client_of(&server.url());
    client.lock("orders:0").lock().unwrap();
    client.lock("orders:1").lock().unwrap();
    for (args, _) in PRINTING.into_iter().chain([("watch", 0)]) {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = redlatch();
        command.env("REDLATCH_URL", server.url());
        let output = command.args(args.split(' ')).stdout(full).output();
        let output = output.unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(5), "{args}: {message}");
        assert!(
            message.contains("could not be written"),
            "{args}: {message}"
        );
        assert_eq!(message.lines().count(), 1, "{args}: {message}");
    }
}
