use super::*;

const CLIENT: &str = "1f6f2c9e-0b7a-4c8e-9d53-5a1f3c2b4d6e";

fn of(pairs: &[(&str, &str)]) -> Option<Hash> {
    let text = |text: &str| Value::BulkString(text.into());
    let pairs = pairs
        .iter()
        .flat_map(|(field, value)| [text(field), text(value)]);
    read(&"orders".into(), &Value::Array(pairs.collect()), false)
}

#[test]
fn a_hash_is_a_lock_if_all_fields_are_holds() {
    let (holder, other) = (format!("{CLIENT}:7:1"), format!("{CLIENT}:8"));
    let plain = of(&[(&holder, "2")]);
    assert_eq!(plain.map(|it| it.holders[0].count), Some(2));
    assert!(of(&[(&holder, "2"), (&other, "1")]).is_none());
    assert!(of(&[(&holder, "two")]).is_none());
    assert!(of(&[(&holder, "-1")]).is_none());
    assert!(of(&[("name", "Ada")]).is_none());
    assert!(of(&[]).is_none());
}

#[test]
fn the_mode_field_makes_a_read_write_lock() {
    let (reader, writer) = (format!("{CLIENT}:7:1"), format!("{CLIENT}:8:2:write"));
    let read = of(&[("mode", "read"), (&reader, "1")]);
    assert_eq!(read.and_then(|it| it.side), Some(LockKind::Read));
    let written = of(&[("mode", "write"), (&writer, "1"), (&reader, "1")]);
    let written = written.unwrap_or_else(|| panic!("it is a lock"));
    assert_eq!(
        (written.side, written.holders.len()),
        (Some(LockKind::Write), 2)
    );
    assert!(of(&[("mode", "dark"), (&reader, "1")]).is_none());
    // These hashes are not locks, although the value looks like a hold count.
    assert!(of(&[("mode", "1")]).is_none() && of(&[("name", "1")]).is_none());
}

#[test]
fn a_known_lock_may_have_holds_without_uuid() {
    for field in ["foreign:7", "foreign:7:x", "a:1:write"] {
        assert!(
            is_of_a_lock(field, true) && !is_of_a_lock(field, false),
            "{field}"
        );
    }
    for field in ["foreign", "foreign:", "foreign:x"] {
        assert!(!is_of_a_lock(field, true), "{field}");
    }
}
