-- Frees a read-write lock whoever reads, or whoever writes.
--
-- KEYS[1]  the lock
-- KEYS[2]  the notes on those who wait
-- ARGV[1]  the channel of unlock messages
-- ARGV[2]  the mode that is to end, 'read' or 'write'
-- ARGV[3]  the server time after which the request is refused, ms since 1970
-- ARGV[4]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now} freed, {0, now} nobody held it in that mode, {3, now} too late, nothing was done
--
-- Keeps: what is no read-write lock is left alone.

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
