-- A read-write lock is a hash of `mode`, `read` or `write`, and a count for each visitor, of which writers end in `:write`.
-- Each hold of a reader has a time key, whose end is that of the hold. That of a writer has one since its thread came to read
-- inside it; before, it lasts as long as the hash. The hash lasts as long as the longest of them.

local function is_writer(visitor)
    return string.sub(visitor, -6) == ':write'
end

-- The mode of a lock, false if nobody has it; nil and an error for what is no read-write lock.
local function mode_of(key)
    local mode = redis.call('HGET', key, 'mode')
    if not mode and redis.call('EXISTS', key) == 1 then
        return nil, redis.error_reply('WRONGTYPE this hash is no read-write lock')
    end
    return mode
end

-- include side_holder.lua

-- Who has the lock, as above; '' for nobody.
local function holder_of(key)
    local mode, flaw = mode_of(key)
    return flaw and 'a key of another type' or mode and side_holder_of(key) or ''
end

-- What is known of the holds of a lock beside that of one visitor, before anything is changed: the longest of their lives,
-- the fields of those that are over, the mode, and whether a writer is among them. Redisson's readers have a time key for each
-- level, all others one. Or nil and an error, where nobody knows whether a key is missing: its slot is on the move. The node that
-- it leaves says so for one key, the node that it comes to for two of which one is there.
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

-- Whether the hold of a visitor whose field is there is over. A writer has a time key if anybody reads inside.
local function is_over(key, own, visitor)
    return redis.call('EXISTS', own) == 0 and (not is_writer(visitor) or redis.call('HLEN', key) > 2)
end

-- Has a key last for at least so long, by a write in any case: behind one that needs no memory, a full server accepts what does.
local function prolong(key, life)
    redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), life + 0))
end

-- Sets the life of the hash to the longest of its holds. Holds that are over go; a writer whose reading goes on leaves the
-- lock to readers; without any hold the hash goes. Returns the message for those who wait, if there is one.
local function settle(key, others)
    if others.longest <= 0 then
        redis.call('DEL', key)
        return others.mode == 'write' and '1' or '0'
    end
    local message
    -- A user without the right to it has readers wait until the hash ends. A full server accepts it behind what needs no memory.
    if others.mode == 'write' and not others.has_writer and type(redis.pcall('HSET', key, 'mode', 'read')) ~= 'table' then
        message = '1'
    end
    for _, field in ipairs(others.over) do
        redis.call('HDEL', key, field)
    end
    redis.call('PEXPIRE', key, others.longest)
    return message
end
