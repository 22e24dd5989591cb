-- Gives a whole hold of a fair lock back, and tells the first who waits.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who wait
-- KEYS[3]  the times from which on they count as dead
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages, behind which stand ':' and a visitor; '' to send none
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as release.lua: number * 4194304 freed, {1, error} freed, but nobody could be told, {0, holder} not held by the
--         visitor
--
-- Keeps: only the visitor's own field goes, and those who are dead. Needs no memory, so it works on a server that is full.

local number = ARGV[3] + 0
local call, key = redis.pcall, KEYS[1]

-- include fair_queue.lua

local time = redis.call('TIME')
local freed = call('HDEL', key, ARGV[1])
if freed == 1 then
    -- A cluster node whose slot is on the move does not answer for a key that is gone.
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
