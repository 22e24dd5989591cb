//! A panic while the screen is shown. It happens in a process of its own.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Command;
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;

use super::super::screen::Screen;

const MESSAGE: &str = "the message of the panic";

#[test]
#[ignore = "a helper of the test below, which runs it on a terminal"]
fn panics() {
    let _screen = Screen::enter().unwrap();
    panic!("{MESSAGE}");
}

#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let mut options = OpenOptions::new();
    let terminal = options.read(true).write(true);
    let terminal = terminal.open(name.to_str().unwrap()).unwrap();
    let before = tcgetattr(&terminal).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture"]);
    command.arg("watch::tests::panic::panics");
    command.stdin(terminal.try_clone().unwrap());
    command.stdout(terminal.try_clone().unwrap());
    command.stderr(terminal.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut controller = File::from(controller);
    let reader = thread::spawn(move || {
        let (mut shown, mut part) = (Vec::new(), [0; 4096]);
        // The read fails when the other end is closed.
        while let Ok(read @ 1..) = controller.read(&mut part) {
            shown.extend_from_slice(&part[..read]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    assert!(!child.wait().unwrap().success());
    assert_eq!(
        tcgetattr(&terminal).unwrap().local_modes,
        before.local_modes
    );
    drop(terminal);
    let shown = reader.join().unwrap();
    let entered = shown.find("\u{1b}[?1049h").unwrap();
    let left: Vec<_> = shown.match_indices("\u{1b}[?1049l").collect();
    let message = shown.find(MESSAGE).unwrap();
    assert_eq!(left.len(), 1, "{shown:?}");
    assert!(entered < left[0].0 && left[0].0 < message, "{shown:?}");
}
