-- In the set of permits that were taken stands a visitor, whose text begins with their number: `permits*…`.
local is_owned = true

local function members_of(visitor)
    return {visitor}
end

-- For how many permits members of the set stand.
local function permits_of(owners)
    local sum = 0
    for _, owner in ipairs(owners) do
        sum = sum + (string.match(owner, '^(%d+)%*') or 0)
    end
    return sum
end
