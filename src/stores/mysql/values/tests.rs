use super::*;

#[test]
fn a_value_in_a_message_is_one_line() {
    let text = literal(&Value::from("a'b\n\u{1b}[2J\u{202e}"));
    assert_eq!(text, r"'a''b\n\u{1b}[2J\u{202e}'");
    assert_eq!(literal(&Value::from(&[0xff_u8, 0][..])), "0xFF00");
    let longest = Value::Time(true, u32::MAX, 255, 59, 59, 0);
    assert_eq!(literal(&longest), "a TIME out of range");
    let span = Value::Time(true, 34, 22, 59, 59, 1);
    assert_eq!(literal(&span), "'-838:59:59.000001'");
}
