-- Takes a visitor out of the queue of a fair lock, and frees what a request without an answer may have left of its hold.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who wait
-- KEYS[3]  the times from which on they count as dead
-- KEYS[4]  since when they are silent
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages, behind which stand ':' and a visitor
-- ARGV[3]  the patience: for how long the visitor counted as alive behind the one before it, ms
-- ARGV[4]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: only the visitor's own field and place go. Works on a server that is full.

-- include fair_queue.lua

-- All times at once, for a command for each of those who wait takes longer.
local function times_of(times)
    local found, ends = redis.call('ZRANGE', times, 0, -1, 'WITHSCORES'), {}
    for at = 1, #found, 2 do
        ends[found[at]] = found[at + 1]
    end
    return ends
end

local number = ARGV[4] + 0
local call, pcall = redis.call, redis.pcall
local key, queue, times, visitor = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local freed = pcall('HDEL', key, visitor)
local opens, is_behind, behind, ends = freed == 1 or call('LINDEX', queue, 0) == visitor, false, {}, nil
for _, waiter in ipairs(call('LRANGE', queue, 0, -1)) do
    if waiter == visitor then
        is_behind = true
    elseif is_behind then
        ends = ends or times_of(times)
        if ends[waiter] then
            behind[#behind + 1] = waiter
            behind[#behind + 1] = ends[waiter]
        end
    end
end
take_time(times, behind, ARGV[3] + 0, now)
if is_behind then
    call('LREM', queue, 0, visitor)
end
call('ZREM', times, visitor)
-- Else the notes would grow with those who gave up, as long as anybody waits.
pcall('HDEL', KEYS[4], visitor)
if type(freed) == 'table' then
    return freed
end
-- A cluster node whose slot is on the move does not answer for a key that is gone.
if opens and pcall('EXISTS', key) ~= 1 then
    tell_first(queue, times, ARGV[2], now)
end
return {number, now}
