-- Gives one level of a hold back; the hold goes on.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor
-- ARGV[2]  the lease that the remaining levels count on, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows
-- ARGV[4]  the count wanted, at least 1
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua: a number done, {2, now, holder} gone, {3, now} too late, {4, now, count} another count
--
-- Keeps: the lease stands before the count says that the level is gone.

-- include holder_of.lua

local number = ARGV[6] + 0
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[5] + 0 then
    return {number, {3, now}}
end
local count = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(count) == 'table' then
    return string.find(count.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or count
elseif not count then
    return {number, {2, now, holder_of(KEYS[1]) or 'a key of another type'}}
end
if count ~= ARGV[3] and count ~= ARGV[4] then
    return {number, {4, now, string.sub(count, 1, 32)}}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local counted = redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[4])
-- A full server refuses to write the count. The level is given back all the same; the last release frees any count.
if type(counted) == 'table' and not string.find(counted.err, 'OOM', 1, true) then
    return counted
end
return number * 4194304 + math.min(ARGV[5] - now, 4194303)
