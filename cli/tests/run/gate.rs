//! No command runs before the process that ends it in time knows of it.

use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::*;

/// Stops the process that first names the command to its switch, just before it does so.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int file, const void *bytes, size_t length) {
    uint64_t first = 0;
    if (length == 16) memcpy(&first, bytes, sizeof first);
    if (first != 0 && first < (1 << 24)) raise(SIGSTOP);
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return next(file, bytes, length);
}
"#;

#[test]
#[cfg(target_os = "linux")]
fn a_redlatch_that_is_stopped_before_that_starts_nothing() {
    const LEASE: Duration = ms(3000);
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("stop.c"), folder.path().join("stop.so"));
    fs::write(&source, SHIM).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    assert!(compiler.arg(&source).status().unwrap().success());
    let server = RedisServer::start();
    let args = ["--lease", "3s", "demo", "--", "touch", "ran"];
    let mut command = run_at(&server.url(), &args);
    command
        .current_dir(folder.path())
        .env("LD_PRELOAD", &library);
    let child = command.spawn().unwrap();
    waitid(WaitId::Pid(pid_of(&child)), WaitIdOptions::STOPPED).unwrap();
    let other = client_of(&server.url()).lock("demo");
    assert!(other.try_lock_for(LEASE * 10).unwrap());
    let ran = folder.path().join("ran");
    assert!(!ran.exists(), "it ran without a switch");
    kill_process(pid_of(&child), Signal::CONT).unwrap();
    ends_with(&child.wait_with_output().unwrap(), 121);
    assert!(!ran.exists(), "it ran without a lock");
}
