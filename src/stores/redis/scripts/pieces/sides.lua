-- A read-write lock is a hash of `mode`, `read` or `write`, and a count for each visitor, of which writers end in `:write`.
-- Each hold of a reader has a time key, whose end is that of the hold. That of a writer has one since its thread came to read
-- inside it; before, it lasts as long as the hash. The hash lasts as long as the longest of them.

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
    if flaw then
        return 'a key of another type'
    end
    return mode and side_holder_of(key) or ''
end

-- The beginning of all time keys of a lock, from that of a visitor.
local function prefix_of(own, visitor)
    return string.sub(own, 1, #own - #visitor - 17)
end

-- How long the hold of a field lasts, ms; 0 or less if it is over. Redisson's readers have a time key for each level, all
-- others one. Or an error, where nobody knows whether a key is missing: its slot is on the move. The node that it leaves says so
-- for one key, the node that it comes to for two of which one is there.
local function life_of(key, prefix, field, count)
    local life, levels = 0, string.find(field, '^[^:]+:%d+$') and math.min(tonumber(count) or 0, 10000) or 1
    for level = 1, levels do
        local own = prefix .. field .. ':rwlock_timeout:' .. level
        local left = redis.pcall('PTTL', own)
        local is_known = left == -2 and redis.pcall('EXISTS', key, own) or left
        if type(is_known) == 'table' then
            return is_known
        end
        life = math.max(life, left)
    end
    return life
end

-- What is known of the holds of a lock beside that of one visitor, before anything is changed: the longest of their lives,
-- the fields of those that are over, the mode, and whether a writer is among them. Or nil and an error.
local function others_of(key, prefix, visitor)
    local fields = redis.call('HGETALL', key)
    local others = {longest = 0, over = {}, mode = 'read', has_writer = false}
    for i = 1, #fields, 2 do
        local field = fields[i]
        if field == 'mode' then
            others.mode = fields[i + 1]
        elseif field ~= visitor then
            local life = life_of(key, prefix, field, fields[i + 1])
            if type(life) == 'table' then
                return nil, string.find(life.err, 'non local', 1, true)
                    and redis.error_reply('TRYAGAIN the slot of this lock is on the move') or life
            elseif life <= 0 then
                others.over[#others.over + 1] = field
            elseif string.sub(field, -6) == ':write' then
                others.has_writer = true
            end
            others.longest = math.max(others.longest, life)
        end
    end
    return others
end

-- Whether the hold of a visitor whose field is there is over. A writer has a time key if anybody reads inside.
local function is_over(key, own, visitor)
    if redis.call('EXISTS', own) == 1 then
        return false
    end
    return string.sub(visitor, -6) ~= ':write' or redis.call('HLEN', key) > 2
end

-- Has a key last for at least so long.
local function lengthen(key, life)
    if redis.call('PTTL', key) < life + 0 then
        redis.call('PEXPIRE', key, life)
    end
end

-- The same by a write in any case: behind one that needs no memory, a full server accepts what does.
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
