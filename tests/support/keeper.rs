//! Ends what this process has started as soon as it has ended itself, however that came about.
//!
//! A shell knows the children by number, and kills those that are left when nobody holds its stdin any more.

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

/// Lets the child end with this process.
pub fn keep(child: &Child) {
    tell("keep", child.id());
}

/// Says that the child has ended, and that somebody else may have its number.
pub fn drop(pid: u32) {
    tell("drop", pid);
}

fn tell(what: &str, pid: u32) {
    // It ends behind this process, so nobody waits for it.
    static KEEPER: OnceLock<Mutex<Child>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Mutex::new(shell.expect("a shell"))
    });
    let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
    let stdin = keeper.stdin.as_mut().expect("a piped stdin");
    writeln!(stdin, "{what} {pid}").expect("the shell listens");
}
