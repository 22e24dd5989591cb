//! The library `bit`, which scripts can use.

use mlua::{Lua, Table, Variadic};

/// Converts a number to 32 bits, modulo 2^32.
fn bits(number: f64) -> u32 {
    number.round_ties_even().rem_euclid(4_294_967_296.0) as u32
}

fn told(bits: u32) -> f64 {
    f64::from(bits.cast_signed())
}

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let one = |name: &str, change: fn(u32) -> u32| {
        library.set(
            name,
            lua.create_function(move |_, it: f64| Ok(told(change(bits(it)))))?,
        )
    };
    one("tobit", |it| it)?;
    one("bnot", |it| !it)?;
    one("bswap", u32::swap_bytes)?;
    let joined = |name: &str, join: fn(u32, u32) -> u32| {
        let function = move |_: &Lua, (first, rest): (f64, Variadic<f64>)| {
            let rest = rest.iter().map(|it| bits(*it));
            Ok(told(rest.fold(bits(first), join)))
        };
        library.set(name, lua.create_function(function)?)
    };
    joined("band", |one, other| one & other)?;
    joined("bor", |one, other| one | other)?;
    joined("bxor", |one, other| one ^ other)?;
    let shifted = |name: &str, shift: fn(u32, u32) -> u32| {
        let function =
            move |_: &Lua, (it, by): (f64, f64)| Ok(told(shift(bits(it), bits(by) & 31)));
        library.set(name, lua.create_function(function)?)
    };
    shifted("lshift", |it, by| it << by)?;
    shifted("rshift", |it, by| it >> by)?;
    shifted("arshift", |it, by| (it.cast_signed() >> by).cast_unsigned())?;
    shifted("rol", u32::rotate_left)?;
    shifted("ror", u32::rotate_right)?;
    let tohex = |_: &Lua, (it, digits): (f64, Option<f64>)| {
        let digits = digits.map_or(8, |digits| bits(digits).cast_signed());
        let count = digits.unsigned_abs().min(8) as usize;
        let hex = format!("{:08x}", bits(it));
        let hex = &hex[8 - count..];
        Ok(if digits < 0 {
            hex.to_uppercase()
        } else {
            hex.to_owned()
        })
    };
    library.set("tohex", lua.create_function(tohex)?)?;
    Ok(library)
}
