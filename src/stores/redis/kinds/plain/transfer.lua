-- Transfers the hold of one visitor to another visitor of the same process.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor that hands its hold off; the hold may have any count
-- ARGV[2]  the visitor that receives the hold, with a count of 1
-- ARGV[3]  the lease of the received hold, ms
-- ARGV[4]  the channel of unlock messages
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, listeners}  done; listeners is the number of subscribers of the channel, -1 if the user lacks the right
--         to query it
--         {2, now, holder}     neither visitor has a hold; holder is the holder of the lock, '' if the lock is free
--         {3, now}             too late, nothing was done
--
-- Keeps: the lock is never free during the transfer. After an error, the first visitor still has its hold.

-- include holder_of.lua

-- include in_time.lua
-- include gone.lua
local has = pcall('HEXISTS', key, ARGV[1])
if has == 1 then
    -- include succeed.lua
elseif has ~= 0 or call('HEXISTS', key, ARGV[2]) == 0 then
    return gone(has)
end
local heard = redis.pcall('PUBSUB', 'NUMSUB', ARGV[4])
return {number, {1, now, heard[2] and heard[2] + 0 or -1}}
