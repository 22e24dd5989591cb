-- Answers that a hold is gone, by the reply to the question whether it is there: none, or an error.
local function gone(has)
    if type(has) == 'table' then
        return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or has
    end
    return {number, {2, now, holder_of(key) or 'a key of another type'}}
end
