-- Gives a whole hold back and wakes those who wait.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages
--
-- Returns n           freed; n clients have heard of it
--         {1, error}  freed, but the message could not be published
--         {0, holder} not held by the visitor; holder is whoever has the lock, '' for nobody
--
-- Keeps: only the visitor's own field goes. Needs no memory, so it works on a server that is full.
local call, key = redis.call, KEYS[1]
if call('HDEL', key, ARGV[1]) == 0 then
    return {0, call('HKEYS', key)[1] or ''}
end
-- A cluster node whose slot is on the move does not answer for a key that is gone.
if redis.pcall('EXISTS', key) == 1 then
    return 0
end
local heard = redis.pcall('PUBLISH', ARGV[2], '0')
if type(heard) == 'table' then
    return {1, heard.err}
end
return heard
