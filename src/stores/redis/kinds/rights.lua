-- Finds out which of the commands and channels that locks need this user may not use.
--
-- KEYS[1]  any key of a lock, or ARGV[4] in place of it; it is not changed
-- ARGV[1]  the channel of its unlock messages
-- ARGV[2]  'token' for a token lock, 'fenced' for a fenced one, 'latch' for a latch, 'permits' for a semaphore,
--          'permit_ids' for one whose permits have ids, 'read' and 'write' for the sides of a read-write lock,
--          'condition' for a lock with conditions, 'fair' for a fair lock
-- ARGV[3]  the counter of a fenced lock; as a key of the script it could keep the user from the call
-- ARGV[#ARGV]  the number of the request, which comes before the answer: {number, …}
--
-- Returns what is refused: a command in lower case, '~' and a key, '&' for the channel
--
-- Keeps: nothing is changed, and nobody woken. HSET and PEXPIRE are refused by their own arguments after the rights were
-- looked at, so are SET and its time, INCRBY, DECRBY, ZADD and ZINCRBY; HDEL, ZREM, LREM, LPOP, DEL and PUBLISH are called
-- for a key and a channel that no lock can have. So are RPUSH and LPUSH, whose item is gone at once.
local number = ARGV[#ARGV] + 0
local refused, key = {}, KEYS[1] or ARGV[4]
local function try(command, ...)
    local name, result = ..., redis.pcall(command, ...)
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
        refused[#refused + 1] = '~' .. name
    elseif says("can't run this command") or says('to run the') or says('noperm') or says('unknown redis command') then
        refused[#refused + 1] = string.lower(command)
    end
end
-- Whether the user may have such a key is not the question.
local function try_apart(command, ...)
    local before = #refused
    try(command, key .. '\n', ...)
    if #refused > before and string.sub(refused[#refused], 1, 1) == '~' then
        refused[#refused] = nil
    end
end
try('TIME')
if ARGV[2] == 'token' then
    try('GET', key)
    try('PTTL', key)
    try('SET', key, '', 'PX', 'x')
    try('PEXPIRE', key, 'x')
    try_apart('DEL')
    return {number, refused}
end
if ARGV[2] == 'permits' or ARGV[2] == 'permit_ids' then
    try('GET', key)
    try('PTTL', key)
    try('ZSCORE', key, '')
    try('ZRANGE', key, 0, 0)
    try('ZRANGEBYSCORE', key, 0, 0)
    try('SET', key, '', 'PX', 'x')
    try('INCRBY', key, 'x')
    try('DECRBY', key, 'x')
    try('ZADD', key, 'x', '')
    try('PEXPIRE', key, 'x')
    try_apart('ZREM', '')
    try_apart('DEL')
    try('PUBLISH', ARGV[1] .. '\n', '0')
    if ARGV[2] == 'permit_ids' then
        try('ZCOUNT', key, 0, 0)
    end
    return {number, refused}
end
if ARGV[2] == 'latch' then
    try('GET', key)
    try('SET', key, '', 'PX', 'x')
    try('DECRBY', key, 'x')
    try_apart('DEL')
    try('PUBLISH', ARGV[1] .. '\n', '0')
    return {number, refused}
end
try('EXISTS', key)
try('HEXISTS', key, '')
try('HGET', key, '')
try('HLEN', key)
try('HKEYS', key)
try('PTTL', key)
try_apart('HDEL', '')
try('HSET', key, '', '', '')
try('PEXPIRE', key, 'x')
try('PUBLISH', ARGV[1] .. '\n', '0')
if ARGV[2] == 'read' or ARGV[2] == 'write' then
    try('HGETALL', key)
    try('ZRANGE', key, 0, 0)
    try('ZSCORE', key, '')
    try('ZADD', key, 'x', '')
    try_apart('ZREM', '')
    try('SET', key, '', 'PX', 'x')
    try_apart('DEL')
end
if ARGV[2] == 'condition' then
    try('ZSCORE', key, '')
    try('ZRANGE', key, 0, 0)
    try('ZRANGEBYSCORE', key, 0, 0)
    try('ZADD', key, 'x', '')
    try_apart('ZREM', '')
end
if ARGV[2] == 'fair' then
    try('LINDEX', key, 0)
    try('LLEN', key)
    try('LRANGE', key, 0, 0)
    try_apart('LREM', 0, '')
    try('ZSCORE', key, '')
    try('ZCARD', key)
    try('ZADD', key, 'x', '')
    try_apart('ZREM', '')
    try_apart('DEL')
    local before = #refused
    try_apart('LPOP')
    if #refused == before then
        for _, command in ipairs({'RPUSH', 'LPUSH'}) do
            try_apart(command, '')
            try_apart('LPOP')
        end
    end
end
if ARGV[2] == 'fenced' then
    try('GET', ARGV[3])
    try('SET', ARGV[3], '', 'PX', 'x')
end
return {number, refused}
