-- Releases a hold with all its levels, and notifies the waiters.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages, '' to send none
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns number * 4194304 + n  freed; n clients, at most 4194303, received the message
--         {1, error}  freed, but the message could not be published
--         {0, holder} not held by the visitor; holder is the holder of the lock, '' if the lock is free, or says that the
--           key is no lock
--
-- Keeps: only the visitor's own field is deleted. Works at maxmemory.

local number = ARGV[3] + 0
local call, key = redis.pcall, KEYS[1]
local freed = call('HDEL', key, ARGV[1])
if freed == 1 then
    if ARGV[2] == '' then
        return number * 4194304
    end
    local heard = call('PUBLISH', ARGV[2], '0')
    if type(heard) == 'table' then
        return {number, {1, heard.err}}
    end
    return number * 4194304 + (heard < 4194304 and heard or 4194303)
end

-- include holder_of.lua

if type(freed) == 'table' then
    return string.find(freed.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or freed
end
return {number, {0, holder_of(key) or 'a key of another type'}}
