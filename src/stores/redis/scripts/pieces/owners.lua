-- The set of taken permits has visitors, which begin with the number of their permits: `permits*…`.
local is_owned = true

local function members_of(visitor)
    return {visitor}
end

-- The number of permits of members of the set.
local function permits_of(owners)
    local sum = 0
    for _, owner in ipairs(owners) do
        sum = sum + (string.match(owner, '^(%d+)%*') or 0)
    end
    return sum
end
