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
        "answer_change.lua" => include_str!("pieces/answer_change.lua"),
        "answer_once.lua" => include_str!("pieces/answer_once.lua"),
        "answered_before.lua" => include_str!("pieces/answered_before.lua"),
        "begin_hold.lua" => include_str!("pieces/begin_hold.lua"),
        "clock.lua" => include_str!("pieces/clock.lua"),
        "draw_token.lua" => include_str!("pieces/draw_token.lua"),
        "enter_again.lua" => include_str!("pieces/enter_again.lua"),
        "evict.lua" => include_str!("pieces/evict.lua"),
        "fair_queue.lua" => include_str!("pieces/fair_queue.lua"),
        "free_permits.lua" => include_str!("pieces/free_permits.lua"),
        "gone.lua" => include_str!("pieces/gone.lua"),
        "holder_of.lua" => include_str!("pieces/holder_of.lua"),
        "id_of.lua" => include_str!("pieces/id_of.lua"),
        "ids.lua" => include_str!("pieces/ids.lua"),
        "in_time.lua" => include_str!("pieces/in_time.lua"),
        "keep_taken.lua" => include_str!("pieces/keep_taken.lua"),
        "leave_side.lua" => include_str!("pieces/leave_side.lua"),
        "looks.lua" => include_str!("pieces/looks.lua"),
        "own_count.lua" => include_str!("pieces/own_count.lua"),
        "owners.lua" => include_str!("pieces/owners.lua"),
        "places.lua" => include_str!("pieces/places.lua"),
        "renew_permits.lua" => include_str!("pieces/renew_permits.lua"),
        "renewals.lua" => include_str!("pieces/renewals.lua"),
        "return_permits.lua" => include_str!("pieces/return_permits.lua"),
        "set_level.lua" => include_str!("pieces/set_level.lua"),
        "side_count.lua" => include_str!("pieces/side_count.lua"),
        "side_holder.lua" => include_str!("pieces/side_holder.lua"),
        "sides.lua" => include_str!("pieces/sides.lua"),
        "succeed.lua" => include_str!("pieces/succeed.lua"),
        "take_permits.lua" => include_str!("pieces/take_permits.lua"),
        "turns.lua" => include_str!("pieces/turns.lua"),
        "vote.lua" => include_str!("pieces/vote.lua"),
        "withdraw_permits.lua" => include_str!("pieces/withdraw_permits.lua"),
        _ => return None,
    })
}
