//! The files in `pieces/`, which several scripts share.

/// Replaces each line `-- include NAME` by the file `NAME`, recursively.
pub(super) fn spliced(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| {
            let name = line.trim().strip_prefix("-- include ");
            let piece = name.and_then(|name| PIECES.iter().find(|piece| piece.0 == name));
            piece.map_or_else(|| line.to_owned(), |piece| spliced(piece.1))
        })
        .collect()
}

macro_rules! pieces {
    ($($name:literal)*) => {
        const PIECES: &[(&str, &str)] = &[$(($name, include_str!(concat!("pieces/", $name)))),*];
    };
}

pieces! {
    "answer_change.lua" "answer_once.lua" "answered_before.lua" "begin_hold.lua" "clock.lua" "draw_token.lua"
    "enter_again.lua" "evict.lua" "fair_queue.lua" "free_permits.lua" "gone.lua" "holder_of.lua" "id_of.lua"
    "ids.lua" "in_time.lua" "keep_taken.lua" "leave_side.lua" "looks.lua" "own_count.lua" "owners.lua"
    "places.lua" "renew_permits.lua" "renewals.lua" "return_permits.lua" "set_level.lua" "side_count.lua"
    "side_holder.lua" "sides.lua" "succeed.lua" "take_permits.lua" "turns.lua" "vote.lua"
    "withdraw_permits.lua"
}
