-- Takes a token lock.
--
-- KEYS[1]  the lock: a string, the token of whoever holds it
-- ARGV[1]  the token
-- ARGV[2]  the lease, ms
-- ARGV[3]  0, the count that stands there: a token lock is not entered twice
-- ARGV[4]  1, the count wanted
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the replication id of the server that may grant it, if the grant is a vote
-- ARGV[6 or 7]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua: number * 4194304 + left  granted, or taken before by a copy of this request
--         {0, now, ttl, holder}  refused; the lock is held for ttl ms, -1 for ever, by a token that begins so
--         {3, now}               too late, nothing was done
--         {6, now}               its keys may have become those of another server, nothing was done
--
-- Keeps: a key of ours never lacks a time to live.
local number, expiry = ARGV[#ARGV] + 0, ARGV[5] + 0
local call, key, token, lease = redis.call, KEYS[1], ARGV[1], ARGV[2]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end
-- include vote.lua
local holder = call('GET', key)
if holder and holder ~= token then
    return {number, {0, now, call('PTTL', key), string.sub(holder, 1, 64)}}
end
call('SET', key, token, 'PX', lease)
return number * 4194304 + math.min(expiry - now, 4194303)
