-- Releases a hold of a fair lock with all its levels, and notifies the first waiter.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  for each waiter, the time from which on it counts as dead
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of a waiter, without the suffix `:visitor`; '' to send no message
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns as plain/release.lua, but n is always 0: number * 4194304 freed, {1, error} freed without a message,
--         {0, holder} not held by the visitor
--
-- Keeps: only the visitor's own field and dead waiters are removed. Works at maxmemory.

local number = ARGV[3] + 0
local call, key = redis.pcall, KEYS[1]

-- include fair_queue.lua

local time = redis.call('TIME')
local freed = call('HDEL', key, ARGV[1])
if freed == 1 then
    -- While the slot of the key moves, a Cluster node replies with an error if the key is missing. So an error is
    -- treated as a missing key.
    if ARGV[2] == '' or call('EXISTS', key) == 1 then
        return number * 4194304
    end
    local told = tell_first(KEYS[2], KEYS[3], ARGV[2], time[1] * 1000 + (time[2] - time[2] % 1000) / 1000)
    if type(told) == 'table' then
        return {number, {1, told.err}}
    end
    return number * 4194304
end

-- include holder_of.lua

if type(freed) == 'table' then
    return string.find(freed.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or freed
end
return {number, {0, holder_of(key) or 'a key of another type'}}
