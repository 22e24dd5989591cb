-- A read-write lock is a hash of `mode`, `read` or `write`, and a count for each visitor; those of writers end in `:write`.
-- Each reader's hold has a TTL key with its expiry. A writer's hold gets a TTL key when its thread also reads. Until then,
-- the writer's hold expires with the hash. The hash expires with the last of its holds.

local function is_writer(visitor)
    return string.sub(visitor, -6) == ':write'
end

-- The mode of a lock; false if it is free; nil and an error if the key is not a read-write lock.
local function mode_of(key)
    local mode = redis.call('HGET', key, 'mode')
    if not mode and redis.call('EXISTS', key) == 1 then
        return nil, redis.error_reply('WRONGTYPE this hash is no read-write lock')
    end
    return mode
end

-- include side_holder.lua

-- The holder of the lock, as side_holder_of returns it; '' if the lock is free.
local function holder_of(key)
    local mode, flaw = mode_of(key)
    return flaw and 'a key of another type' or mode and side_holder_of(key) or ''
end

-- The holds of a lock other than the visitor's, before any change: their longest TTL, the fields of expired ones, the mode,
-- and whether a writer is among them. Redisson's readers have a TTL key for each level, all other visitors have one. Returns
-- nil and an error if the slot moves and the server cannot tell whether a key is missing: the source node refuses a query
-- for one missing key, the target node a query for two keys of which one is missing.
local function others_of(key, own, visitor)
    local prefix, fields = string.sub(own, 1, #own - #visitor - 17), redis.call('HGETALL', key)
    local others = {longest = 0, over = {}, mode = 'read', has_writer = false}
    for i = 1, #fields, 2 do
        local field, count, life = fields[i], fields[i + 1], 0
        if field == 'mode' then
            others.mode = count
        elseif field ~= visitor then
            for level = 1, string.find(field, '^[^:]+:%d+$') and math.min(tonumber(count) or 0, 10000) or 1 do
                local its = prefix .. field .. ':rwlock_timeout:' .. level
                local left = redis.pcall('PTTL', its)
                local is_known = left == -2 and redis.pcall('EXISTS', key, its) or left
                if type(is_known) == 'table' then
                    return nil, string.find(is_known.err, 'non local', 1, true)
                        and redis.error_reply('TRYAGAIN the slot of this lock is on the move') or is_known
                end
                life = math.max(life, left)
            end
            if life <= 0 then
                others.over[#others.over + 1] = field
            end
            others.has_writer = others.has_writer or life > 0 and is_writer(field)
            others.longest = math.max(others.longest, life)
        end
    end
    return others
end

-- Whether the hold of a visitor with a field has expired. A writer has a TTL key if its thread also reads.
local function is_over(key, own, visitor)
    return redis.call('EXISTS', own) == 0 and (not is_writer(visitor) or redis.call('HLEN', key) > 2)
end

-- Extends the TTL of a key to at least `life`, always by a write: after a write that needs no memory, a server at maxmemory
-- accepts writes that need memory.
local function prolong(key, life)
    redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), life + 0))
end

-- Sets the TTL of the hash to the longest of its holds, and removes expired holds. If only readers still hold a lock in
-- write mode, it changes to read mode. Without holds, the hash is deleted. Returns the message for the waiters, if there is
-- one.
local function settle(key, others)
    if others.longest <= 0 then
        redis.call('DEL', key)
        return others.mode == 'write' and '1' or '0'
    end
    local message
    -- If the user lacks the right to HSET, readers wait until the hash expires. A server at maxmemory accepts HSET after a
    -- write that needs no memory.
    if others.mode == 'write' and not others.has_writer and type(redis.pcall('HSET', key, 'mode', 'read')) ~= 'table' then
        message = '1'
    end
    for _, field in ipairs(others.over) do
        redis.call('HDEL', key, field)
    end
    redis.call('PEXPIRE', key, others.longest)
    return message
end
