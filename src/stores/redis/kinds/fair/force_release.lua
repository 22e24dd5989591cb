-- Frees a fair lock whoever holds it, and tells the first who waits.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who wait
-- KEYS[3]  the times from which on they count as dead
-- ARGV[1]  the channel of unlock messages, behind which stand ':' and a visitor
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now} freed, {0, now} nobody held it, {3, now} too late, nothing was done
--
-- Keeps: what is no lock of this kind is left alone.

-- include holder_of.lua

-- include fair_queue.lua

local number = ARGV[3] + 0
local call, key = redis.call, KEYS[1]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[2] + 0 then
    return {number, {3, now}}
end
local _, flaw, field = holder_of(key)
if not field then
    return flaw or {number, {0, now}}
end
if #field > 256 then
    -- One that is not looked into is refused to others, but freed only if it looks like a visitor.
    local begin, rest = string.sub(field, 1, 256), string.sub(field, -256)
    if not (string.find(rest, '.:%d+$') or string.find(rest, '.:%d+:.') or string.find(begin, '.:%d+:.')) then
        return redis.error_reply('WRONGTYPE this hash is no lock, or one of another kind')
    end
end
call('HDEL', key, field)
tell_first(KEYS[2], KEYS[3], ARGV[1], now)
return {number, {1, now}}
