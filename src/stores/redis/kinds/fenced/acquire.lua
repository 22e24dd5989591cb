-- Acquires a fenced lock, or re-enters it.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- KEYS[2]  the last fencing token
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the expected count; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the smallest fencing token to draw
-- ARGV[6]  the server time after which the request is refused, ms since 1970
-- ARGV[7]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, token}          granted, with the fencing token of the hold
--         number * 4194304 + left  re-entered; left is the time until ARGV[6], ms, at most 4194303
--         {0, now, ttl, holder}, {2, now, holder}, {3, now}, {4, now, count}  as plain/acquire.lua
--
-- Keeps: the key of a lock always has a TTL. The key of the last token has no TTL, and tokens only increase. The token is
-- drawn before the hold begins.

-- include in_time.lua
local visitor, known, wanted = ARGV[1], ARGV[3], ARGV[4]

if known == '0' and call('EXISTS', key) == 0 then
    -- include draw_token.lua
    -- include begin_hold.lua
    return {number, {1, now, token}}
end

-- include holder_of.lua

-- include enter_again.lua
