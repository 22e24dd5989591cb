-- The members of the set of taken permits are visitors. Each begins with the number of its permits: `permits*…`.
local is_owned = true

local function members_of(visitor)
    return {visitor}
end

-- The total number of permits of these members of the set.
local function permits_of(owners)
    local sum = 0
    for _, owner in ipairs(owners) do
        sum = sum + (string.match(owner, '^(%d+)%*') or 0)
    end
    return sum
end
