use super::*;

#[test]
fn missing_scripts_and_commands_are_recognised() {
    let is_missing = |text: &str| (lacks_script(text), lacks_evalsha(text), lacks_eval(text));
    for (text, expected) in [
        ("NOSCRIPT No matching script.", (true, false, false)),
        ("ERR unknown command 'EVALSHA', with", (true, true, false)),
        ("ERR unknown command `EVALSHA`, with", (true, true, false)),
        ("ERR unknown command `EVAL`, with", (false, false, true)),
        (
            "NOPERM no permissions to run the 'evalsha' command",
            (true, true, false),
        ),
        ("ERR unknown command 'EVAL', with", (false, false, true)),
        (
            "NOPERM no permissions to run the 'eval' command",
            (false, false, true),
        ),
        (
            "NOPERM no permissions to run the 'get' command",
            (false, false, false),
        ),
        ("ERR unknown command 'GET'", (false, false, false)),
        (
            "ERR wrong number of arguments for 'evalsha' command",
            (false, false, false),
        ),
        (
            "ERR wrong number of arguments for 'eval' command",
            (false, false, false),
        ),
        ("", (false, false, false)),
    ] {
        assert_eq!(is_missing(text), expected, "{text}");
    }
}
