//! A real server whose wall clock has the value set by the test.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use redlatch_server_checks::Reply;

use super::calls::decoded;
use super::versions::Version;

/// The server's output ends with the reply to a PING with this text.
const END: &[u8] = b"~the-end\r\n";

pub(crate) struct Real {
    process: Child,
    port: u16,
    clock: File,
    pub(crate) version: Version,
}

/// Prints once for all tests that they are skipped.
static SAID: Once = Once::new();

pub(crate) struct Wire(TcpStream);

impl Real {
    /// Starts the server. Returns `None`, and prints a note, if its clock cannot be fixed.
    pub(crate) fn start() -> Option<Real> {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("differential-{port}"));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("clock");
        fs::write(&path, super::NOW.to_ne_bytes()).unwrap();
        let shim = shim(&folder);
        let process = Command::new(&program)
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
            ])
            .arg(&folder)
            .env("LD_PRELOAD", shim)
            .env("REDLATCH_CLOCK_STANDS", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut real = Real {
            process,
            port,
            clock: File::options().write(true).open(path).unwrap(),
            version: Version::read(""),
        };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                start.elapsed().as_secs() < 10,
                "redis-server does not start"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let info = text_of(
            &real
                .wire()
                .ask(&[vec![b"INFO".to_vec(), b"server".to_vec()]])[0],
        );
        real.version = Version::read(&info);
        if !real.holds_its_clock() {
            let said = || println!("skipped: the clock of {} cannot be held", real.version);
            SAID.call_once(said);
            return None;
        }
        Some(real)
    }

    /// Whether the server has the time set by the test. Valkey 9 adds the time of the processor's clock.
    fn holds_its_clock(&self) -> bool {
        let mut wire = self.wire();
        let mut is_held = |now: i64| {
            self.set_clock(now);
            std::thread::sleep(Duration::from_millis(2));
            let parts = [now / 1_000_000, now % 1_000_000].map(|it| Reply::text(it.to_string()));
            wire.ask(&[vec![b"TIME".to_vec()]]) == [Reply::Array(parts.to_vec())]
        };
        (1..10).all(|step| is_held(super::NOW + step * 1_234_567)) && is_held(super::NOW)
    }

    pub(crate) fn set_clock(&self, micros: i64) {
        self.clock.write_all_at(&micros.to_ne_bytes(), 0).unwrap();
    }

    pub(crate) fn wire(&self) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Wire(stream)
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Wire {
    /// Sends requests and returns all replies.
    pub(crate) fn ask(&mut self, requests: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let ping = [b"PING".to_vec(), b"~the-end".to_vec()];
        let mut bytes = Vec::new();
        for words in requests.iter().map(Vec::as_slice).chain([&ping[..]]) {
            Reply::Array(words.iter().cloned().map(Reply::Bulk).collect()).encode(&mut bytes);
        }
        self.0.write_all(&bytes).unwrap();
        let (mut found, mut part) = (Vec::new(), [0; 1 << 16]);
        while !found.ends_with(END) {
            let length = self.0.read(&mut part).unwrap();
            assert!(length > 0, "the server has closed the connection");
            found.extend(&part[..length]);
        }
        let (mut replies, mut at) = (Vec::new(), 0);
        while at < found.len() {
            replies.push(decoded(&found, &mut at));
        }
        replies.pop();
        replies
    }
}

pub(crate) fn text_of(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        reply => format!("{reply:?}"),
    }
}

/// Compiles the library that fixes the clock.
fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, include_str!("../../../support/clock_shim.c")).unwrap();
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(
        compiler.is_ok_and(|it| it.success()),
        "the clock cannot be compiled by `cc`"
    );
    library
}
