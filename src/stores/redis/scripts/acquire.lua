-- Takes a lock, or enters it once more.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the server time after which the request is refused, ms since 1970
--
-- Returns now              granted
--         {0, now, ttl, holder}  refused; the lock is held for ttl ms, -1 for ever
--         {2, now, holder}  the hold to enter is gone; holder is whoever has the lock, '' for nobody
--         {3, now}          too late, nothing was done
--         {4, now, count}   another count stands there, nothing was done
--         {5, now}          the name is used by a lock of another kind
--
-- now is the server time in ms since 1970, for the expiry of the next request.
--
-- Keeps: a key of ours never lacks a time to live; a count above 1 comes only onto the visitor's own field.
local call, key, visitor, known = redis.call, KEYS[1], ARGV[1], ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[5] + 0 then
    return {3, now}
end

if known == '0' then
    if call('EXISTS', key) == 1 then
        if call('HEXISTS', key, 'mode') == 1 then
            return {5, now}
        end
        return {0, now, call('PTTL', key), call('HKEYS', key)[1]}
    end
    call('HSET', key, visitor, ARGV[4])
    local expires = redis.pcall('PEXPIRE', key, ARGV[2])
    if expires ~= 1 then
        -- A user without the right to the one may have the right to the other.
        if redis.pcall('HDEL', key, visitor) ~= 1 then
            redis.pcall('DEL', key)
        end
        return expires
    end
    return now
end

local count = call('HGET', key, visitor)
if not count then
    return {2, now, call('HKEYS', key)[1] or ''}
end
if count ~= known and count ~= ARGV[4] then
    return {4, now, count}
end
call('PEXPIRE', key, ARGV[2])
call('HSET', key, visitor, ARGV[4])
return now
