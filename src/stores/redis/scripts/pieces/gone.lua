-- Answers that a hold is gone, by the reply to the question whether it is there: none, or an error. `unnamed` stands for a holder
-- that holder_of does not know.
local function gone(has, unnamed)
    if type(has) == 'table' then
        return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or has
    end
    return {number, {2, now, holder_of(key) or unnamed or 'a key of another type'}}
end
