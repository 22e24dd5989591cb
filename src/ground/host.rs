const LONGEST_HOST: usize = 64;

/// Returns `PID@HOST`, without the characters that a server refuses in a connection name.
pub(crate) fn pid_at_host() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let visible = host.chars().filter(char::is_ascii_graphic);
    let host: String = visible.take(LONGEST_HOST).collect();
    format!("{}@{host}", crate::ground::process::id())
}
