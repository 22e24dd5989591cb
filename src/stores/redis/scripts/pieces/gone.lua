-- Replies that a hold is gone. `has` is the result of the command that looked for the hold, and may be an error. If
-- holder_of returns an error, the reply names `unnamed` as the holder (default: a key of another type).
local function gone(has, unnamed)
    if type(has) == 'table' then
        return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or has
    end
    return {number, {2, now, holder_of(key) or unnamed or 'a key of another type'}}
end
