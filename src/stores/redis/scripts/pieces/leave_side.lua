-- Removes a visitor's hold, which must exist. Returns the message for the waiters, or nothing. If the hold cannot be
-- removed, returns nil and an error.
local function leave(key, own, visitor, notes)
    local writes, mode = is_writer(visitor), redis.call('HGET', key, 'mode')
    local lasts, left = redis.call('PTTL', key), redis.call('PTTL', own)
    local others, flaw
    -- If none of these conditions is true, the TTL of the hash belongs to another reader's hold, and stays.
    if writes or mode ~= 'read' or left <= 0 or left >= lasts - 1000 or redis.call('HLEN', key) < 3 then
        others, flaw = others_of(key, own, visitor)
        if flaw then
            return nil, flaw
        end
    end
    if writes and redis.call('HLEN', key) > 2 then
        -- The mode is changed first, so that readers can acquire the lock even if a later command fails. `prolong` needs no
        -- memory. After its write, a server at maxmemory accepts HSET in the same script.
        prolong(key, 1)
        local set = redis.pcall('HSET', key, 'mode', 'read')
        if type(set) == 'table' then
            return nil, set
        end
        others.mode = 'read'
    end
    redis.call('HDEL', key, visitor)
    redis.call('DEL', own)
    local message = others and settle(key, others)
    if writes then
        let_readers_in(notes)
    end
    return writes and '1' or message
end
