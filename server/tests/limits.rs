//! Scripts that would never end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redlatch_server::{Config, Server};

#[test]
fn an_endless_script_is_ended_wherever_it_loops() {
    let mut server = Server::new(Config::default(), 0);
    server.connect(1);
    for script in [
        "while true do end",
        "pcall(function() while true do end end) return 1",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "local co = coroutine.create(function() while true do end end) while true do coroutine.resume(co) end",
        "xpcall(function() error('a') end, function() while true do end end)",
        "xpcall(function() while true do end end, function() while true do end end)",
    ] {
        let sent = server.command(0, 1, &["EVAL", script, "0"]);
        let reply = String::from_utf8_lossy(&sent[0].bytes).into_owned();
        assert!(
            reply.contains("Script ran for too long"),
            "{script}: {reply}"
        );
        // The time limit of the next script begins anew.
        let sent = server.command(0, 1, &["EVAL", "return 7", "0"]);
        assert_eq!(sent[0].bytes, b":7\r\n", "{script}");
    }
}
