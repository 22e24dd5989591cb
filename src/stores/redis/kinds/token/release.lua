-- Releases a token lock.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the channel of unlock messages, which this kind of lock does not use
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns number * 4194304  freed; no message is published
--         {0, holder}  not held with this token; holder is the holder of the lock, '' if the lock is free
--
-- Keeps: only a key with this token is deleted. Works at maxmemory.
local number = ARGV[3] + 0
local holder = redis.pcall('GET', KEYS[1])
if type(holder) == 'table' then
    return string.find(holder.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}}
        -- GET fails again, and redis.call raises the error with the name of the script.
        or redis.call('GET', KEYS[1])
elseif holder ~= ARGV[1] then
    return {number, {0, string.sub(holder or '', 1, 64)}}
end
redis.call('DEL', KEYS[1])
return number * 4194304
