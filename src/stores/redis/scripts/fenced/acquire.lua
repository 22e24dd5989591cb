-- Takes a fenced lock, or enters it once more.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- KEYS[2]  the fencing token that was drawn last
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the smallest fencing token that may be drawn
-- ARGV[6]  the server time after which the request is refused, ms since 1970
-- ARGV[7]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua, but for the first:
--         {1, now, token}   granted, with the fencing token of the hold
--         number * 4194304 + left  entered once more; left is the time until ARGV[6], ms, at most 4194303
--         {0, now, ttl, holder}, {2, now, holder}, {3, now}, {4, now, count}
--
-- Keeps: a key of ours never lacks a time to live, but the token, which only rises; the hold is not there before its
-- token; a count above 1 comes only onto the visitor's own field.

local number, expiry = ARGV[7] + 0, ARGV[6] + 0
local call, key, visitor, known = redis.call, KEYS[1], ARGV[1], ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end

if known == '0' and call('EXISTS', key) == 0 then
    -- The time in µs goes on where the last token was lost. Above the limit Lua has no number for each token.
    local last = call('GET', KEYS[2]) or '0'
    local token = string.find(last, '^%d+$') and math.max(last + 1, time[1] * 1000000 + time[2], ARGV[5] + 0)
    if not token or token > 9007199254740991 then
        return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is no fencing token above which there are others')
    end
    call('SET', KEYS[2], string.format('%.0f', token))
    call('HSET', key, visitor, ARGV[4])
    local expires = redis.pcall('PEXPIRE', key, ARGV[2])
    if expires ~= 1 then
        -- A user without the right to the one may have the right to the other.
        if redis.pcall('HDEL', key, visitor) ~= 1 then
            redis.pcall('DEL', key)
        end
        return expires
    end
    return {number, {1, now, token}}
end

-- include holder_of.lua

if known == '0' then
    local holder, flaw = holder_of(key)
    return flaw or {number, {0, now, call('PTTL', key), holder}}
end
local count = redis.pcall('HGET', key, visitor)
if type(count) == 'table' then
    return string.find(count.err, 'WRONGTYPE', 1, true) and {number, {2, now, 'a key of another type'}} or count
elseif not count then
    return {number, {2, now, holder_of(key) or 'a key of another type'}}
end
if count ~= known and count ~= ARGV[4] then
    return {number, {4, now, string.sub(count, 1, 32)}}
end
call('PEXPIRE', key, ARGV[2])
call('HSET', key, visitor, ARGV[4])
local left = expiry - now
return number * 4194304 + (left < 4194304 and left or 4194303)
