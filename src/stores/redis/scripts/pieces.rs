//! The pieces that several scripts share: the files in `pieces/`.

/// The script with each line `-- include NAME` replaced by the piece of that name, and so in the piece.
pub(super) fn spliced(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| {
            let name = line.trim().strip_prefix("-- include ");
            name.and_then(piece)
                .map_or_else(|| line.to_owned(), spliced)
        })
        .collect()
}

fn piece(name: &str) -> Option<&'static str> {
    Some(match name {
        "id_of.lua" => include_str!("pieces/id_of.lua"),
        "holder_of.lua" => include_str!("pieces/holder_of.lua"),
        "begin_hold.lua" => include_str!("pieces/begin_hold.lua"),
        "enter_again.lua" => include_str!("pieces/enter_again.lua"),
        "succeed.lua" => include_str!("pieces/succeed.lua"),
        "draw_token.lua" => include_str!("pieces/draw_token.lua"),
        "side_holder.lua" => include_str!("pieces/side_holder.lua"),
        "sides.lua" => include_str!("pieces/sides.lua"),
        "side_count.lua" => include_str!("pieces/side_count.lua"),
        "turns.lua" => include_str!("pieces/turns.lua"),
        "looks.lua" => include_str!("pieces/looks.lua"),
        "keep_taken.lua" => include_str!("pieces/keep_taken.lua"),
        "places.lua" => include_str!("pieces/places.lua"),
        "leave_side.lua" => include_str!("pieces/leave_side.lua"),
        "fair_queue.lua" => include_str!("pieces/fair_queue.lua"),
        _ => return None,
    })
}
