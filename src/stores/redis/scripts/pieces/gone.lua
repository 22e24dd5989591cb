-- Replies that a hold is gone. `has` is the reply of the query for it, which may be an error. `unnamed` replaces a
-- holder that holder_of cannot name.
local function gone(has, unnamed)
    if type(has) == 'table' then
        return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or has
    end
    return {number, {2, now, holder_of(key) or unnamed or 'a key of another type'}}
end
