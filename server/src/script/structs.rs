//! The library `struct`, with which scripts pack numbers and texts into bytes.

use mlua::{Lua, MultiValue, Table, Value};

use super::natives::raised;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// An integer with this number of bytes.
    Int {
        size: usize,
        is_signed: bool,
    },
    Float,
    Double,
    /// A text of this many bytes. If the number is 0, `pack` takes the whole text. `unpack` then takes the previous number
    /// as the length.
    Chars(usize),
    /// A zero-terminated text.
    Text,
    Padding,
}

struct Format<'f> {
    rest: &'f [u8],
    is_little: bool,
    align: usize,
}

impl<'f> Format<'f> {
    fn new(format: &'f [u8]) -> Format<'f> {
        Format {
            rest: format,
            is_little: cfg!(target_endian = "little"),
            align: 1,
        }
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self
            .rest
            .iter()
            .take_while(|it| it.is_ascii_digit())
            .count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    /// Returns the next part, and how much padding precedes it at the position `at`.
    fn next(&mut self, at: usize) -> Result<Option<(Part, usize)>, (usize, String)> {
        while let Some((sign, rest)) = self.rest.split_first() {
            self.rest = rest;
            let int = |size, is_signed| Part::Int { size, is_signed };
            let part = match sign {
                b' ' => continue,
                b'>' => {
                    self.is_little = false;
                    continue;
                }
                b'<' => {
                    self.is_little = true;
                    continue;
                }
                b'!' => {
                    self.align = self.number().unwrap_or(8);
                    if !self.align.is_power_of_two() {
                        let text = format!("alignment {} is not a power of 2", self.align);
                        return Err((0, text));
                    }
                    continue;
                }
                b'x' => Part::Padding,
                b'b' => int(1, true),
                b'B' => int(1, false),
                b'h' => int(2, true),
                b'H' => int(2, false),
                b'l' => int(8, true),
                b'L' | b'T' => int(8, false),
                b'i' | b'I' => {
                    let size = self.number().unwrap_or(4);
                    if size == 0 || size > 32 {
                        let text = format!("integral size {size} is larger than limit of 32");
                        return Err((0, text));
                    }
                    int(size, *sign == b'i')
                }
                b'f' => Part::Float,
                b'd' | b'n' => Part::Double,
                b's' => Part::Text,
                b'c' => Part::Chars(self.number().unwrap_or(1)),
                _ => return Err((1, format!("invalid format option '{}'", char::from(*sign)))),
            };
            let size = part.size();
            let align = match part {
                Part::Chars(_) | Part::Text | Part::Padding => 1,
                _ => size.min(self.align),
            };
            let padding = if align > 1 {
                (align - (at & (align - 1))) & (align - 1)
            } else {
                0
            };
            return Ok(Some((part, padding)));
        }
        Ok(None)
    }
}

impl Part {
    fn size(self) -> usize {
        match self {
            Part::Int { size, .. } | Part::Chars(size) => size,
            Part::Float => 4,
            Part::Double => 8,
            Part::Text => 0,
            Part::Padding => 1,
        }
    }
}

fn ordered(mut bytes: Vec<u8>, is_little: bool) -> Vec<u8> {
    if !is_little {
        bytes.reverse();
    }
    bytes
}

fn number_in(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        Value::String(text) => text.to_str().ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// Converts a double to a 64-bit integer, which is signed if the number is negative.
fn bits_of(number: f64) -> u64 {
    if number < 0.0 {
        (number as i64).cast_unsigned()
    } else {
        number as u64
    }
}

fn pack(format: &[u8], args: &[Value]) -> Result<Vec<u8>, (usize, String)> {
    let (mut format, mut packed, mut given) = (Format::new(format), Vec::new(), args.iter());
    let mut place = 1;
    while let Some((part, padding)) = format.next(packed.len())? {
        packed.resize(packed.len() + padding, 0);
        if part == Part::Padding {
            packed.push(0);
            continue;
        }
        place += 1;
        let value = given.next();
        let no = |kind: &str| {
            let found = value.map_or("nil", Value::type_name);
            (place, format!("{kind} expected, got {found}"))
        };
        let number = || number_in(value).ok_or_else(|| no("number"));
        match part {
            Part::Int { size, .. } => {
                let bits = bits_of(number()?);
                // Bytes beyond the low 64 bits are zero, even for a negative number.
                let bytes = (0..size).map(|at| if at < 8 { (bits >> (8 * at)) as u8 } else { 0 });
                packed.extend(ordered(bytes.collect(), format.is_little));
            }
            Part::Float => {
                let bytes = (number()? as f32).to_le_bytes().to_vec();
                packed.extend(ordered(bytes, format.is_little));
            }
            Part::Double => {
                let bytes = number()?.to_le_bytes().to_vec();
                packed.extend(ordered(bytes, format.is_little));
            }
            Part::Chars(_) | Part::Text => {
                let text = match value {
                    Some(Value::String(text)) => text.as_bytes().to_vec(),
                    Some(Value::Integer(number)) => number.to_string().into_bytes(),
                    _ => return Err(no("string")),
                };
                let length = match part {
                    Part::Chars(length) if length > 0 => length,
                    _ => text.len(),
                };
                let text = text
                    .get(..length)
                    .ok_or((place, "string too short".to_owned()))?;
                packed.extend(text);
                if part == Part::Text {
                    packed.push(0);
                }
            }
            Part::Padding => {}
        }
    }
    Ok(packed)
}

fn unpack(
    lua: &Lua,
    format: &[u8],
    bytes: &[u8],
    at: usize,
) -> Result<MultiValue, (usize, String)> {
    let (mut format, mut at, mut found) = (Format::new(format), at, Vec::new());
    let short = || (2, "data string too short".to_owned());
    while let Some((part, padding)) = format.next(at)? {
        at += padding;
        let rest = bytes.get(at..).ok_or_else(short)?;
        let size = match part {
            Part::Chars(0) => match found.pop() {
                Some(Value::Number(size)) if size >= 0.0 => size as usize,
                _ => return Err((1, "format 'c0' needs a previous size".to_owned())),
            },
            Part::Text => rest
                .iter()
                .position(|byte| *byte == 0)
                .ok_or_else(|| (0, "unfinished string in data".to_owned()))?,
            part => part.size(),
        };
        let taken = rest.get(..size).ok_or_else(short)?;
        at += size;
        let little = || ordered(taken.to_vec(), format.is_little);
        let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
        match part {
            Part::Padding => {}
            Part::Int { is_signed, .. } => {
                let bytes = little();
                let bits = bytes
                    .iter()
                    .take(8)
                    .rev()
                    .fold(0u64, |bits, it| bits << 8 | u64::from(*it));
                let unused = 64 - 8 * size.min(8) as u32;
                found.push(Value::Number(match is_signed {
                    true => ((bits << unused).cast_signed() >> unused) as f64,
                    false => bits as f64,
                }));
            }
            Part::Float => {
                let bytes = little().try_into().unwrap_or_default();
                found.push(Value::Number(f64::from(f32::from_le_bytes(bytes))));
            }
            Part::Double => {
                let bytes = little().try_into().unwrap_or_default();
                found.push(Value::Number(f64::from_le_bytes(bytes)));
            }
            Part::Chars(_) | Part::Text => {
                found.push(text(taken).map_err(|error| (1, error.to_string()))?);
                at += usize::from(part == Part::Text);
            }
        }
    }
    found.push(Value::Number(at as f64 + 1.0));
    Ok(MultiValue::from_iter(found))
}

fn size(format: &[u8]) -> Result<f64, (usize, String)> {
    let (mut format, mut at) = (Format::new(format), 0);
    while let Some((part, padding)) = format.next(at)? {
        if matches!(part, Part::Text | Part::Chars(0)) {
            let sign = if part == Part::Text { "s" } else { "c0" };
            return Err((1, format!("option '{sign}' has no fixed size")));
        }
        at += padding + part.size();
    }
    Ok(at as f64)
}

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let bad = |lua: &Lua, name: &str, (place, text): (usize, String)| match place {
        0 => raised(lua, &text),
        _ => raised(lua, &format!("bad argument #{place} to '{name}' ({text})")),
    };
    let library = lua.create_table()?;
    let packs = move |lua: &Lua, (format, args): (mlua::LuaString, MultiValue)| {
        let args: Vec<Value> = args.into_iter().collect();
        let packed = pack(&format.as_bytes(), &args).map_err(|flaw| bad(lua, "pack", flaw))?;
        lua.create_string(packed)
    };
    library.set("pack", lua.create_function(packs)?)?;
    let unpacks =
        move |lua: &Lua, (format, text, at): (mlua::LuaString, mlua::LuaString, Option<f64>)| {
            let at = at.map_or(0, |at| (at as usize).saturating_sub(1));
            let found = unpack(lua, &format.as_bytes(), &text.as_bytes(), at);
            found.map_err(|flaw| bad(lua, "unpack", flaw))
        };
    library.set("unpack", lua.create_function(unpacks)?)?;
    let sizes = move |lua: &Lua, format: mlua::LuaString| {
        size(&format.as_bytes()).map_err(|flaw| bad(lua, "size", flaw))
    };
    library.set("size", lua.create_function(sizes)?)?;
    Ok(library)
}
