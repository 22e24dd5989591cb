use super::*;

const CLIENT: &str = "1f6f2c9e-0b7a-4c8e-9d53-5a1f3c2b4d6e";

#[test]
fn fields_of_both_libraries_are_read() {
    let ours = Holder::of_field(&format!("{CLIENT}:7:12"), 2);
    assert_eq!((ours.thread, ours.hold, ours.by), (Some(7), Some(12), OURS));
    assert_eq!((ours.client.as_deref(), ours.count), (Some(CLIENT), 2));
    let theirs = Holder::of_field(&format!("{CLIENT}:31"), 1);
    assert_eq!(
        (theirs.thread, theirs.hold, theirs.by),
        (Some(31), None, REDISSONS)
    );
    let writer = Holder::of_field(&format!("{CLIENT}:7:12:write"), 1);
    assert_eq!((writer.thread, writer.hold), (Some(7), Some(12)));
}

#[test]
fn foreign_fields_are_not_holds() {
    for field in [
        "mode",
        "user:7",
        "1f6f2c9e:7",
        &format!("{CLIENT}:"),
        &format!("{CLIENT}:-7"),
        &format!("{CLIENT}:+7"),
        &format!("{CLIENT}:7:x"),
        &format!("{CLIENT}:7:1:2"),
        &format!("x{CLIENT}:7"),
        CLIENT,
    ] {
        assert!(Parts::of(field).is_none(), "{field}");
    }
}

fn info(node: &str, visitor: &str, seconds: u64) -> LockInfo {
    LockInfo {
        holders: vec![Holder::of_field(visitor, 1)],
        expires: Some(Duration::from_secs(seconds)),
        ..LockInfo::free(&"orders".into(), LockKind::Reentrant, node.into())
    }
}

#[test]
fn a_quorum_shows_the_holder_at_most_nodes() {
    let told = vec![
        info("a", "left over", 9),
        info("b", "holder", 5),
        info("c", "holder", 4),
        info("d", "holder", 6),
    ];
    let merged = merge_nodes(told, 3, 5).unwrap_or_else(|| panic!("somebody holds it"));
    assert_eq!(merged.nodes, Some((3, 5)));
    let holders: Vec<_> = merged.holders.iter().map(|it| &*it.visitor).collect();
    assert_eq!((holders, &*merged.node), (vec!["holder"], "b, c, d"));
    assert_eq!(merged.expires, Some(Duration::from_secs(4)));
}

#[test]
fn a_token_is_shown_in_part_with_a_hash() {
    let mut info = info("a", "0123456789abcdefghij", 5);
    info.kind = LockKind::Token;
    assert_eq!(info.discreet().holders[0].visitor, "0123…2da0d631");
}
