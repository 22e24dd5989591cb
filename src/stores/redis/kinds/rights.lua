-- Finds the commands, keys and channels of a lock to which this user has no right.
--
-- KEYS[1]  the lock, which is not changed; without KEYS, the lock is ARGV[4]
-- ARGV[1]  the channel of its unlock messages
-- ARGV[2]  'token' for a token lock, 'fenced' for a fenced lock, 'latch' for a latch, 'permits' for a semaphore,
--          'permit_ids' for a semaphore whose permits have ids, 'read' and 'write' for the sides of a read-write lock,
--          'condition' for a lock with conditions, 'fair' for a fair lock, '' for a plain lock
-- ARGV[3]  the counter: the key of the last fencing token; not in KEYS, because the user may have no right to this key
-- ARGV[#ARGV]  the number of the request, which precedes the reply: {number, …}
--
-- Returns a list of the missing rights: a command in lower case, '~' followed by a key, or '&' for the channel
--
-- Keeps: nothing is changed, and no waiter is woken. A server checks rights before arguments, so HSET, PEXPIRE, SET,
-- INCRBY, DECRBY and ZADD get invalid arguments. All other writes and PUBLISH get a key or a channel that no lock can
-- have. An item that RPUSH or LPUSH adds is removed at once.
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
-- Tries a command on a key that no lock has. A missing right to that key is not reported.
local function try_apart(command, ...)
    local before = #refused
    try(command, key .. '\n', ...)
    if #refused > before and string.sub(refused[#refused], 1, 1) == '~' then
        refused[#refused] = nil
    end
end
local kind = ARGV[2]
local function is(kinds)
    return string.find(kinds, ' ' .. kind .. ' ', 1, true) ~= nil
end
local is_permits = is(' permits permit_ids ')
local is_hash, has_set = not (is_permits or is(' token latch ')), is_permits or is(' read write condition fair ')
try('TIME')
if is_hash then
    try('EXISTS', key)
    try('HEXISTS', key, '')
    try('HGET', key, '')
    try('HLEN', key)
    try('HKEYS', key)
    try_apart('HDEL', '')
    try('HSET', key, '', '', '')
else
    try('GET', key)
end
if kind ~= 'latch' then
    try('PTTL', key)
    try('PEXPIRE', key, 'x')
end
if not is_hash or is(' read write ') then
    try('SET', key, '', 'PX', 'x')
end
if not is_hash or is(' read write fair ') then
    try_apart('DEL')
end
if kind ~= 'token' then
    try('PUBLISH', ARGV[1] .. '\n', '0')
end
if is_permits or kind == 'latch' then
    try('DECRBY', key, 'x')
end
if has_set then
    try('ZSCORE', key, '')
    try('ZADD', key, 'x', '')
    try_apart('ZREM', '')
end
if has_set and kind ~= 'fair' then
    try('ZRANGE', key, 0, 0)
end
if is_permits or kind == 'condition' then
    try('ZRANGEBYSCORE', key, 0, 0)
end
if is_permits then
    try('INCRBY', key, 'x')
end
if kind == 'permit_ids' then
    try('ZCOUNT', key, 0, 0)
elseif is(' read write ') then
    try('HGETALL', key)
elseif kind == 'fair' then
    try('LINDEX', key, 0)
    try('LLEN', key)
    try('LRANGE', key, 0, 0)
    try_apart('LREM', 0, '')
    try('ZCARD', key)
    local before = #refused
    try_apart('LPOP')
    if #refused == before then
        for _, command in ipairs({'RPUSH', 'LPUSH'}) do
            try_apart(command, '')
            try_apart('LPOP')
        end
    end
elseif kind == 'fenced' then
    try('GET', ARGV[3])
    try('SET', ARGV[3], '', 'PX', 'x')
end
return {number, refused}
