//! The screen of `watch` on a pseudo terminal.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::TIMEOUT;
use crate::support::{RedisServer, eventually, ms};
use crate::{client_of, pseudo_terminal, redlatch};

/// The sequences that enter and leave the alternate screen.
const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";

/// A terminal that runs `watch`.
struct WatchTerminal {
    controller: OwnedFd,
    terminal: File,
    child: Child,
    before: Termios,
    /// The output that `until` has not matched yet.
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    is_reader_stopped: Arc<AtomicBool>,
}

impl WatchTerminal {
    fn start(server: &RedisServer, args: &[&str]) -> WatchTerminal {
        let (controller, path) = pseudo_terminal();
        let terminal = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        resize(&controller, 80, 24);
        let before = tcgetattr(&terminal).unwrap();
        let mut command: Command = redlatch();
        command.env("REDLATCH_URL", server.url());
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        command.args(["watch", "--interval", "100ms"]).args(args);
        command.stdin(terminal.try_clone().unwrap());
        command.stdout(terminal.try_clone().unwrap());
        command.stderr(terminal.try_clone().unwrap());
        let child = command.spawn().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let is_reader_stopped = Arc::new(AtomicBool::new(false));
        fcntl_setfl(&controller, OFlags::NONBLOCK).unwrap();
        let mut input = File::from(controller.try_clone().unwrap());
        let (all, ends) = (Arc::clone(&shown), Arc::clone(&is_reader_stopped));
        let reader = thread::spawn(move || {
            let mut part = [0; 4096];
            while !ends.load(Ordering::SeqCst) {
                match input.read(&mut part) {
                    Ok(read @ 1..) => all.lock().unwrap().extend_from_slice(&part[..read]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(ms(5)),
                    // The other end is closed.
                    _ => return,
                }
            }
        });
        WatchTerminal {
            controller,
            terminal,
            child,
            before,
            shown,
            reader,
            is_reader_stopped,
        }
    }

    /// Waits for a text. Removes and returns the output up to the end of this text.
    #[track_caller]
    fn until(&self, text: &str) -> String {
        let mut taken: Option<Vec<u8>> = None;
        eventually(TIMEOUT, text, || {
            let mut shown = self.shown.lock().unwrap();
            let mut places = shown.windows(text.len());
            let found = places.position(|it| it == text.as_bytes());
            taken = found.map(|at| shown.drain(..at + text.len()).collect());
            taken.is_some()
        });
        String::from_utf8_lossy(&taken.unwrap_or_default()).into_owned()
    }

    fn press(&self, keys: &str) {
        let mut controller = File::from(self.controller.try_clone().unwrap());
        controller.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the exit, and asserts that the terminal is restored.
    #[track_caller]
    fn ends_with(mut self, code: i32) {
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
        let shown = self.until(LEAVE_SCREEN);
        assert!(
            shown.contains("\u{1b}[?25h"),
            "the cursor is visible: {shown:?}"
        );
        self.assert_terminal_is_restored();
    }

    #[track_caller]
    fn assert_terminal_is_restored(&self) {
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
    }
}

fn resize(controller: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(controller, size).unwrap();
}

#[test]
fn watch_draws_resizes_and_restores_the_terminal() {
    let server = RedisServer::start();
    let lock = client_of(&server.url()).lock("orders:42");
    lock.lock().unwrap();
    let watch = WatchTerminal::start(&server, &[]);
    watch.until(ENTER_SCREEN);
    let shown = watch.until("sort: name");
    for word in ["NAME", "HOLDER", "LISTEN", "orders:42"] {
        assert!(shown.contains(word), "{word}: {shown:?}");
    }
    // A wide screen has an additional column.
    resize(&watch.controller, 160, 24);
    watch.signal(Signal::WINCH);
    watch.until("KIND");
    // `u` and `y` release the selected hold.
    watch.press("u");
    watch.until("working.");
    watch.press("y");
    watch.until("was released");
    assert!(!lock.is_locked().unwrap());
    watch.until("by force");
    watch.press("q");
    watch.ends_with(0);
}

#[test]
fn a_signal_restores_the_terminal() {
    let server = RedisServer::start();
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1), (Signal::INT, 2)] {
        let watch = WatchTerminal::start(&server, &[]);
        watch.until("sort: name");
        watch.signal(signal);
        watch.ends_with(128 + number);
    }
}

#[test]
fn watch_ends_with_its_terminal() {
    let server = RedisServer::start();
    let watch = WatchTerminal::start(&server, &[]);
    watch.until("sort: name");
    let WatchTerminal {
        controller,
        mut child,
        reader,
        is_reader_stopped,
        ..
    } = watch;
    is_reader_stopped.store(true, Ordering::SeqCst);
    reader.join().unwrap();
    drop(controller);
    eventually(TIMEOUT, "it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_stop_restores_the_terminal_until_cont() {
    let server = RedisServer::start();
    let watch = WatchTerminal::start(&server, &[]);
    watch.until("sort: name");
    let pid = Pid::from_child(&watch.child);
    for by_key in [true, false] {
        match by_key {
            true => watch.press("\u{1a}"),
            false => watch.signal(Signal::TSTP),
        }
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED;
        let status = waitid(WaitId::Pid(pid), either).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
        watch.until(LEAVE_SCREEN);
        watch.assert_terminal_is_restored();
        watch.signal(Signal::CONT);
        watch.until(ENTER_SCREEN);
        watch.until("sort: name");
    }
    watch.press("\u{3}");
    watch.ends_with(0);
}

#[test]
fn the_screen_shows_an_unreachable_server() {
    let server = RedisServer::start();
    let watch = WatchTerminal::start(&server, &["--color", "never"]);
    watch.until("sort: name");
    server.kill();
    watch.until("NO ANSWER");
    server.restart();
    let shown = watch.until("replies again");
    assert!(!shown.contains("\u{1b}[31m"), "no colours: {shown:?}");
    watch.press("q");
    watch.ends_with(0);
}
