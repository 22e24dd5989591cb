//! Converts Lua values to replies and back, by the rules of Redis.

use std::cell::RefCell;

use mlua::{Lua, MultiValue, Table, Value};

use crate::commands::{Answer, Execution, Refused};
use crate::number::general;
use crate::reply::Reply;

/// A table that is nested deeper is replaced by an error.
const DEEPEST: usize = 200;

enum Word {
    Bytes(mlua::BorrowedBytes),
    Text(String),
}

impl AsRef<[u8]> for Word {
    fn as_ref(&self) -> &[u8] {
        match self {
            Word::Bytes(bytes) => bytes,
            Word::Text(text) => text.as_bytes(),
        }
    }
}

pub(super) fn called(on: &RefCell<&mut Execution<'_>>, args: MultiValue) -> Answer<Reply> {
    if args.is_empty() {
        let text = "ERR Please specify at least one argument for this redis lib call";
        return Err(Refused::new(text));
    }
    let words = args.iter().map(|arg| match arg {
        Value::String(text) => Ok(Word::Bytes(text.as_bytes())),
        Value::Integer(number) => Ok(Word::Text(general(*number as f64, 17))),
        Value::Number(number) => Ok(Word::Text(general(*number, 17))),
        _ => Err(Refused::new(
            "ERR Lua redis lib command arguments must be strings or integers",
        )),
    });
    let words: Vec<Word> = words.collect::<Answer<_>>()?;
    let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
    on.borrow_mut().try_call(&words)
}

pub(super) fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let field = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Int(number) => Ok(Value::Number(*number as f64)),
        Reply::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Status(text) => field("ok", text),
        Reply::Error(text) => field("err", text),
        Reply::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(to_lua(lua, item)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

pub(super) fn from_lua(value: &Value) -> Reply {
    reply_of(value, 0)
}

fn reply_of(value: &Value, depth: usize) -> Reply {
    match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(whole(*number)),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(_) if depth >= DEEPEST => {
            Reply::Error("ERR reached lua stack limit".to_owned())
        }
        Value::Table(table) => reply_of_table(table, depth),
        _ => Reply::Nil,
    }
}

/// Converts a double to an integer as C on x86-64 does: truncates it, or returns the minimum if it does not fit.
fn whole(number: f64) -> i64 {
    let is_in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if is_in_range { number as i64 } else { i64::MIN }
}

fn reply_of_table(table: &Table, depth: usize) -> Reply {
    let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
    let line = |text: &mlua::LuaString| {
        let text = String::from_utf8_lossy(&text.as_bytes()).into_owned();
        text.replace(['\r', '\n'], " ")
    };
    if let Value::String(text) = field("err") {
        return Reply::Error(line(&text));
    }
    if let Value::String(text) = field("ok") {
        return Reply::Status(line(&text).into());
    }
    match field("double") {
        Value::Integer(number) => return Reply::text(general(number as f64, 17)),
        Value::Number(number) => return Reply::text(general(number, 17)),
        _ => {}
    }
    if let Value::Table(map) = field("map") {
        return flattened(&map, depth, true);
    }
    if let Value::Table(set) = field("set") {
        return flattened(&set, depth, false);
    }
    if let Value::String(number) = field("big_number") {
        return Reply::text(line(&number));
    }
    if let Value::Table(verbatim) = field("verbatim_string")
        && let Ok(Value::String(text)) = verbatim.raw_get::<Value>("string")
    {
        return Reply::text(text.as_bytes());
    }
    let items = (1..).map_while(|place: i64| match table.raw_get::<Value>(place) {
        Ok(Value::Nil) | Err(_) => None,
        Ok(item) => Some(reply_of(&item, depth + 1)),
    });
    Reply::Array(items.collect())
}

fn flattened(table: &Table, depth: usize, has_values: bool) -> Reply {
    let mut items = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let Ok((name, value)) = pair else {
            break;
        };
        items.push(reply_of(&name, depth + 1));
        if has_values {
            items.push(reply_of(&value, depth + 1));
        }
    }
    Reply::Array(items)
}
