//! `--once-per`: runs that count, and marks.

use super::*;

#[test]
fn a_job_runs_once_per_period() {
    let server = RedisServer::start();
    let job = |args: &[&str]| {
        let all = [
            &["run", "--once-per", "1h"],
            args,
            &["job", "--", "echo", "in"],
        ]
        .concat();
        at(&server, &all)
    };
    ends_with(&job(&[]), 0);
    let again = job(&[]);
    ends_with(&again, 120);
    assert_eq!(stdout(&again), "");
    ends_with(&job(&["-E", "0"]), 0);
    ends_with(&job(&["--once-key", "today"]), 0);
    ends_with(&job(&["--once-key", "today"]), 120);
    let life = Duration::from_millis(server.int(&["PTTL", "job:once"]).try_into().unwrap());
    // The default slack is a tenth of the period, at most five minutes.
    assert!(
        life <= Duration::from_secs(3300) && life > Duration::from_secs(3200),
        "{life:?}"
    );
}

#[test]
fn a_command_that_was_not_started_does_not_count() {
    let server = RedisServer::start();
    let job = |command: &[&str]| {
        let args = ["run", "--once-per", "1h", "job", "--"];
        at(&server, &[&args[..], command].concat())
    };
    ends_with(&job(&["/nowhere/at/all"]), 127);
    ends_with(&job(&["/etc/passwd"]), 126);
    // If the command itself exits with 127, it counts as run.
    ends_with(&job(&["sh", "-c", "exit 127"]), 127);
    ends_with(&job(&["true"]), 120);
}

#[test]
fn mark_success_counts_only_exit_code_0() {
    let server = RedisServer::start();
    let job = |script: &str| {
        let args = [
            "run",
            "--once-per",
            "1h",
            "--mark",
            "success",
            "job",
            "--",
            "sh",
            "-c",
            script,
        ];
        at(&server, &args)
    };
    ends_with(&job("exit 3"), 3);
    ends_with(&job("exit 0"), 0);
    ends_with(&job("exit 0"), 120);
}

/// An invalid period is rejected before redlatch waits for the lock.
#[test]
fn an_impossible_period_is_rejected_at_once() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("job");
    lock.lock().unwrap();
    for (period, expected) in [
        (["--once-per", "400d", "--slack", "1h"], "365d"),
        (["--once-per", "1h", "--slack", "1h"], "--slack"),
    ] {
        let args = ["--wait", "60s", "job", "--", "echo", "in"];
        let output = at(&server, &[&["run"], &period[..], &args].concat());
        ends_with(&output, 125);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

/// `list` and `inspect` tell a mark from a stuck lock, and show when the job may run again.
#[test]
fn list_and_inspect_explain_a_once_per_mark() {
    let server = RedisServer::start();
    let run = |args: &[&str]| {
        let before = ["run", "--once-per", "2h", "--slack", "1h"];
        at(&server, &[&before[..], args, &["--", "true"]].concat())
    };
    ends_with(&run(&["job"]), 0);
    ends_with(&run(&["--once-key", "today", "other"]), 0);
    client_of(&server.url()).lock("plain").lock().unwrap();
    let again = run(&["job"]);
    ends_with(&again, 120);
    assert!(
        stderr(&again).contains("again in 59m"),
        "{}",
        stderr(&again)
    );

    let listed = stdout(&at(&server, &["list"]));
    let line = |name: &str| {
        let mut lines = listed.lines();
        lines.find(|it| it.starts_with(name)).unwrap().to_owned()
    };
    for mark in ["job:once", "other:once:today"] {
        let line = line(mark);
        assert!(
            line.contains("mark") && line.contains("again in 59m"),
            "{line}"
        );
    }
    assert!(!line("plain").contains("mark"), "{listed}");
    for (name, job) in [
        ("job:once", Some("job")),
        ("other:once:today", Some("other")),
        ("plain", None),
    ] {
        let printed = stdout(&at(&server, &["inspect", name, "--json"]));
        let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
        crate::schema::assert_matches("lock", &printed);
        assert_eq!(printed["mark_of"].as_str(), job, "{printed}");
        let text = stdout(&at(&server, &["inspect", name]));
        // " once," would look like a count.
        assert!(!text.contains(" once,"), "{text}");
        assert!(text.contains("count 1"), "{text}");
        assert_eq!(text.contains("again"), job.is_some(), "{text}");
        if job.is_some() {
            assert!(
                text.contains("--once-per") && text.contains("59m"),
                "{text}"
            );
            assert!(!text.contains("renewed"), "{text}");
        }
    }
}
