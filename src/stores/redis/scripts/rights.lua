-- Finds out which of the commands and channels that locks need this user may not use.
--
-- KEYS[1]  any key of a lock; it is not changed
-- ARGV[1]  the channel of its unlock messages
--
-- Returns what is refused: a command in lower case, '~' for the key, '&' for the channel
--
-- Keeps: nothing is written. A field with no name is never ours; HSET and PEXPIRE are refused by their own arguments
-- after the rights were looked at.
local refused = {}
local function try(command, ...)
    local result = redis.pcall(command, ...)
    if type(result) ~= 'table' or not result.err then
        return
    end
    local text = string.lower(result.err)
    local function says(words)
        return string.find(text, words, 1, true)
    end
    if says('channel') then
        refused[#refused + 1] = '&'
    elseif says("can't access") or says('the keys') or says('to access the') then
        refused[#refused + 1] = '~'
    elseif says("can't run this command") or says('to run the') or says('noperm') or says('unknown redis command') then
        refused[#refused + 1] = string.lower(command)
    end
end
try('TIME')
try('EXISTS', KEYS[1])
try('HEXISTS', KEYS[1], '')
try('HGET', KEYS[1], '')
try('HKEYS', KEYS[1])
try('PTTL', KEYS[1])
try('HDEL', KEYS[1], '')
try('HSET', KEYS[1], '', '', '')
try('PEXPIRE', KEYS[1], 'x')
try('PUBLISH', ARGV[1], '0')
return refused
