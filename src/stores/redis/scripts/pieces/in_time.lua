-- Refuses a request that comes too late.
-- include clock.lua
local expiry = ARGV[#ARGV - 1] + 0
if now > expiry then
    return {number, {3, now}}
end
