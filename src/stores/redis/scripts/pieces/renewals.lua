-- Refuses late renewals. The reply lists each claim that was not renewed for its whole lease, and why.
-- include clock.lua
if now > ARGV[#ARGV - 1] + 0 then
    return {number, {now, 0}}
end
local result = {now, 1}
local function note(i, what)
    result[#result + 1] = i
    result[#result + 1] = what
end
