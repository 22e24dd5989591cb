-- The members of the set of taken permits are visitors. A visitor begins with the number of its permits: `permits*…`.
local is_owned = true

local function members_of(visitor)
    return {visitor}
end

local function permits_of(owners)
    local sum = 0
    for _, owner in ipairs(owners) do
        sum = sum + (string.match(owner, '^(%d+)%*') or 0)
    end
    return sum
end
