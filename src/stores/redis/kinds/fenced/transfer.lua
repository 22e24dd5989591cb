-- Transfers the hold of one visitor to another visitor of the same process, with a new fencing token.
--
-- KEYS[1]  the lock
-- KEYS[2]  the last fencing token
-- ARGV[1]  the visitor that hands its hold off; the hold may have any count
-- ARGV[2]  the visitor that receives the hold, with a count of 1
-- ARGV[3]  the lease of the received hold, ms
-- ARGV[4]  the channel of unlock messages
-- ARGV[5]  the smallest fencing token to draw
-- ARGV[6]  the server time after which the request is refused, ms since 1970
-- ARGV[7]  the number of the request, which precedes the reply: {number, …}
--
-- Returns as plain/transfer.lua, with the token: {1, now, listeners, token}, {2, now, holder}, {3, now}
--
-- Keeps: the lock is never free during the transfer. After an error, the first visitor still has its hold. A repeated
-- request draws another, larger token.

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
