use super::*;

#[test]
fn what_a_server_says_is_told_without_its_scripts() {
    let said = [
        (
            "WRONGTYPE Operation against a key script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:25.",
            "WRONGTYPE Operation against a key",
        ),
        (
            "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:1: WRONGTYPE Operation",
            "WRONGTYPE Operation",
        ),
        (
            "ERR Error running script (call to f_6b1b): @user_script: 12: -NOPERM this user",
            "-NOPERM this user",
        ),
        (
            "ERR user_script:30: attempt to compare nil script: 6b1b, on @user_script:30.",
            "ERR attempt to compare nil",
        ),
        ("TRYAGAIN the clock", "the clock"),
        ("OOM command not allowed", "OOM command not allowed"),
    ];
    for (text, expected) in said {
        assert_eq!(plain(text), expected);
    }
}
