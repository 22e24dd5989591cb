//! Bugs of scripts that the simulation plants and has to find: each replaces a piece of text.

use redlatch_server::Engine;

use crate::scripts::{ALL, hash, spliced};
use crate::server::engine;

/// A bug of a script.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    /// The name of the bug.
    pub name: &'static str,
    /// The path of the text below `src/stores/redis/kinds`; of a piece below `src/stores/redis/scripts`.
    pub file: &'static str,
    /// The text that is replaced; it occurs exactly once.
    pub find: &'static str,
    /// The replacement.
    pub replace: &'static str,
}

/// All bugs of scripts.
pub const PLANTS: [Plant; 9] = [
    Plant {
        name: "a newcomer passes a queue on the server",
        file: "fair/acquire.lua",
        find: "if not is_held and (not first or first == visitor) then",
        replace: "if not is_held then",
    },
    Plant {
        name: "nobody is told that a fair lock is free",
        file: "pieces/fair_queue.lua",
        find: "if type(first) ~= 'string' then",
        replace: "if true then",
    },
    Plant {
        name: "one is passed over at the first look",
        file: "fair/acquire.lua",
        find: "return (heard and 10000 or 1500) - (silence or 0)",
        replace: "return 0",
    },
    Plant {
        name: "the dead keep their places in a queue",
        file: "fair/acquire.lua",
        find: "return (heard and 10000 or 1500) - (silence or 0)",
        replace: "return 1000",
    },
    Plant {
        name: "one that comes back stands last",
        file: "fair/acquire.lua",
        find: "local is_first = first == visitor or not is_in and wish == 'rejoin'",
        replace: "local is_first = first == visitor",
    },
    Plant {
        name: "a look does not count for one that has a place",
        file: "fair/acquire.lua",
        find: "time_of(now + patience * place, now)",
        replace: "ends or time_of(now + patience * place, now)",
    },
    Plant {
        name: "a signal is not told",
        file: "pieces/places.lua",
        find: "redis.pcall('PUBLISH', channels .. ':' .. first, '0')",
        replace: "",
    },
    Plant {
        name: "a signal wakes two",
        file: "condition/signal.lua",
        find: "count = count + 1",
        replace: "count = count + 1 wake_first(KEYS[2], KEYS[3], ARGV[3], now)",
    },
    Plant {
        name: "one that leaves forgets its signal",
        file: "condition/look.lua",
        find: "{waits and 4 or 1, now}",
        replace: "{(waits or op == 'leave') and 4 or 1, now}",
    },
];

/// Plants a bug in the scripts that this process runs from here on, if one has this name.
///
/// # Panics
///
/// As [`plant_in`].
pub fn plant(name: &str) {
    plant_in(&engine(), name);
}

/// Plants a bug in the scripts that an engine runs from now on, if `name` is one.
///
/// # Panics
///
/// If the text to replace does not occur exactly once in its file, or the result is not valid Lua.
pub fn plant_in(engine: &Engine, name: &str) {
    for plant in PLANTS.iter().filter(|plant| plant.name == name) {
        let piece = plant.file.strip_prefix("pieces/");
        let file = match piece {
            Some(piece) => spliced(&format!("-- include {piece}\n")),
            None => {
                let script = ALL
                    .iter()
                    .find(|it| plant.file == format!("{}.lua", it.name));
                script.map_or_else(String::new, |it| it.text.to_owned())
            }
        };
        let found = file.matches(plant.find).count();
        assert_eq!(found, 1, "{}: {} in {}", plant.name, plant.find, plant.file);
        let planted = file.replace(plant.find, plant.replace);
        for script in ALL.iter().filter(|it| it.text.contains(&file)) {
            for text in [script.text.to_owned(), script.sharded_text()] {
                let sharded = |plain: &str| match text == script.text {
                    true => plain.to_owned(),
                    false => crate::scripts::sharded(plain),
                };
                let replaced = text.replace(&sharded(&file), &sharded(&planted));
                let replaced = engine.replace(&hash(text.as_bytes()), &replaced);
                assert_eq!(replaced, Ok(()), "{name}");
            }
        }
    }
}
