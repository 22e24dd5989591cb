-- Acquires a lock, or re-enters it.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the expected count; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the replication id of the server that may grant it, if the grant is a vote
-- ARGV[6 or 7]  the number of the request, which precedes the reply: {number, …}
--
-- Returns number * 4194304 + left  granted; left is the time until ARGV[5], ms, at most 4194303
--         {0, now, ttl, holder}  refused; the lock is held for ttl ms, -1 without a TTL; holder is the start of the
--           holder's field
--         {2, now, holder}  the hold to re-enter is gone; holder is the holder of the lock, '' if the lock is free
--         {3, now}          too late, nothing was done
--         {6, now}          another server may have taken over the address; nothing was done
--         {4, now, count}   the hold has another count than expected; nothing was done
--
-- now is the server time in ms since 1970, from which the client computes the expiry of its next request.
--
-- Keeps: the key of a lock always has a TTL.

local number, expiry = ARGV[#ARGV] + 0, ARGV[5] + 0
local call, key, visitor, known = redis.call, KEYS[1], ARGV[1], ARGV[3]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end
-- include vote.lua

if known == '0' and call('EXISTS', key) == 0 then
    -- include begin_hold.lua
    return number * 4194304 + math.min(expiry - now, 4194303)
end

-- include holder_of.lua

-- include enter_again.lua
