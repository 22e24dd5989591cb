-- Frees a lock whoever holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the channel of unlock messages
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now} freed, {0, now} nobody held it, {3, now} too late, nothing was done
--
-- Keeps: what is no lock of this kind is left alone.

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

local number = ARGV[3] + 0
local call, key = redis.call, KEYS[1]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > ARGV[2] + 0 then
    return {number, {3, now}}
end
local _, flaw, field = holder_of(key)
if not field then
    return flaw or {number, {0, now}}
end
if #field > 256 then
    -- One that is not looked into is refused to others, but freed only if it looks like a visitor.
    local begin, rest = string.sub(field, 1, 256), string.sub(field, -256)
    if not (string.find(rest, '.:%d+$') or string.find(rest, '.:%d+:.') or string.find(begin, '.:%d+:.')) then
        return redis.error_reply('WRONGTYPE this hash is no lock, or one of another kind')
    end
end
call('HDEL', key, field)
redis.pcall('PUBLISH', ARGV[1], '0')
return {number, {1, now}}
