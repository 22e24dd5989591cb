-- Acquires a token lock.
--
-- KEYS[1]  the lock: a string, the token of its holder
-- ARGV[1]  the token
-- ARGV[2]  the lease, ms
-- ARGV[#ARGV-2]  the replication id that the server must have; only given if the grant is a vote in a quorum
-- ARGV[#ARGV-1]  the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]  the number of the request, which precedes the reply: {number, …}
--
-- Returns as plain/acquire.lua: number * 4194304 + left  granted, also to a repeated request
--         {0, now, ttl, holder}  refused; ttl is the TTL of the lock in ms, -1 without a TTL; holder is the start of
--           the holder's token
--         {3, now}               too late, nothing was done
--         {6, now}               another server may have taken over the address; nothing was done
--
-- Keeps: the key of a lock always has a TTL.
-- include in_time.lua
local token, lease = ARGV[1], ARGV[2]
-- include vote.lua
local holder = call('GET', key)
if holder and holder ~= token then
    return {number, {0, now, call('PTTL', key), string.sub(holder, 1, 64)}}
end
call('SET', key, token, 'PX', lease)
return number * 4194304 + math.min(expiry - now, 4194303)
