-- Transfers the hold of one token to another token of the same process.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token that hands its hold off
-- ARGV[2]  the token that receives the hold
-- ARGV[3]  the lease of the received hold, ms
-- ARGV[4]  the channel of unlock messages, which this kind of lock does not use
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, 0}       done; no waiter listens, because unlocks send no messages
--         {2, now, holder}  neither token has a hold; holder is the holder of the lock, '' if the lock is free
--         {3, now}          too late, nothing was done
--
-- Keeps: the lock is never free during the transfer.

-- include in_time.lua
local holder = redis.pcall('GET', key)
if type(holder) == 'table' then
    return string.find(holder.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}}
        -- GET fails again, and redis.call raises the error with the name of the script.
        or call('GET', key)
elseif holder == ARGV[1] then
    call('SET', key, ARGV[2], 'PX', ARGV[3])
elseif holder ~= ARGV[2] then
    return {number, {2, now, string.sub(holder or '', 1, 64)}}
end
return {number, {1, now, 0}}
