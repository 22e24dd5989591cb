//! `run` on a terminal, in a shell with job control.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;

use super::*;

/// A shell on a terminal of its own, and the output of this terminal.
struct ShellTerminal {
    keys: File,
    shown: Arc<Mutex<String>>,
    shell: Child,
    /// How many bytes of the output were matched.
    read: usize,
}

/// Far more than any step takes.
const LONG: Duration = Duration::from_secs(60);

impl ShellTerminal {
    fn open(server: &RedisServer) -> ShellTerminal {
        let (controller, path) = crate::pseudo_terminal();
        let open = || {
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .custom_flags(OFlags::NOCTTY.bits().cast_signed());
            options.open(&path).unwrap()
        };
        // The terminal becomes the controlling terminal of the shell's session.
        crate::reset_ignored_signals();
        let mut shell = Command::new("setsid");
        shell.args([
            "--ctty",
            "bash",
            "--noprofile",
            "--norc",
            "--noediting",
            "-i",
        ]);
        shell
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .env("PS1", "$ ")
            .env("TERM", "dumb")
            .env("REDLATCH_URL", server.url())
            .env("REDLATCH_COMMAND_TIMEOUT", "20s")
            .env("REDLATCH", env!("CARGO_BIN_EXE_redlatch"));
        let shell = shell.spawn().unwrap();
        let keys = File::from(controller);
        let mut screen = keys.try_clone().unwrap();
        let shown = Arc::<Mutex<String>>::default();
        let shows = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            // The read fails when all other ends are closed.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                shows.lock().unwrap().push_str(&text);
            }
        });
        let mut terminal = ShellTerminal {
            keys,
            shown,
            shell,
            read: 0,
        };
        // Without echo, a program has printed everything that the terminal shows.
        terminal.types("stty -echo; echo rea''dy\n");
        terminal.shows("ready");
        terminal
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for this text. Only output after the last match is searched.
    fn shows(&mut self, text: &str) {
        let until = Instant::now() + LONG;
        loop {
            let shown = self.shown.lock().unwrap().clone();
            if let Some(at) = shown[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            assert!(Instant::now() < until, "{text:?} is not shown:\n{shown}");
            thread::sleep(ms(10));
        }
    }
}

impl Drop for ShellTerminal {
    fn drop(&mut self) {
        let _ = self
            .keys
            .write_all(b"\x03\nkill -KILL %1 2>/dev/null; exit\n");
        let until = Instant::now() + ms(5000);
        while Instant::now() < until && self.shell.try_wait().is_ok_and(|ended| ended.is_none()) {
            thread::sleep(ms(10));
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn a_command_reads_the_terminal() {
    let server = RedisServer::start();
    let mut terminal = ShellTerminal::open(&server);
    terminal.types(
        "$REDLATCH run demo -- sh -c 'echo name?; read name; echo hello $name'; echo code=$?\n",
    );
    terminal.shows("name?");
    terminal.types("world\n");
    terminal.shows("hello world");
    terminal.shows("code=0");
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn ctrl_c_ends_the_command_and_the_wait() {
    let server = RedisServer::start();
    let mut terminal = ShellTerminal::open(&server);
    terminal.types("$REDLATCH run demo -- sh -c 'echo in; exec sleep 1000'; echo code=$?\n");
    terminal.shows("in");
    terminal.types("\x03");
    terminal.shows("code=130");
    assert_eq!(server.int(&["DBSIZE"]), 0);
    // A command that handles INT chooses its own exit code.
    let script = "trap \"echo caught; exit 4\" INT; echo in; while :; do sleep 0.05; done";
    terminal.types(&format!(
        "$REDLATCH run demo -- sh -c '{script}'; echo code=$?\n"
    ));
    terminal.shows("in");
    terminal.types("\x03");
    terminal.shows("caught");
    terminal.shows("code=4");

    let lock = client_of(&server.url()).lock("demo");
    lock.lock().unwrap();
    terminal.types("$REDLATCH run demo -- echo in; echo code=$?\n");
    terminal.shows("waiting for demo");
    terminal.types("\x03");
    terminal.shows("code=130");
    lock.unlock().unwrap();
}

#[test]
fn a_second_ctrl_c_ends_only_a_command_that_ignores_it() {
    let server = RedisServer::start();
    let mut terminal = ShellTerminal::open(&server);
    let script = "trap \"\" INT; echo in; while :; do sleep 0.05; done";
    terminal.types(&format!(
        "$REDLATCH run demo -- sh -c '{script}'; echo code=$?\n"
    ));
    terminal.shows("in");
    terminal.types("\x03");
    thread::sleep(ms(300));
    terminal.types("\x03");
    terminal.shows("sending TERM");
    terminal.shows("code=143");
    // Like a shell or a database, this script reads the next line after INT.
    let script = "trap \"echo caught\" INT; echo in; until read go; do :; done; echo done";
    terminal.types(&format!(
        "$REDLATCH run --kill-after 100ms demo -- sh -c '{script}'; echo code=$?\n"
    ));
    terminal.shows("in");
    for _ in 0..2 {
        terminal.types("\x03");
        terminal.shows("caught");
        thread::sleep(ms(300));
    }
    terminal.types("go\n");
    terminal.shows("done");
    terminal.shows("code=0");
}

#[test]
fn a_stopped_command_continues_in_the_foreground() {
    let server = RedisServer::start();
    let mut terminal = ShellTerminal::open(&server);
    // The shell may print this line. The quotes make the line differ from the command's output.
    let script = r#"echo i""n; read go; echo do""ne"#;
    terminal.types(&format!(
        "$REDLATCH run demo -- sh -c '{script}'; echo code=$?\n"
    ));
    terminal.shows("in");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.types("fg; echo code=$?\n");
    terminal.types("go\n");
    terminal.shows("done");
    terminal.shows("code=0");

    // A run that was stopped for longer than its lease has lost its lock, so it ends.
    terminal.types(&format!(
        "$REDLATCH run --lease 2s demo -- sh -c '{script}'; echo code=$?\n"
    ));
    terminal.shows("in");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    let lock = client_of(&server.url()).lock("demo");
    assert!(
        lock.try_lock_for(LONG).unwrap(),
        "the lock is free after a lease"
    );
    terminal.types("fg; echo code=$?\n");
    terminal.shows("code=121");
    assert!(!terminal.shown.lock().unwrap()[terminal.read..].contains("done"));
    lock.unlock().unwrap();
}
