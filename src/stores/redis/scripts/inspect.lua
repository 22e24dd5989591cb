-- Tells who holds a lock.
--
-- KEYS[1]  the lock
-- ARGV[1]  a visitor, or ''
-- ARGV[2]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {exists, count, ttl}: count is that of the visitor, '' if it holds nothing; ttl in ms, -1 for ever, -2 for none

-- Who has the lock: the start of the field, nil and the field; '' for nobody; nil and an error for what is no lock. A lock
-- is a hash of one field, `text:number` and perhaps more, and a count. A field longer than any visitor is not looked into.
local function holder_of(key)
    -- A user without the right to HLEN gets the names of all fields.
    local size, fields = redis.pcall('HLEN', key), {}
    if size == 1 or type(size) == 'table' then
        fields = redis.call('HKEYS', key)
        size = #fields
    end
    local field = fields[1] or ''
    if size == 0 then
        return ''
    elseif size == 1 and (#field > 256 or string.find(field, '.:%d+$') or string.find(field, '.:%d+:.'))
        and string.find(redis.call('HGET', key, field), '^%d+$') then
        return string.sub(field, 1, 128), nil, field
    end
    return nil, redis.error_reply('WRONGTYPE this hash is no lock, or one of another kind')
end

local number = ARGV[2] + 0
local call, key = redis.call, KEYS[1]
local exists, count = call('EXISTS', key), call('HGET', key, ARGV[1])
if exists == 1 and not count then
    local _, flaw = holder_of(key)
    if flaw then
        return flaw
    end
end
return {number, {exists, string.sub(count or '', 1, 32), call('PTTL', key)}}
