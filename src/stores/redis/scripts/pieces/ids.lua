-- The members of the set of taken permits are the ids of the permits. A visitor is a concatenation of ids, each of 32
-- hexadecimal digits.
local is_owned = false

-- include id_of.lua

local function members_of(visitor)
    local ids = {}
    for hex in string.gmatch(visitor, string.rep('%x', 32)) do
        ids[#ids + 1] = id_of(hex)
    end
    return ids
end

local function permits_of(ids)
    return #ids
end
