use super::*;

#[test]
fn times_are_read() {
    let read = |text: &str| parse_duration(text).map(|it| it.as_millis());
    assert_eq!(read("500ms"), Ok(500));
    assert_eq!(read("30s"), Ok(30_000));
    assert_eq!(read("5m"), Ok(300_000));
    assert_eq!(read("2h"), Ok(7_200_000));
    assert_eq!(read("1d"), Ok(86_400_000));
    for text in [
        "",
        "5",
        "s",
        "-5s",
        "5 s",
        "1.5s",
        "5w",
        "99999999999999999999s",
        "999999999999999999d",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}
