-- Makes the hold of one visitor that of another one of the same process, with a fencing token of its own.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fencing token that was drawn last
-- ARGV[1]  the visitor that gives its hold back, whatever its count
-- ARGV[2]  the visitor that is to have it, with a count of 1
-- ARGV[3]  the lease of the latter, ms
-- ARGV[4]  the channel of unlock messages
-- ARGV[5]  the smallest fencing token that may be drawn
-- ARGV[6]  the server time after which the request is refused, ms since 1970
-- ARGV[7]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as transfer.lua, with the token: {1, now, listeners, token}, {2, now, holder}, {3, now}
--
-- Keeps: the lock is free at no moment; after an error the first visitor still has it; the token only rises. A copy of the
-- request draws a token of its own.

-- include holder_of.lua

-- include in_time.lua
-- include gone.lua
local has = pcall('HEXISTS', key, ARGV[1])
if has ~= 1 and (has ~= 0 or call('HEXISTS', key, ARGV[2]) == 0) then
    return gone(has)
end
-- include draw_token.lua
if has == 1 then
    -- include succeed.lua
end
local heard = redis.pcall('PUBSUB', 'NUMSUB', ARGV[4])
return {number, {1, now, heard[2] and heard[2] + 0 or -1, token}}
