-- Releases a token lock, whoever holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the channel of unlock messages, which this kind of lock does not use
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now} freed, {0, now} the lock was free, {3, now} too late, nothing was done
--
-- Keeps: a key that is not a string is unchanged (GET fails on another type).

-- include in_time.lua
if not call('GET', key) then
    return {number, {0, now}}
end
call('DEL', key)
return {number, {1, now}}
