-- Releases one level of a hold of a reader or a writer. The hold continues.
--
-- KEYS[1]  the lock
-- KEYS[2]  the TTL key of the visitor
-- ARGV[1]  the visitor
-- ARGV[2]  the lease of the remaining levels, ms
-- ARGV[3]  the expected count
-- ARGV[4]  the count wanted, at least 1
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which precedes the reply: {number, …}
--
-- Returns as plain/release_level.lua: a number if released, else {2, now, holder}, {3, now} or {4, now, count}
--
-- Keeps: unexpired holds of other visitors are unchanged.

-- include sides.lua

-- include in_time.lua
local own, visitor, lease, known, wanted = KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include side_count.lua
local others, flaw
if redis.call('EXISTS', own) == 1 then
    others, flaw = others_of(key, own, visitor)
    if flaw then
        return flaw
    end
    others.longest, others.has_writer = math.max(others.longest, lease), others.has_writer or is_writer(visitor)
end
-- include set_level.lua
if others then
    redis.call('PEXPIRE', own, lease)
    settle(key, others)
else
    redis.call('PEXPIRE', key, lease)
end
return number * 4194304 + math.min(expiry - now, 4194303)
