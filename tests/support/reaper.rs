//! Kills the children of this process as soon as it has ended, however it ended.
//!
//! A shell gets their process ids, and kills the remaining ones when its stdin closes.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

const SCRIPT: &str = r#"
    trap '' HUP INT TERM
    left=" "
    while read -r what pid; do
        case $what in
            keep) left="$left$pid " ;;
            drop) case $left in *" $pid "*) left="${left%% "$pid" *} ${left#* "$pid" }" ;; esac ;;
        esac
    done
    [ "$left" = " " ] || kill -KILL $left 2>/dev/null
"#;

/// Registers a child, which then ends with this process.
pub fn register(child: &Child) {
    send("keep", child.id());
}

/// Removes a child that has ended, because its process id may be reused.
pub fn unregister(pid: u32) {
    send("drop", pid);
}

fn send(what: &str, pid: u32) {
    // It outlives this process, so it is never waited for.
    static REAPER: OnceLock<Mutex<Child>> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Mutex::new(shell.expect("a shell"))
    });
    let mut reaper = reaper.lock().unwrap_or_else(PoisonError::into_inner);
    let stdin = reaper.stdin.as_mut().expect("a piped stdin");
    writeln!(stdin, "{what} {pid}").expect("the shell listens");
}
