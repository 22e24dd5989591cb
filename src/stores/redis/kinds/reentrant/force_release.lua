-- Frees a lock whoever holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the channel of unlock messages
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now} freed, {0, now} nobody held it, {3, now} too late, nothing was done
--
-- Keeps: what is no lock of this kind is left alone.

-- include holder_of.lua

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
redis.pcall('PUBLISH', ARGV[1], '0')
return {number, {1, now}}
