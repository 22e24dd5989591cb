-- Gives one level of a hold back; the hold goes on.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor
-- ARGV[2]  the lease that the remaining levels count on, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows
-- ARGV[4]  the count wanted, at least 1
-- ARGV[5]  the server time after which the request is refused, ms since 1970
--
-- Returns as acquire.lua: now done, {2, now, holder} gone, {3, now} too late, {4, now, count} another count
--
-- Keeps: the lease stands before the count says that the level is gone.
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[5] + 0 then
    return {3, now}
end
local count = redis.call('HGET', KEYS[1], ARGV[1])
if not count then
    return {2, now, redis.call('HKEYS', KEYS[1])[1] or ''}
end
if count ~= ARGV[3] and count ~= ARGV[4] then
    return {4, now, count}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local counted = redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[4])
-- A full server refuses to write the count. The level is given back all the same; the last release frees any count.
if type(counted) == 'table' and not string.find(counted.err, 'OOM', 1, true) then
    return counted
end
return now
