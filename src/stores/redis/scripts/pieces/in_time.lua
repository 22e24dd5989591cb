-- Refuses a request that arrives after its expiry.
-- include clock.lua
local expiry = ARGV[#ARGV - 1] + 0
if now > expiry then
    return {number, {3, now}}
end
