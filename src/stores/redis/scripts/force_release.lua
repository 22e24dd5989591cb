-- Frees a lock whoever holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the channel of unlock messages
-- ARGV[2]  the server time after which the request is refused, ms since 1970
--
-- Returns {1, now} freed, {0, now} nobody held it, {3, now} too late, nothing was done
--
-- Keeps: a key that is no lock of this kind is left alone (HKEYS fails on another type).
local call, key = redis.call, KEYS[1]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[2] + 0 then
    return {3, now}
end
local fields = call('HKEYS', key)
if #fields == 0 then
    return {0, now}
end
for _, field in ipairs(fields) do
    if field == 'mode' then
        return redis.error_reply('WRONGTYPE a read-write lock uses this name')
    end
end
for _, field in ipairs(fields) do
    call('HDEL', key, field)
end
redis.pcall('PUBLISH', ARGV[1], '0')
return {1, now}
