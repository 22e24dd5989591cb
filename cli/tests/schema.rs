//! Checks the JSON output against its schemas.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::RedisServer;
use crate::{at, client_of, stderr, stdout};

/// Returns the first mismatch between a value and a schema. Supports only the keywords that our schemas use.
fn mismatch(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let known = [
        "$schema",
        "title",
        "description",
        "type",
        "const",
        "enum",
        "minimum",
        "properties",
        "required",
        "additionalProperties",
        "items",
    ];
    for word in schema.as_object().unwrap().keys() {
        assert!(
            known.contains(&word.as_str()),
            "{at}: the keyword {word} is not supported"
        );
    }
    let is = |kind: &str| match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{at}: the type {other}"),
    };
    let is_typed = match &schema["type"] {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().unwrap())),
        _ => true,
    };
    if !is_typed {
        return Some(format!("{at}: {value} is not a {}", schema["type"]));
    }
    if schema.get("const").is_some_and(|it| it != value) {
        return Some(format!("{at}: {value} is not {}", schema["const"]));
    }
    let choices = schema.get("enum").and_then(Value::as_array);
    if choices.is_some_and(|choices| !choices.contains(value)) {
        return Some(format!("{at}: {value} is not one of {}", schema["enum"]));
    }
    let least = schema.get("minimum").and_then(Value::as_i64);
    if value
        .as_i64()
        .zip(least)
        .is_some_and(|(value, least)| value < least)
    {
        return Some(format!("{at}: {value} is too small"));
    }
    if let Some(fields) = value.as_object() {
        let none = serde_json::Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                return Some(format!("{at}: {name} is missing"));
            }
        }
        for (name, field) in fields {
            let Some(property) = properties.get(name) else {
                return Some(format!("{at}: {name} is not described"));
            };
            if let Some(found) = mismatch(property, field, &format!("{at}.{name}")) {
                return Some(found);
            }
        }
    }
    let mut items = value.as_array().into_iter().flatten();
    items.find_map(|item| mismatch(schema.get("items")?, item, &format!("{at}[]")))
}

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schema/{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[track_caller]
pub(crate) fn assert_matches(name: &str, value: &Value) {
    assert_eq!(mismatch(&schema(name), value, name), None, "{value}");
}

#[track_caller]
fn assert_lines_match(name: &str, text: &str) {
    assert!(!text.is_empty(), "{name}");
    for line in text.lines() {
        assert_matches(name, &serde_json::from_str(line).unwrap());
    }
}

#[test]
fn json_output_matches_the_schemas() {
    let server = RedisServer::start();
    let client = client_of(&server.url());
    client.lock("plain").lock().unwrap();
    client.fenced_lock("fenced").lock().unwrap();
    client.token_lock("token").lock().unwrap();
    client.read_write_lock("sides").write().lock().unwrap();
    client.latch("latch").try_set(1).unwrap();
    server.cmd(&[
        "HSET",
        "redisson",
        "9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:31",
        "1",
    ]);
    server.cmd(&["PEXPIRE", "redisson", "60000"]);
    let listed = at(&server, &["list", "--json", "--all-kinds", "--token"]);
    assert_eq!(stdout(&listed).lines().count(), 6, "{}", stdout(&listed));
    assert_lines_match("lock", &stdout(&listed));
    assert_lines_match(
        "lock",
        &stdout(&at(&server, &["inspect", "plain", "--json"])),
    );
    assert_lines_match(
        "lock",
        &stdout(&at(&server, &["inspect", "free", "--json"])),
    );
    for name in ["plain", "free"] {
        let args = ["unlock", name, "--force", "--yes", "--json"];
        assert_lines_match("unlock", &stdout(&at(&server, &args)));
    }
    assert_lines_match(
        "error",
        &stderr(&at(&server, &["list", "--json", "--limit", "x"])),
    );
    server.cmd(&["HSET", "user", "name", "Ada"]);
    assert_lines_match(
        "error",
        &stderr(&at(&server, &["inspect", "user", "--json"])),
    );
}

#[test]
fn the_schema_check_can_fail() {
    let server = RedisServer::start();
    client_of(&server.url()).lock("plain").lock().unwrap();
    let line = stdout(&at(&server, &["inspect", "plain", "--json"]));
    let good: Value = serde_json::from_str(&line).unwrap();
    let changed = |change: fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        mismatch(&schema("lock"), &value, "lock")
    };
    assert_eq!(changed(|_| ()), None);
    assert!(changed(|it| it["schema"] = 2.into()).is_some());
    assert!(changed(|it| it["kind"] = "other".into()).is_some());
    assert!(changed(|it| it["more"] = 1.into()).is_some());
    assert!(changed(|it| it["holders"][0]["count"] = "1".into()).is_some());
    assert!(changed(|it| drop(it.as_object_mut().unwrap().remove("node"))).is_some());
}
