-- A read-write lock is a hash with the field `mode` (`read` or `write`) and a field with a count for each visitor. The
-- fields of writers end in `:write`. Each reader's hold has a TTL key. A writer's hold gets a TTL key when its thread also
-- reads. Until then, the writer's hold expires with the hash. The hash expires with its last hold.

local function is_writer(visitor)
    return string.sub(visitor, -6) == ':write'
end

-- Returns the mode of a lock; false if the lock is free; nil and an error if the hash is not a read-write lock.
local function mode_of(key)
    local mode = redis.call('HGET', key, 'mode')
    if not mode and redis.call('EXISTS', key) == 1 then
        return nil, redis.error_reply('WRONGTYPE this hash is no read-write lock')
    end
    return mode
end

-- include side_holder.lua

local function holder_of(key)
    local mode, flaw = mode_of(key)
    return flaw and 'a key of another type' or mode and side_holder_of(key) or ''
end

-- Returns a summary of the holds of all other visitors: their longest TTL, the fields of expired holds, the mode, and
-- whether they have an unexpired writer. A reader of Redisson has a TTL key for each level. Any other visitor has at
-- most one. If the slot moves, the node may not know whether a TTL key is missing. Then returns nil and an error.
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

-- Whether the hold of a visitor, whose field exists, has expired. A writer's hold without a TTL key is alive as long as
-- no reader has a field.
local function is_over(key, own, visitor)
    return redis.call('EXISTS', own) == 0 and (not is_writer(visitor) or redis.call('HLEN', key) > 2)
end

-- Extends the TTL of a key to at least `life`, always by a write. After a write that needs no memory, a server at maxmemory
-- accepts writes that need memory.
local function prolong(key, life)
    redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), life + 0))
end

-- Sets the TTL of the hash to the longest TTL of its holds, and removes expired holds. If only readers hold a lock in
-- write mode, changes the mode to read. Without holds, deletes the hash. Returns the message for waiters, if any.
local function settle(key, others)
    if others.longest <= 0 then
        redis.call('DEL', key)
        return others.mode == 'write' and '1' or '0'
    end
    local message
    -- If the user lacks the right to HSET, readers wait until the hash expires.
    if others.mode == 'write' and not others.has_writer and type(redis.pcall('HSET', key, 'mode', 'read')) ~= 'table' then
        message = '1'
    end
    for _, field in ipairs(others.over) do
        redis.call('HDEL', key, field)
    end
    redis.call('PEXPIRE', key, others.longest)
    return message
end
