-- Acquires a lock, or re-enters it.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- ARGV[1]  the visitor: the id of the hold (visitor id)
-- ARGV[2]  the lease, ms
-- ARGV[3]  the expected count and, as ARGV[4], the count wanted; both are left out if a hold begins with a count of 1,
--          because each argument costs the server time
-- ARGV[#ARGV-2]  the replication id that the server must have; only given if the grant is a vote in a quorum
-- ARGV[#ARGV-1]  the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]  the number of the request, which precedes the reply: {number, …}
--
-- Returns number * 4194304 + left  granted; left is the time until ARGV[#ARGV-1], ms, at most 4194303
--         {0, now, ttl, holder}  refused; ttl is the TTL of the lock in ms, -1 without a TTL; holder is the start of
--           the holder's field
--         {2, now, holder}  no hold to re-enter; holder holds the lock, is '' if it is free, or says that it is no lock
--         {3, now}          too late, nothing was done
--         {6, now}          another server may have taken over the address; nothing was done
--         {4, now, count}   the hold's count is neither the expected count nor the count wanted; nothing was done
--
-- now is the server time in ms since 1970, from which the client computes the expiry of its next request.
--
-- Keeps: the key of a lock always has a TTL.

-- include in_time.lua
local visitor, known, wanted = ARGV[1], ARGV[3], ARGV[4]
if #ARGV < 6 then
    known, wanted = '0', '1'
end
-- include vote.lua

if known == '0' and call('EXISTS', key) == 0 then
    -- include begin_hold.lua
    return number * 4194304 + math.min(expiry - now, 4194303)
end

-- include holder_of.lua

-- include enter_again.lua
