-- Releases all holds of a read-write lock, if the lock is in the given mode.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue entries of the waiters
-- ARGV[1]  the channel of unlock messages
-- ARGV[2]  the mode that the lock must have, 'read' or 'write'
-- ARGV[3]  the server time after which the request is refused, ms since 1970
-- ARGV[4]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now} freed, {0, now} the lock was free or in the other mode, {3, now} too late, nothing was done
--
-- Keeps: a key that is not a read-write lock is unchanged.

-- include sides.lua
-- include turns.lua

-- include in_time.lua
local mode, flaw = mode_of(key)
if flaw then
    return flaw
elseif mode ~= ARGV[2] then
    return {number, {0, now}}
end
call('DEL', key)
let_readers_in(KEYS[2])
redis.pcall('PUBLISH', ARGV[1], '1')
return {number, {1, now}}
