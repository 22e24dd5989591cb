-- Takes a fenced lock, or enters it once more.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- KEYS[2]  the fencing token that was drawn last
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the smallest fencing token that may be drawn
-- ARGV[6]  the server time after which the request is refused, ms since 1970
-- ARGV[7]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua, but for the first:
--         {1, now, token}   granted, with the fencing token of the hold
--         number * 4194304 + left  entered once more; left is the time until ARGV[6], ms, at most 4194303
--         {0, now, ttl, holder}, {2, now, holder}, {3, now}, {4, now, count}
--
-- Keeps: a key of ours never lacks a time to live, but the token, which only rises; the hold is not there before its
-- token; a count above 1 comes only onto the visitor's own field.

-- include in_time.lua
local visitor, known = ARGV[1], ARGV[3]

if known == '0' and call('EXISTS', key) == 0 then
    -- include draw_token.lua
    -- include begin_hold.lua
    return {number, {1, now, token}}
end

-- include holder_of.lua

-- include enter_again.lua
