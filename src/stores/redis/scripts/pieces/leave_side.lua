-- Takes the hold of a visitor away, which is there. Returns the message for those who wait, if there is one; nil and an error
-- if nothing was changed.
local function leave(key, own, visitor)
    local prefix, writes = prefix_of(own, visitor), string.sub(visitor, -6) == ':write'
    local mode, lasts, left = redis.call('HGET', key, 'mode'), redis.call('PTTL', key), redis.call('PTTL', own)
    local others, flaw
    -- Else the life of the hash is that of another reader, who is still there.
    if writes or mode ~= 'read' or left <= 0 or left >= lasts - 1000 or redis.call('HLEN', key) < 3 then
        others, flaw = others_of(key, prefix, visitor)
        if flaw then
            return nil, flaw
        end
    end
    if writes and redis.call('HLEN', key) > 2 then
        -- First, so that whatever fails behind it leaves the lock to readers. A full server accepts it behind the other one.
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
    return writes and '1' or message
end

-- Leaves the lock to readers that were turned away, for as long as they need, behind a writer.
local function open_window(notes, now)
    local turned = redis.pcall('HGET', notes, 'turned')
    if type(turned) == 'string' then
        local need, count = string.match(turned, '^(%d+),(%d+)$')
        local phase = redis.pcall('HGET', notes, 'phase')
        phase = type(phase) == 'string' and string.match(phase, '^%d+$') or '0'
        local ends, due = string.format('%.0f', now + math.min(need or 0, 500)), phase .. ',' .. (count or '0')
        -- In this order, for without a field the notes would go, and come back without an end.
        redis.pcall('HSET', notes, 'window', ends, 'due', due)
        redis.pcall('HDEL', notes, 'turned')
    end
end
